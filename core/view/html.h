/* Escapes text for HTML and SVG, so that no text of a run can become markup. */
#ifndef LATHE_VIEW_HTML_H
#define LATHE_VIEW_HTML_H

#include "base/buffer.h"

/** Appends text with & < > " ' as entities. Control characters except line ends and tabs, and
 *  invalid UTF-8, become U+FFFD. NULL counts as "". Safe as content and in quoted attributes. */
void lathe_html_text(lathe_buffer *out, const char *text);

/** Like lathe_html_text, for the first n bytes; a character that is cut at the end becomes U+FFFD.
 */
void lathe_html_text_n(lathe_buffer *out, const char *text, int64_t n);

/** Appends formatted text, escaped. */
__attribute__((format(printf, 2, 3))) void lathe_html_printf(lathe_buffer *out, const char *format,
                                                             ...);

#endif

/* Text in HTML and SVG: nothing that comes from a run can become markup. */
#ifndef LATHE_VIEW_HTML_H
#define LATHE_VIEW_HTML_H

#include "base/buffer.h"

/** Appends text with & < > " ' as entities; control characters but line ends and tabs, and bytes
 *  that are no UTF-8, become U+FFFD. NULL is "". Fit for content and for quoted attributes. */
void lathe_html_text(lathe_buffer *out, const char *text);

/** The same for the first n bytes; a character that is cut becomes U+FFFD. */
void lathe_html_text_n(lathe_buffer *out, const char *text, int64_t n);

/** Appends a printf'ed text, escaped. */
__attribute__((format(printf, 2, 3))) void lathe_html_printf(lathe_buffer *out, const char *format,
                                                             ...);

#endif

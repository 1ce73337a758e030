/* The form in which foreign text is printed: nothing in it controls a terminal.
 *
 * Names and words of files, of templates and of other programs end in messages and tables. A
 * terminal obeys the escape sequences among them. One rule decides which characters are shown as
 * escapes; the error record, the log, the diagnostics and all printing (base/print.h) apply it, so
 * a reader of a new file format need not.
 */
#ifndef LATHE_BASE_PRINTABLE_H
#define LATHE_BASE_PRINTABLE_H

#include <stdint.h>

/** Whether a character is shown as it is: everything except the control characters (C0 without
 *  line end and tab, DEL, C1), the characters that change the direction of the text after them
 *  (U+202A to U+202E, U+2066 to U+2069), the marks of base/print.h (U+FDD0 to U+FDEF, which are
 *  no characters), and the invisible tags (U+E0000 to U+E007F). */
int lathe_is_printable(int32_t c);

enum { LATHE_PRINTABLE_BYTES = 16 }; /* of one character: two of \uNNNN have 12 */

/** Writes the printable form of the first character of text[0, n), n > 0, without a NUL, and its
 *  number of bytes; returns the bytes of the character. A control character of ASCII and a byte
 *  that is not UTF-8 become \xNN; every other character that is not printable becomes \uNNNN (two
 *  of them above U+FFFF), which is JSON's own escape: JSON text keeps its value. */
int32_t lathe_printable_at(const char *text, int64_t n, char out[LATHE_PRINTABLE_BYTES],
                           int32_t *out_bytes);

/** Bytes at the beginning of text[0, n) that are printable ASCII: their form is their own. */
int64_t lathe_printable_plain(const char *text, int64_t n);

/** Copies a text in printable form into out[bytes], bytes > 0; cuts one that is too long before the
 *  first character or escape without room. `out` may not overlap `text`. For text of any length:
 *  lathe_buffer_printable. */
void lathe_printable_copy(char *out, int64_t bytes, const char *text);

#endif

/* Text that is safe to write to a terminal. */
#ifndef LATHE_VIEW_PRINTABLE_H
#define LATHE_VIEW_PRINTABLE_H

#include "base/buffer.h"

/** Appends a text for a terminal, at most `room` characters: control characters except line ends
 * and tabs, and bytes that are not UTF-8, as \xNN. Returns the number of characters. */
int64_t lathe_view_printable(lathe_buffer *out, const char *text, int64_t n, int64_t room);

#endif

/* Breaks text into lines of a given width. */
#ifndef LATHE_VIEW_WRAP_H
#define LATHE_VIEW_WRAP_H

#include <stdint.h>

#include "base/buffer.h"

/** Width for lines on stdout: the terminal's, else the variable COLUMNS, else 0 (output to a file
 *  or a program is not wrapped). */
int32_t lathe_wrap_columns(void);

/** Appends `text`, which begins at column `at` (0: the first), with line breaks between words where
 *  a line would exceed `columns`. Later lines begin with `indent` spaces. columns 0: no wrapping.
 *  Adds no line break at the end. Words longer than a line are not cut. */
void lathe_wrap_text(lathe_buffer *out, const char *text, int32_t at, int32_t indent,
                     int32_t columns);

#endif

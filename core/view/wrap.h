/* Text in lines that fit a width. */
#ifndef LATHE_VIEW_WRAP_H
#define LATHE_VIEW_WRAP_H

#include <stdint.h>

#include "base/buffer.h"

/** Columns that lines on stdout must fit: the terminal's, else the variable COLUMNS, else 0 for
 *  output that goes to a file or a program, whose lines are not wrapped. */
int32_t lathe_wrap_columns(void);

/** Appends `text`, which begins at column `at` (0 first), with line breaks between its words where
 *  a line would be longer than `columns`; later lines begin with `indent` spaces. columns 0: as it
 *  is. Ends without a line break. A word longer than a line is not cut. */
void lathe_wrap_text(lathe_buffer *out, const char *text, int32_t at, int32_t indent,
                     int32_t columns);

#endif

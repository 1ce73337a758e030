/* Integers beyond 64 bits in a JSON tree, whose values have no room for them.
 *
 * Such an integer is an object with one member whose name is not UTF-8, so that no text has it, and
 * the digits as its value. */
#ifndef LATHE_JSON_WIDE_H
#define LATHE_JSON_WIDE_H

#include <jansson.h>
#include <stdint.h>

#include "base/buffer.h"
#include "lathe/status.h"

/** The text of an integer beyond 64 bits that lathe_json_load_exact kept ("-123..."), borrowed;
 *  NULL: another value. */
const char *lathe_json_wide(const json_t *value);

/** Appends a value that lathe_json_load_exact read, without white space. */
void lathe_json_write_exact(const json_t *value, lathe_buffer *out);

/** The end of the number that begins at `at` in a text; *out_wide: it is an integer beyond 64
 *  bits. */
int64_t lathe__json_number_end(const char *text, int64_t bytes, int64_t at, int *out_wide);

/** Replaces the real numbers that integers beyond 64 bits were read as. text: that the tree was
 *  read from. LATHE_E_NOMEM. */
lathe_status lathe__json_keep_wide(const char *text, int64_t bytes, json_t **io_root);

#endif

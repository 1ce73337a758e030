/* Rows of Arrow arrays as JSON. */
#ifndef LATHE_READER_ARROW_JSON_H
#define LATHE_READER_ARROW_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "arrow_abi.h"

enum { ARROW_BYTES_PER_VALUE = 8 };
enum { ARROW_NO_MEMORY = 1, ARROW_TOO_LONG = 2, ARROW_TOO_MANY = 3 };

/** A growing text. A few hundred bytes of a file can stand for any number of equal values, so both
 *  the text and the values that are looked at have a limit: values may be lists that overlap, and
 *  nulls that give no text. */
typedef struct arrow_text {
    char *data;
    int64_t n, capacity;
    int64_t n_values;   /* looked at; the caller sets it and n to 0 before each record */
    int64_t most_bytes; /* of n; and n_values is at most this / ARROW_BYTES_PER_VALUE */
    int32_t failed;     /* ARROW_NO_MEMORY, ARROW_TOO_LONG, ARROW_TOO_MANY: appends do nothing */
    int32_t reserved;
} arrow_text;

/** Whether values of the type have a form in JSON. If not, writes the name of the type, or of the
 *  part of it that has none, to `what`: "timestamp". */
int arrow_json_has_form(const struct ArrowSchema *type, char *what, size_t what_bytes);

/** Appends row i of the batch, a struct array, as an object. Nulls are left out of objects; in
 * lists they are null. A NaN counts as null. Every type must have a form in JSON. Returns 1; 0 if a
 *  number is infinite, with the name of its column in *out_column; check text->failed too. */
int arrow_json_row(arrow_text *text, const struct ArrowSchema *type, const struct ArrowArray *batch,
                   int64_t i, const char **out_column);

#endif

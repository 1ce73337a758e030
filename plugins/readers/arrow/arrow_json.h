/* Rows of Arrow arrays as JSON. */
#ifndef LATHE_READER_ARROW_JSON_H
#define LATHE_READER_ARROW_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "arrow_abi.h"

/** The longest record. A few hundred bytes of a file can stand for any number of equal values. */
#define ARROW_RECORD_BYTES (256LL << 20)

enum { ARROW_NO_MEMORY = 1, ARROW_TOO_LONG = 2 };

/** A growing text. All zeros: empty. */
typedef struct arrow_text {
    char *data;
    int64_t n, capacity;
    int32_t failed; /* ARROW_NO_MEMORY, ARROW_TOO_LONG: appends do nothing */
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

/* Writes records as JSON. */
#include "data/records/record_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

static lathe_status put_row(const char *row, int64_t n, const lathe_record *record,
                            lathe_buffer *out)
{
    char *name = malloc((size_t)(record->n_header + n) + 2);
    if (name == NULL)
        return lathe_error(LATHE_E_NOMEM, "a record of %lld bytes", (long long)n);
    char *value = name + record->n_header + 1;
    lathe_buffer_puts(out, "{");
    for (int32_t k = 0; k < record->n_columns; k++) {
        const int64_t n_name =
            lathe__csv_field(record->header, record->n_header, record->delimiter, k, name);
        const int64_t n_value = lathe__csv_field(row, n, record->delimiter, k, value);
        lathe_buffer_puts(out, k ? ", " : "");
        lathe_buffer_json_bytes(out, name, n_name);
        lathe_buffer_puts(out, ": ");
        lathe_buffer_json_bytes(out, value, n_value);
    }
    lathe_buffer_puts(out, "}");
    free(name);
    return out->status;
}

lathe_status lathe_record_json(const lathe_reader *reader, const lathe_record *record,
                               lathe_buffer *out)
{
    const char *text = reader->data + record->begin;
    int64_t n = record->n;
    if (reader->sources->type == LATHE_DATASET_CSV)
        return put_row(text, n, record, out);
    while (n > 0 && lathe_is_one_of(text[n - 1], " \t\r\n"))
        n--;
    while (n > 0 && lathe_is_one_of(*text, " \t\r\n")) {
        text++;
        n--;
    }
    const int64_t n_nan = lathe_json_count_nan(text, n);
    if (n_nan == 0) {
        lathe_buffer_append(out, text, n);
        return out->status;
    }
    char *clean = malloc((size_t)(n + n_nan));
    if (clean == NULL)
        return lathe_error(LATHE_E_NOMEM, "a record of %lld bytes", (long long)n);
    lathe_buffer_append(out, clean, lathe_json_nulls_for_nan(text, n, clean));
    free(clean);
    return out->status;
}

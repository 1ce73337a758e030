/* Sums up quantized weights: a model of thirty layers has some two hundred, in seven places. */
#include "cmd/main/quantize_table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/print.h"

/* Copies a name with "*" for each part that is a number: of a layer, or of an expert. */
static void name_of_place(const char *name, char *out, size_t capacity)
{
    size_t n = 0;
    while (*name && n + 2 < capacity) {
        const size_t part = strcspn(name, ".");
        size_t digits = 0;
        while (digits < part && isdigit((unsigned char)name[digits]))
            digits++;
        const int is_number = part > 0 && digits == part;
        const int written = snprintf(out + n, capacity - n, "%.*s", is_number ? 1 : (int)part,
                                     is_number ? "*" : name);
        n += written > 0 ? (size_t)written : 0;
        name += part;
        if (*name == '.' && n + 2 < capacity)
            out[n++] = *name++;
    }
    out[n < capacity ? n : capacity - 1] = '\0';
}

void lathe_quantize_table_add(lathe_quantize_table *table, const lathe_job_weight *w)
{
    char name[LATHE_QUANTIZE_NAME];
    int32_t i = 0;
    name_of_place(w->name, name, sizeof name);
    while (i < table->n && strcmp(table->lines[i].name, name) != 0)
        i++;
    if (i == LATHE_QUANTIZE_LINES) {
        i = LATHE_QUANTIZE_LINES - 1;
        (void)snprintf(table->lines[i].name, sizeof table->lines[i].name, "others");
    }
    lathe_quantize_line *line = &table->lines[i];
    if (i == table->n) {
        *line = (lathe_quantize_line){.format = w->format, .rows = w->rows, .cols = w->cols};
        memcpy(line->name, name, sizeof name);
        table->n++;
    }
    if (line->rows != w->rows || line->cols != w->cols)
        line->rows = line->cols = 0;
    if (line->format && strcmp(line->format, w->format) != 0)
        line->format = NULL;
    line->n++;
    line->n_numbers += w->rows * w->cols;
    line->n_bytes += w->bytes;
    line->error = w->relative_error > line->error ? w->relative_error : line->error;
}

void lathe_quantize_table_print(const lathe_quantize_table *table)
{
    if (table->n > 0)
        lathe_print("%6s  %-44s %13s %8s %6s  %s\n", "number", "weights", "shape", "format", "bits",
                    "largest relative error");
    for (int32_t i = 0; i < table->n; i++) {
        const lathe_quantize_line *line = &table->lines[i];
        char shape[64] = "several";
        if (line->rows > 0)
            (void)snprintf(shape, sizeof shape, "%lld x %4lld", (long long)line->rows,
                           (long long)line->cols);
        lathe_print("%6lld  %-44s %13s %8s %6.2f  %.4f\n", (long long)line->n, line->name, shape,
                    line->format ? line->format : "several",
                    8.0 * (double)line->n_bytes / (double)line->n_numbers, line->error);
    }
}

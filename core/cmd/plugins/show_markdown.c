/* Writes the keys of a table as Markdown. */
#include "cmd/plugins/show_markdown.h"

#include <math.h>
#include <string.h>

/* Puts text without bars, which would end a cell. */
static void put_cell(lathe_buffer *out, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        if (*text == '|')
            lathe_buffer_puts(out, "\\");
        lathe_buffer_append(out, text, 1);
    }
}

static void put_range(const lathe_field *f, lathe_buffer *out)
{
    const int is_number =
        f->type == LATHE_T_INT || f->type == LATHE_T_FLOAT || f->type == LATHE_T_FLOAT_LIST;
    const int low_open = (f->flags & LATHE_FIELD_MIN_EXCLUSIVE) != 0;
    const int high_open = (f->flags & LATHE_FIELD_MAX_EXCLUSIVE) != 0;
    if (f->choices != NULL)
        put_cell(out, f->choices);
    else if (f->type == LATHE_T_BOOL)
        lathe_buffer_puts(out, "true, false");
    else if (is_number && f->min <= f->max && isfinite(f->max) && f->max < 1e6)
        lathe_buffer_printf(out, "%s%.12g, %.12g%s", low_open ? "(" : "[", f->min, f->max,
                            high_open ? ")" : "]");
    else if (is_number && f->min <= f->max && isfinite(f->min))
        lathe_buffer_printf(out, "%s %.12g", low_open ? ">" : "≥", f->min);
}

void lathe_show_markdown(const lathe_field *fields, int32_t n, lathe_buffer *out)
{
    if (n == 0) {
        lathe_buffer_puts(out, "It has no keys of its own.\n");
        return;
    }
    lathe_buffer_puts(out, "| key | default | range | meaning |\n|---|---|---|---|\n");
    for (int32_t i = 0; i < n; i++) {
        const lathe_field *f = &fields[i];
        lathe_buffer_printf(out, "| `%s` | ", f->key);
        if (f->flags & LATHE_FIELD_REQUIRED)
            lathe_buffer_puts(out, "required");
        else
            put_cell(out, f->default_value != NULL ? f->default_value : "");
        lathe_buffer_puts(out, " | ");
        put_range(f, out);
        lathe_buffer_puts(out, " | ");
        put_cell(out, f->doc);
        if (f->unit != NULL && strcmp(f->unit, "1") != 0 && strstr(f->doc, f->unit) == NULL)
            lathe_buffer_printf(out, " (%s)", f->unit);
        lathe_buffer_puts(out, " |\n");
    }
}

/* Diagnostics: a list that grows, sorted and printed at the end. */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/printable.h"

static lathe_diag *append(lathe_diags *diags)
{
    if (diags->n == diags->capacity) {
        const int64_t capacity = diags->capacity == 0 ? 16 : diags->capacity * 2;
        lathe_diag *items =
            lathe_arena_alloc(&diags->arena, capacity * (int64_t)sizeof *diags->items);
        if (items == NULL)
            return NULL;
        if (diags->n > 0)
            memcpy(items, diags->items, (size_t)diags->n * sizeof *items);
        diags->items = items;
        diags->capacity = capacity;
    }
    return &diags->items[diags->n++];
}

/* Whether this diagnostic is already in the list: two checks may find the same error. */
static int is_same(const lathe_diag *diag, int32_t severity, const lathe_place *place,
                   const char *text)
{
    return diag->severity == severity && diag->place.line == place->line &&
           diag->place.column == place->column && diag->message != NULL &&
           strcmp(diag->message, text) == 0 && diag->place.file != NULL && place->file != NULL &&
           strcmp(diag->place.file, place->file) == 0;
}

void lathe_diags_add(lathe_diags *diags, int32_t severity, const lathe_place *place,
                     const char *suggestion, const char *format, ...)
{
    char given[2048], text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(given, sizeof given, format, args);
    va_end(args);
    lathe_printable_copy(text, sizeof text, given);
    for (int64_t i = 0; i < diags->n; i++)
        if (is_same(&diags->items[i], severity, place, text))
            return;
    if (severity == LATHE_DIAG_ERROR)
        diags->n_errors++;
    lathe_diag *diag = append(diags);
    if (diag == NULL)
        return;
    diag->severity = severity;
    diag->place = *place;
    diag->place.file = lathe_arena_strdup(&diags->arena, place->file != NULL ? place->file : "?");
    diag->message = lathe_arena_strdup(&diags->arena, text);
    if (suggestion != NULL)
        diag->suggestion = lathe_arena_strdup(&diags->arena, suggestion);
}

static int before(const lathe_diag *a, const lathe_diag *b)
{
    if ((a->place.line == 0) != (b->place.line == 0))
        return b->place.line == 0;
    if (a->place.line != b->place.line)
        return a->place.line < b->place.line;
    return a->place.column < b->place.column;
}

/* Insertion sort: the list is short, and equal entries keep their order. */
void lathe_diags_sort(lathe_diags *diags)
{
    for (int64_t i = 1; i < diags->n; i++) {
        const lathe_diag moved = diags->items[i];
        int64_t j = i;
        for (; j > 0 && before(&moved, &diags->items[j - 1]); j--)
            diags->items[j] = diags->items[j - 1];
        diags->items[j] = moved;
    }
}

void lathe_diags_print(const lathe_diags *diags, lathe_buffer *out)
{
    for (int64_t i = 0; i < diags->n; i++) {
        const lathe_diag *diag = &diags->items[i];
        lathe_buffer_puts(out, diag->place.file != NULL ? diag->place.file : "?");
        if (diag->place.line > 0)
            lathe_buffer_printf(out, ":%d:%d", diag->place.line, diag->place.column);
        lathe_buffer_printf(out, ": %s: %s",
                            diag->severity == LATHE_DIAG_ERROR ? "error" : "warning",
                            diag->message != NULL ? diag->message : "out of memory");
        if (diag->suggestion != NULL)
            lathe_buffer_printf(out, " (did you mean '%s'?)", diag->suggestion);
        lathe_buffer_puts(out, "\n");
    }
}

lathe_status lathe_diags_status(lathe_diags *diags)
{
    if (diags->n_errors == 0)
        return LATHE_OK;
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_diags_sort(diags);
    lathe_diags_print(diags, &text);
    if (text.len > 0)
        text.data[text.len - 1] = '\0'; /* the last newline */
    const lathe_status status = lathe_error(LATHE_E_CONFIG, "%s", text.data ? text.data : "");
    lathe_buffer_fini(&text);
    return status;
}

void lathe_diags_fini(lathe_diags *diags)
{
    lathe_arena_fini(&diags->arena);
    memset(diags, 0, sizeof *diags);
}

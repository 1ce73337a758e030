/* Diagnostics: a list that grows, sorted and printed at the end. */
#include "base/diag.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/printable.h"

enum { FIRST_SLOTS = 64 };

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

/* Two diagnostics with equal severity, place and text count as the same one, and have this hash;
 * it is never 0, which marks a free slot. */
static uint64_t hash_of(int32_t severity, const lathe_place *place, const char *text)
{
    const char *file = place->file != NULL ? place->file : "?";
    const uint64_t parts[] = {(uint64_t)severity, (uint64_t)place->line, (uint64_t)place->column,
                              lathe_hash64(file, (int64_t)strlen(file)),
                              lathe_hash64(text, (int64_t)strlen(text))};
    const uint64_t hash = lathe_hash64(parts, (int64_t)sizeof parts);
    return hash != 0 ? hash : 1;
}

/* Puts a hash into a table of n slots; n is a power of two, and at least one slot is free. Returns
 * 0 if the hash was in it before. */
static int put_hash(uint64_t *slots, int64_t n, uint64_t hash)
{
    uint64_t at = hash & (uint64_t)(n - 1);
    for (; slots[at] != 0; at = (at + 1) & (uint64_t)(n - 1))
        if (slots[at] == hash)
            return 0;
    slots[at] = hash;
    return 1;
}

/* Doubles the table of hashes, so that at most half of its slots are taken. */
static int grow_seen(lathe_diags *diags)
{
    const int64_t n = diags->n_seen == 0 ? FIRST_SLOTS : diags->n_seen * 2;
    uint64_t *slots = lathe_arena_alloc(&diags->arena, n * (int64_t)sizeof *slots);
    if (slots == NULL)
        return 0;
    memset(slots, 0, (size_t)n * sizeof *slots);
    for (int64_t i = 0; i < diags->n_seen; i++)
        if (diags->seen[i] != 0)
            (void)put_hash(slots, n, diags->seen[i]);
    diags->seen = slots;
    diags->n_seen = n;
    return 1;
}

/* Whether no equal diagnostic was added before: two checks may find the same error. Hashes are
 * compared, because comparing each text with all others takes seconds for 100,000 wrong keys. */
static int is_new(lathe_diags *diags, uint64_t hash)
{
    if (2 * (diags->n + 1) > diags->n_seen && !grow_seen(diags))
        return 1;
    return put_hash(diags->seen, diags->n_seen, hash);
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
    if (!is_new(diags, hash_of(severity, place, text)))
        return;
    if (severity == LATHE_DIAG_ERROR)
        diags->n_errors++;
    lathe_diag *diag = append(diags);
    if (diag == NULL)
        return;
    *diag = (lathe_diag){.severity = severity, .order = diags->n - 1};
    diag->place = *place;
    diag->place.file = lathe_arena_strdup(&diags->arena, place->file != NULL ? place->file : "?");
    diag->message = lathe_arena_strdup(&diags->arena, text);
    if (suggestion != NULL)
        diag->suggestion = lathe_arena_strdup(&diags->arena, suggestion);
}

static int compare(const void *one, const void *other)
{
    const lathe_diag *a = one, *b = other;
    if ((a->place.line == 0) != (b->place.line == 0))
        return a->place.line == 0 ? 1 : -1;
    if (a->place.line != b->place.line)
        return a->place.line < b->place.line ? -1 : 1;
    if (a->place.column != b->place.column)
        return a->place.column < b->place.column ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

void lathe_diags_sort(lathe_diags *diags)
{
    if (diags->n > 1)
        qsort(diags->items, (size_t)diags->n, sizeof *diags->items, compare);
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

/* ---- the thread's error as a list ---- */

/* The errors that make up the thread's last error, for lathe_error_diags. They are copies, because
 * the list that they come from is freed with its run before --json prints them. */
static _Thread_local lathe_diags of_thread;
static _Thread_local uint64_t serial; /* of the thread's error that `of_thread` belongs to */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void free_of_thread(void *diags)
{
    lathe_diags_fini(diags);
}

static void make_key(void)
{
    (void)pthread_key_create(&key, free_of_thread);
}

/* Copies the errors to the thread. If memory runs out, the thread's error still has its text. */
static void copy_to_thread(const lathe_diags *diags)
{
    (void)pthread_once(&key_once, make_key);
    (void)pthread_setspecific(key, &of_thread); /* freed when the thread ends */
    lathe_diags_fini(&of_thread);
    for (int64_t i = 0; i < diags->n; i++) {
        const lathe_diag *from = &diags->items[i];
        if (from->severity != LATHE_DIAG_ERROR)
            continue;
        lathe_diag *diag = append(&of_thread);
        if (diag == NULL)
            break;
        *diag = *from;
        diag->place.file =
            lathe_arena_strdup(&of_thread.arena, from->place.file ? from->place.file : "?");
        diag->message = lathe_arena_strdup(&of_thread.arena, from->message ? from->message : "?");
        if (from->suggestion != NULL)
            diag->suggestion = lathe_arena_strdup(&of_thread.arena, from->suggestion);
        if (from->inner.file != NULL)
            diag->inner.file = lathe_arena_strdup(&of_thread.arena, from->inner.file);
        if (from->key != NULL)
            diag->key = lathe_arena_strdup(&of_thread.arena, from->key);
        of_thread.n_errors++;
    }
    serial = lathe_error_serial();
}

const lathe_diags *lathe_error_diags(void)
{
    return of_thread.n > 0 && serial == lathe_error_serial() ? &of_thread : NULL;
}

void lathe_diags_inner(lathe_diags *diags, const lathe_place *inner)
{
    lathe_diag *last = diags->n > 0 ? &diags->items[diags->n - 1] : NULL;
    if (last == NULL || inner->file == NULL)
        return;
    last->inner = *inner;
    last->inner.file = lathe_arena_strdup(&diags->arena, inner->file);
}

void lathe_diags_about(lathe_diags *diags, const char *about)
{
    if (diags->n > 0)
        diags->items[diags->n - 1].key = lathe_arena_strdup(&diags->arena, about);
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
    copy_to_thread(diags);
    return status;
}

void lathe_diags_fini(lathe_diags *diags)
{
    lathe_arena_fini(&diags->arena);
    memset(diags, 0, sizeof *diags);
}

/* A run file that is being put together. */
#include "cmd/new/run_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Sections in the order in which the documentation shows them. */
static const char *const sections[] = {
    "model",  "moe",      "tokenizer",  "data",      "renderer",  "stage",     "teacher",
    "reward", "adapter",  "quant",      "optimizer", "scheduler", "attention", "device",
    "train",  "parallel", "checkpoint", "generate",  "log"};

const lathe_run_key *lathe_run_file_find(const lathe_run_file *file, const char *section,
                                         const char *key)
{
    for (int32_t i = 0; i < file->n_keys; i++)
        if (strcmp(file->keys[i].section, section) == 0 && strcmp(file->keys[i].key, key) == 0)
            return &file->keys[i];
    return NULL;
}

void lathe_run_file_set(lathe_run_file *file, const char *section, const char *key,
                        const char *value, const char *from)
{
    lathe_run_key *keys = realloc(file->keys, (size_t)(file->n_keys + 1) * sizeof *file->keys);
    if (keys == NULL) {
        file->status = LATHE_E_NOMEM;
        return;
    }
    file->keys = keys;
    lathe_run_key *k = &keys[file->n_keys];
    k->section = lathe_arena_strdup(&file->arena, section);
    k->key = lathe_arena_strdup(&file->arena, key);
    k->value = lathe_arena_strdup(&file->arena, value);
    k->from = from ? lathe_arena_strdup(&file->arena, from) : NULL;
    k->is_default = file->sets_defaults;
    if (!k->section || !k->key || !k->value || (from && !k->from))
        file->status = LATHE_E_NOMEM;
    else
        file->n_keys++;
}

void lathe_run_file_remark(lathe_run_file *file, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* A line break would end the comment, and other control bytes would reach the terminal. */
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    const char **remarks =
        realloc(file->remarks, (size_t)(file->n_remarks + 1) * sizeof *file->remarks);
    if (remarks == NULL) {
        file->status = LATHE_E_NOMEM;
        return;
    }
    file->remarks = remarks;
    remarks[file->n_remarks] = lathe_arena_strdup(&file->arena, text);
    if (remarks[file->n_remarks] == NULL)
        file->status = LATHE_E_NOMEM;
    else
        file->n_remarks++;
}

void lathe_run_file_filter(lathe_run_file *file, const char *section, const char *why,
                           int (*keeps)(void *arg, const char *key), void *arg)
{
    int32_t n = 0;
    for (int32_t i = 0; i < file->n_keys; i++) {
        const lathe_run_key k = file->keys[i];
        if (strcmp(k.section, section) != 0 || strcmp(k.key, "name") == 0 || keeps(arg, k.key))
            file->keys[n++] = k;
        else if (!k.is_default)
            lathe_run_file_remark(file, "%s: %s", k.from ? k.from : k.key, why);
    }
    file->n_keys = n;
}

static void print_key(const lathe_run_key *k, lathe_buffer *out)
{
    lathe_buffer_printf(out, "%s = %s", k->key, k->value);
    if (k->from)
        lathe_buffer_printf(out, "  # %s", k->from);
    lathe_buffer_puts(out, "\n");
}

static void print_section(const lathe_run_file *file, const char *section, lathe_buffer *out)
{
    int n = 0;
    for (int names = 1; names >= 0; names--)
        for (int32_t i = 0; i < file->n_keys; i++) {
            const lathe_run_key *k = &file->keys[i];
            if (strcmp(k->section, section) != 0 || (strcmp(k->key, "name") == 0) != names)
                continue;
            if (n++ == 0)
                lathe_buffer_printf(out, "\n[%s]\n", section);
            print_key(k, out);
        }
}

void lathe_run_file_print(const lathe_run_file *file, lathe_buffer *out)
{
    for (size_t s = 0; s < sizeof sections / sizeof sections[0]; s++)
        print_section(file, sections[s], out);
    if (file->n_remarks > 0)
        lathe_buffer_puts(out, "\n# Not taken:\n");
    for (int32_t i = 0; i < file->n_remarks; i++)
        lathe_buffer_printf(out, "#   %s\n", file->remarks[i]);
}

void lathe_run_file_fini(lathe_run_file *file)
{
    lathe_arena_fini(&file->arena);
    free(file->keys);
    free(file->remarks);
    memset(file, 0, sizeof *file);
}

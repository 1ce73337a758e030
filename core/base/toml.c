/* The TOML tree: files, literals, look-up, JSON text. The parser is in toml_shim.cpp. */
#include "base/toml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"

lathe_status lathe_toml_load_file(const char *path, lathe_arena *arena, lathe_toml_node **out)
{
    char *text = NULL;
    int64_t bytes = 0;
    *out = NULL;
    LATHE_TRY(lathe_file_read(path, 4 << 20, &text, &bytes));
    const lathe_status status = lathe_toml_load(path, text, bytes, arena, out);
    free(text);
    return status;
}

lathe_status lathe_toml_literal(const char *text, lathe_arena *arena, lathe_toml_node **out)
{
    lathe_toml_node *root = NULL;
    *out = NULL;
    const char *line = lathe_arena_printf(arena, "v = %s\n", text);
    if (line == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_toml_load(text, line, (int64_t)strlen(line), arena, &root));
    /* "1\nx = 2" would add a second key, and "1 # x" a comment that nobody meant. */
    if (root->n_children != 1 || strcmp(root->children[0]->key, "v") != 0)
        return lathe_error(LATHE_E_PARSE, "%s: more than one value", text);
    lathe_toml_node *value = root->children[0];
    value->line = value->column = value->key_line = value->key_column = 0;
    value->key = NULL;
    *out = value;
    return LATHE_OK;
}

lathe_toml_node *lathe_toml_new(int32_t kind, const char *key, const char *s, lathe_arena *arena)
{
    lathe_toml_node *node = lathe_arena_alloc(arena, (int64_t)sizeof *node);
    if (node == NULL)
        return NULL;
    *node = (lathe_toml_node){.kind = kind,
                              .key = key != NULL ? lathe_arena_strdup(arena, key) : NULL,
                              .s = s != NULL ? lathe_arena_strdup(arena, s) : NULL};
    return (key == NULL || node->key != NULL) && (s == NULL || node->s != NULL) ? node : NULL;
}

lathe_toml_node *lathe_toml_find(const lathe_toml_node *table, const char *key)
{
    if (table == NULL || table->kind != LATHE_TOML_TABLE)
        return NULL;
    for (int64_t i = 0; i < table->n_children; i++)
        if (strcmp(table->children[i]->key, key) == 0)
            return table->children[i];
    return NULL;
}

lathe_status lathe_toml_set(lathe_toml_node *table, lathe_toml_node *node, lathe_arena *arena)
{
    const int64_t n = table->n_children;
    for (int64_t i = 0; i < n; i++)
        if (strcmp(table->children[i]->key, node->key) == 0) {
            table->children[i] = node;
            return LATHE_OK;
        }
    lathe_toml_node **children = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof(void *));
    if (children == NULL)
        return LATHE_E_NOMEM;
    if (n > 0)
        memcpy(children, table->children, (size_t)n * sizeof(void *));
    children[n] = node;
    table->children = children;
    table->n_children = n + 1;
    return LATHE_OK;
}

const char *lathe_toml_kind_text(int32_t kind)
{
    static const char *const texts[] = {
        "nothing",   "a table",        "an array",
        "a string",  "an integer",     "a floating number",
        "a boolean", "a date or time", "a number of more than 64 bits"};
    return kind > 0 && kind <= LATHE_TOML_BIG ? texts[kind] : texts[0];
}

void lathe_buffer_json_double(lathe_buffer *out, double x)
{
    char text[40] = "null";
    for (int digits = 15; isfinite(x) && digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, x);
        const double back = strtod(text, NULL);
        if (back == x && signbit(back) == signbit(x))
            break;
    }
    lathe_buffer_puts(out, text);
    if (isfinite(x) && strpbrk(text, ".e") == NULL)
        lathe_buffer_puts(out, ".0"); /* stays a floating-point number */
}

void lathe_toml_json(const lathe_toml_node *node, lathe_buffer *out)
{
    const int is_table = node->kind == LATHE_TOML_TABLE;
    switch (node->kind) {
    case LATHE_TOML_TABLE:
    case LATHE_TOML_ARRAY:
        lathe_buffer_puts(out, is_table ? "{" : "[");
        for (int64_t i = 0; i < node->n_children; i++) {
            if (i > 0)
                lathe_buffer_puts(out, ", ");
            if (is_table) {
                lathe_buffer_json_string(out, node->children[i]->key);
                lathe_buffer_puts(out, ": ");
            }
            lathe_toml_json(node->children[i], out);
        }
        lathe_buffer_puts(out, is_table ? "}" : "]");
        break;
    case LATHE_TOML_INT:
        lathe_buffer_printf(out, "%lld", (long long)node->i);
        break;
    case LATHE_TOML_FLOAT:
        lathe_buffer_json_double(out, node->f);
        break;
    case LATHE_TOML_BOOL:
        lathe_buffer_puts(out, node->i ? "true" : "false");
        break;
    default:
        lathe_buffer_json_string(out, node->s);
        break;
    }
}

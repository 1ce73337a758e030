/* Lists of settings on top of the run file. */
#include <string.h>

#include "base/error.h"
#include "config/config_file_state.h"

/* Gives a value and all inside it the place that messages name: the option that would set it. */
static void set_origin(lathe_toml_node *node, const char *origin)
{
    node->origin = origin;
    for (int64_t i = 0; i < node->n_children; i++)
        set_origin(node->children[i], origin);
}

/* Appends an edit whose key and value are in the arena. */
static void append(lathe_edits *edits, const lathe_edit *one)
{
    if (edits->status != LATHE_OK)
        return;
    if (edits->n == edits->capacity) {
        const int32_t capacity = edits->capacity > 0 ? 2 * edits->capacity : 8;
        lathe_edit *grown = lathe_arena_alloc(&edits->arena, capacity * (int64_t)sizeof *grown);
        if (grown == NULL) {
            edits->status = LATHE_E_NOMEM;
            return;
        }
        if (edits->n > 0)
            memcpy(grown, edits->list, (size_t)edits->n * sizeof *grown);
        edits->list = grown;
        edits->capacity = capacity;
    }
    edits->list[edits->n++] = *one;
}

/* Appends an edit with the node, which is in the arena of the edits; NULL: out of memory. */
static void add(lathe_edits *edits, int32_t by, const char *key, lathe_toml_node *node)
{
    const char *origin = lathe_arena_printf(&edits->arena, "--%s", key);
    if (node == NULL || origin == NULL) {
        edits->status = LATHE_E_NOMEM;
        return;
    }
    set_origin(node, origin);
    append(edits, &(lathe_edit){.key = origin + 2, .value = node, .by = by});
}

static lathe_toml_node *make(lathe_edits *edits, int32_t kind, const char *text)
{
    lathe_toml_node *node = lathe_arena_alloc(&edits->arena, (int64_t)sizeof *node);
    if (node == NULL)
        return NULL;
    node->kind = kind;
    node->s = text;
    return text != NULL ? node : NULL;
}

void lathe_edits_int(lathe_edits *edits, int32_t by, const char *key, int64_t value)
{
    lathe_toml_node *node =
        make(edits, LATHE_TOML_INT, lathe_arena_printf(&edits->arena, "%lld", (long long)value));
    if (node != NULL) {
        node->i = value;
        node->f = (double)value;
    }
    add(edits, by, key, node);
}

void lathe_edits_bool(lathe_edits *edits, int32_t by, const char *key, int32_t value)
{
    lathe_toml_node *node =
        make(edits, LATHE_TOML_BOOL, lathe_arena_strdup(&edits->arena, value ? "true" : "false"));
    if (node != NULL)
        node->i = value != 0;
    add(edits, by, key, node);
}

void lathe_edits_text(lathe_edits *edits, int32_t by, const char *key, const char *value)
{
    add(edits, by, key, make(edits, LATHE_TOML_STRING, lathe_arena_strdup(&edits->arena, value)));
}

void lathe_edits_literal(lathe_edits *edits, int32_t by, const char *key, const char *literal)
{
    lathe_toml_node *node = NULL;
    const char *text = lathe_arena_strdup(&edits->arena, literal);
    const lathe_status status = lathe_toml_literal(literal, &edits->arena, &node);
    if (status == LATHE_E_NOMEM) {
        node = NULL;
    } else if (status != LATHE_OK) {
        lathe_error_clear();
        node = make(edits, LATHE_TOML_STRING, text);
    } else if (node->s == NULL) { /* as typed, for a key that wants a text: --tokenizer.path 7 */
        node->s = text;
    }
    add(edits, by, key, text != NULL ? node : NULL);
}

void lathe_edits_take(lathe_edits *edits, const lathe_edits *from, int32_t except)
{
    if (from->status != LATHE_OK)
        edits->status = from->status;
    for (int32_t i = 0; i < from->n; i++) {
        const lathe_edit *one = &from->list[i];
        if (except == 0 || one->by != except)
            add(edits, one->by, one->key, lathe__toml_copy(one->value, &edits->arena));
    }
}

int32_t lathe_edits_have(const lathe_edits *edits, int32_t by, const char *key)
{
    for (int32_t i = 0; i < edits->n; i++)
        if ((by == 0 || edits->list[i].by == by) && strcmp(edits->list[i].key, key) == 0)
            return 1;
    return 0;
}

void lathe_edits_put(const lathe_edits *edits, lathe_buffer *out)
{
    for (int32_t i = 0; i < edits->n; i++)
        lathe_buffer_printf(out, "%s--%s %s", i > 0 ? " " : "", edits->list[i].key,
                            edits->list[i].value->s);
}

void lathe_edits_fini(lathe_edits *edits)
{
    lathe_arena_fini(&edits->arena);
    *edits = (lathe_edits){.n = 0};
}

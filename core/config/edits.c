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

/* Appends an edit with the node, which is in the arena of the edits; NULL: out of memory. origin:
 * its place; NULL: the option that would set it. */
static void add_of(lathe_edits *edits, int32_t by, const char *key, lathe_toml_node *node,
                   const char *origin)
{
    const char *option = lathe_arena_printf(&edits->arena, "--%s", key);
    const char *place = origin != NULL ? lathe_arena_strdup(&edits->arena, origin) : option;
    if (node == NULL || option == NULL || place == NULL) {
        edits->status = LATHE_E_NOMEM;
        return;
    }
    set_origin(node, place);
    append(edits, &(lathe_edit){.key = option + 2, .value = node, .by = by});
}

static void add(lathe_edits *edits, int32_t by, const char *key, lathe_toml_node *node)
{
    add_of(edits, by, key, node, NULL);
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

/* A copy with a text, for a key that wants one. NULL: no memory. */
static lathe_toml_node *copy_with_text(lathe_edits *edits, const lathe_toml_node *value)
{
    lathe_toml_node *node = lathe__toml_copy(value, &edits->arena);
    lathe_buffer text = LATHE_BUFFER_INIT;
    if (node == NULL || node->s != NULL)
        return node;
    lathe_toml_json(node, &text);
    node->s = text.status == LATHE_OK ? lathe_arena_strdup(&edits->arena, text.data) : NULL;
    lathe_buffer_fini(&text);
    return node->s != NULL ? node : NULL;
}

lathe_toml_node *lathe_edits_node(lathe_edits *edits, int32_t by, const char *key,
                                  const lathe_toml_node *value)
{
    lathe_toml_node *node = copy_with_text(edits, value);
    add(edits, by, key, node);
    return edits->status == LATHE_OK ? node : NULL;
}

void lathe_edits_node_of(lathe_edits *edits, int32_t by, const char *key,
                         const lathe_toml_node *value, const char *origin)
{
    add_of(edits, by, key, copy_with_text(edits, value), origin);
}

void lathe_edits_set_text(lathe_edits *edits, int32_t at, const char *value)
{
    lathe_edit *const one = &edits->list[at];
    lathe_toml_node *node =
        make(edits, LATHE_TOML_STRING, lathe_arena_strdup(&edits->arena, value));
    if (node == NULL) {
        edits->status = LATHE_E_NOMEM;
        return;
    }
    node->origin = one->value->origin;
    one->value = node;
}

void lathe_edits_options(lathe_edits *edits, const lathe_override *options, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        lathe_edits_literal(edits, LATHE_BY_COMMAND, options[i].key, options[i].value);
}

lathe_status lathe_edits_parse(lathe_edits *edits, const char *const *texts, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const char *equals = texts != NULL && texts[i] != NULL ? strchr(texts[i], '=') : NULL;
        if (texts == NULL || texts[i] == NULL)
            return lathe_error(LATHE_E_ARG, "settings[%d] is NULL", i);
        if (equals == NULL)
            return lathe_error(LATHE_E_ARG, "override '%s' is not of the form section.key=value",
                               texts[i]);
        const char *key = lathe_arena_strndup(&edits->arena, texts[i], equals - texts[i]);
        if (key == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for settings");
        lathe_edits_literal(edits, LATHE_BY_COMMAND, key, equals + 1);
    }
    return edits->status == LATHE_OK ? LATHE_OK
                                     : lathe_error(LATHE_E_NOMEM, "no memory for settings");
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
            lathe_edits_add(edits, one);
    }
}

void lathe_edits_add(lathe_edits *edits, const lathe_edit *one)
{
    const char *key = lathe_arena_strdup(&edits->arena, one->key);
    const lathe_toml_node *value = lathe__toml_copy(one->value, &edits->arena);
    if (key == NULL || value == NULL)
        edits->status = LATHE_E_NOMEM;
    append(edits, &(lathe_edit){.key = key, .value = value, .by = one->by});
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

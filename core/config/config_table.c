/* Checks tables inside the core's sections: data.datasets, tokenizer.train. */
#include <string.h>

#include "base/error.h"
#include "config/config_state.h"
#include "plug/schema_check.h"
#include "plug/suggest.h"

/* Makes a table from a string where the schema allows one (`single`). Any other value that is not a
 * table is refused and omitted. The result is the table itself, or a copy with other children.
 */
static lathe_status take_singles(lathe_config *config, const char *name,
                                 const lathe_toml_node *table, lathe_diags *diags,
                                 const lathe_toml_node **out)
{
    lathe_arena *arena = &config->arena;
    lathe_toml_node *copy = NULL, **children = NULL;
    *out = table;
    for (int64_t i = 0; i < table->n_children; i++) {
        lathe_toml_node *node = table->children[i];
        const lathe_core_section *inner = lathe_core_table_find(name, node->key);
        if (inner == NULL || inner->single == NULL || node->kind == LATHE_TOML_TABLE)
            continue;
        if (copy == NULL) {
            copy = lathe_arena_alloc(arena, (int64_t)sizeof *copy);
            children = lathe_arena_alloc(arena, table->n_children * (int64_t)sizeof *children);
            if (copy == NULL || children == NULL)
                return LATHE_E_NOMEM;
            *copy = *table;
            memcpy(children, table->children, (size_t)table->n_children * sizeof *children);
            copy->children = children;
        }
        if (node->kind != LATHE_TOML_STRING) {
            const lathe_place place = lathe_value_place(config->path, node);
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                            "%s.%s is %s, expected a string or a table", name, node->key,
                            lathe_toml_kind_text(node->kind));
        }
        lathe_toml_node *made = lathe_arena_alloc(arena, (int64_t)sizeof *made);
        lathe_toml_node *value = lathe_arena_alloc(arena, (int64_t)sizeof *value);
        if (made == NULL || value == NULL)
            return LATHE_E_NOMEM;
        *made = *value = *node;
        value->key = inner->single;
        made->kind = LATHE_TOML_TABLE;
        made->children = NULL;
        made->n_children = 0;
        if (node->kind == LATHE_TOML_STRING)
            LATHE_TRY(lathe_toml_set(made, value, arena));
        children[i] = made;
    }
    *out = copy != NULL ? copy : table;
    return LATHE_OK;
}

/* Keeps the checked values of a table. */
static lathe_status keep_values(lathe_config *config, const lathe_core_section *schema,
                                const lathe_config_table *outer, const lathe_value *values,
                                lathe_config_table **out)
{
    lathe_config_table **end = &config->tables;
    while (*end != NULL)
        end = &(*end)->next;
    *out = *end = lathe_arena_alloc(&config->arena, (int64_t)sizeof **end);
    if (*end == NULL)
        return LATHE_E_NOMEM;
    **end = (lathe_config_table){.schema = schema, .values = values, .outer = outer};
    return LATHE_OK;
}

/* Whether the table's other keys are for the stage: columns that its inputs are read from. */
static int has_stage_keys(const lathe_core_section *schema)
{
    return strcmp(schema->key, "columns") == 0;
}

/* Refuses names of columns that are empty. */
static void refuse_empty(const lathe_config *config, const char *name, const lathe_toml_node *table,
                         lathe_diags *diags)
{
    for (int64_t i = 0; i < table->n_children; i++) {
        const lathe_toml_node *node = table->children[i];
        const lathe_place place = lathe_value_place(config->path, node);
        if (node->kind == LATHE_TOML_STRING && node->s[0] == '\0')
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                            "%s.%s is empty; expected the name of a column of the data", name,
                            node->key);
    }
}

/* Keeps the keys of a table that its schema does not have, which the stage is to check, and appends
 * them to the text; first: none was written before. A key that is a mistyped one of the schema is
 * refused here. */
static lathe_status put_stage_keys(const lathe_schema_scope *scope, const lathe_toml_node *table,
                                   int first, lathe_arena *arena, lathe_diags *diags,
                                   lathe_config_table *stored, lathe_buffer *text)
{
    const lathe_core_section *schema = stored->schema;
    const char *words[32];
    int32_t n = 0;
    stored->others =
        lathe_arena_alloc(arena, (table->n_children + 1) * (int64_t)sizeof *stored->others);
    if (stored->others == NULL)
        return LATHE_E_NOMEM;
    for (; n < schema->n_fields && n < 32; n++)
        words[n] = schema->fields[n].key;
    for (int64_t i = 0; i < table->n_children; i++) {
        const lathe_toml_node *node = table->children[i];
        if (lathe_schema_index(schema->fields, schema->n_fields, node->key) >= 0)
            continue;
        if (node->kind != LATHE_TOML_STRING || lathe_suggest(node->key, words, n) != NULL) {
            lathe_schema_unknown(scope, node, schema->fields, schema->n_fields, diags);
            continue;
        }
        stored->others[stored->n_others++] = (lathe_named_text){node->key, node->s};
        lathe_buffer_puts(text, first ? "" : ", ");
        lathe_buffer_json_string(text, node->key);
        lathe_buffer_puts(text, ": ");
        lathe_buffer_json_string(text, node->s);
        first = 0;
    }
    return text->status;
}

/* Checks one table, keeps its values, and appends them as a JSON object. outer: the table that
 * contains it; NULL: a section. */
static lathe_status check_table(lathe_config *config, const lathe_core_section *schema,
                                const lathe_config_table *outer, const lathe_toml_node *table,
                                lathe_diags *diags, lathe_buffer *text)
{
    lathe_value *values = NULL;
    lathe_config_table *stored = NULL;
    int first = 1;
    const char *name = lathe_arena_printf(&config->arena, "%s.%s", schema->name, schema->key);
    const lathe_schema_scope scope = {.section = name,
                                      .place = lathe_key_place(config->path, table),
                                      .ignore_unknown = has_stage_keys(schema)};
    if (name == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(take_singles(config, name, table, diags, &table));
    LATHE_TRY(lathe_schema_check(&scope, table, schema->fields, schema->n_fields, &config->arena,
                                 diags, &values));
    LATHE_TRY(keep_values(config, schema, outer, values, &stored));
    lathe_buffer_puts(text, "{");
    for (int32_t i = 0; i < schema->n_fields; i++) {
        const char *key = schema->fields[i].key;
        if (!values[i].is_set)
            continue;
        lathe_buffer_printf(text, "%s\"%s\": ", first ? "" : ", ", key);
        first = 0;
        const lathe_core_section *inner = lathe_core_table_find(name, key);
        const lathe_toml_node *node = lathe_toml_find(table, key);
        if (inner != NULL && node != NULL && node->kind == LATHE_TOML_TABLE)
            LATHE_TRY(check_table(config, inner, stored, node, diags, text));
        else
            lathe_value_json(&values[i], text);
    }
    if (has_stage_keys(schema))
        refuse_empty(config, name, table, diags);
    if (has_stage_keys(schema))
        LATHE_TRY(put_stage_keys(&scope, table, first, &config->arena, diags, stored, text));
    lathe_buffer_puts(text, "}");
    return text->status;
}

static lathe_status check_value(lathe_config *config, const lathe_core_section *schema,
                                const lathe_toml_node *node, lathe_diags *diags, lathe_buffer *text)
{
    /* a single dataset or group is a list of one */
    const int is_list = strcmp(schema->name, "data") == 0 || strcmp(schema->name, "optimizer") == 0;
    if (node->kind == LATHE_TOML_TABLE) {
        lathe_buffer_puts(text, is_list ? "[" : "");
        LATHE_TRY(check_table(config, schema, NULL, node, diags, text));
        lathe_buffer_puts(text, is_list ? "]" : "");
        return text->status;
    }
    lathe_buffer_puts(text, "[");
    for (int64_t i = 0; i < node->n_children; i++) {
        lathe_buffer_puts(text, i > 0 ? ", " : "");
        LATHE_TRY(check_table(config, schema, NULL, node->children[i], diags, text));
    }
    lathe_buffer_puts(text, "]");
    return text->status;
}

lathe_status lathe__config_tables(lathe_config *config, const struct lathe__section *section,
                                  lathe_diags *diags)
{
    lathe_value *values =
        lathe_arena_alloc(&config->arena, section->n_fields * (int64_t)sizeof *section->values);
    struct lathe__section *mine = &config->sections[section - config->sections];
    if (values == NULL)
        return LATHE_E_NOMEM;
    memcpy(values, section->values, (size_t)section->n_fields * sizeof *values);
    for (int32_t i = 0; i < section->n_fields; i++) {
        const char *key = section->fields[i].key;
        const lathe_core_section *schema = lathe_core_table_find(section->name, key);
        const lathe_toml_node *node = lathe_toml_find(section->table, key);
        if (schema == NULL || node == NULL || !values[i].is_set)
            continue;
        for (lathe_config_table *t = config->tables; t != NULL; t = t->next)
            if (t->schema == schema || (t->outer != NULL && t->outer->schema == NULL))
                t->schema = NULL;
        lathe_buffer text = LATHE_BUFFER_INIT;
        lathe_status status = check_value(config, schema, node, diags, &text);
        if (status == LATHE_OK) {
            values[i].s = lathe_arena_strdup(&config->arena, text.data);
            status = values[i].s != NULL ? LATHE_OK : LATHE_E_NOMEM;
        }
        lathe_buffer_fini(&text);
        LATHE_TRY(status);
    }
    mine->values = values;
    return LATHE_OK;
}

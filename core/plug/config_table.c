/* Checks tables inside the core's sections: data.datasets, tokenizer.train. */
#include <string.h>

#include "base/error.h"
#include "plug/config_state.h"
#include "plug/schema.h"

/* Checks one table and appends its values as a JSON object. */
static lathe_status check_table(lathe_config *config, const lathe_core_section *schema,
                                const lathe_toml_node *table, lathe_diags *diags,
                                lathe_buffer *text)
{
    lathe_value *values = NULL;
    int first = 1;
    const char *name = lathe_arena_printf(&config->arena, "%s.%s", schema->name, schema->key);
    const lathe_schema_scope scope = {.section = name,
                                      .place = lathe_key_place(config->path, table)};
    if (name == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_schema_check(&scope, table, schema->fields, schema->n_fields, &config->arena,
                                 diags, &values));
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
            LATHE_TRY(check_table(config, inner, node, diags, text));
        else
            lathe_value_json(&values[i], text);
    }
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
        LATHE_TRY(check_table(config, schema, node, diags, text));
        lathe_buffer_puts(text, is_list ? "]" : "");
        return text->status;
    }
    lathe_buffer_puts(text, "[");
    for (int64_t i = 0; i < node->n_children; i++) {
        lathe_buffer_puts(text, i > 0 ? ", " : "");
        LATHE_TRY(check_table(config, schema, node->children[i], diags, text));
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

/* Checks a table against a schema: keys, types, defaults. schema_value.c checks ranges and
 * choices. */
#include "plug/schema_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "plug/core_schema.h"
#include "plug/kind.h"
#include "plug/schema_value.h"
#include "plug/suggest.h"
#include "plug/synonyms.h"

lathe_place lathe_key_place(const char *file, const lathe_toml_node *node)
{
    lathe_place place = {.file = file, .line = node->key_line, .column = node->key_column};
    if (node->origin != NULL)
        place = (lathe_place){.file = node->origin};
    else if (node->key_line == 0)
        place = lathe_value_place(file, node);
    return place;
}

lathe_place lathe_value_place(const char *file, const lathe_toml_node *node)
{
    lathe_place place = {.file = file, .line = node->line, .column = node->column};
    if (node->origin != NULL)
        place = (lathe_place){.file = node->origin};
    return place;
}

int32_t lathe_schema_index(const lathe_field *fields, int32_t n_fields, const char *key)
{
    for (int32_t i = 0; i < n_fields; i++)
        if (strcmp(fields[i].key, key) == 0)
            return i;
    return -1;
}

int lathe_schema_key_elsewhere(const char *key, char *out, int64_t bytes)
{
    int32_t n = 0;
    const lathe_core_section *core = lathe_core_sections(&n);
    const char *section = NULL, *name = NULL;
    for (int32_t i = 0; i < n && name == NULL; i++)
        if (lathe_schema_index(core[i].fields, core[i].n_fields, key) >= 0) {
            section = core[i].name;
            name = key;
        }
    for (int32_t k = 0; name == NULL && (name = lathe_synonym(key, k, &section)) != NULL; k++)
        if (section == NULL ||
            (lathe_core_section_find(section) == NULL && lathe_kind_id(section) == 0))
            name = NULL; /* a value, or a key of a table inside a section */
    if (name != NULL)
        (void)snprintf(out, (size_t)bytes, "%s.%s", section, name);
    return name != NULL;
}

/* Appends which other plugins have the key. If none is similar, those whose key is a synonym of
 * it. */
static void put_others(const lathe_schema_scope *scope, const char *key, int with_synonyms,
                       lathe_buffer *out)
{
    const char *section, *name;
    if (scope->others == NULL)
        return;
    scope->others(scope->arg, key, out);
    for (int32_t k = 0; with_synonyms && out->len == 0; k++) {
        if ((name = lathe_synonym(key, k, &section)) == NULL)
            break;
        if (section != NULL && strcmp(section, scope->section) == 0)
            scope->others(scope->arg, name, out);
    }
}

void lathe_schema_unknown(const lathe_schema_scope *scope, const lathe_toml_node *node,
                          const lathe_field *fields, int32_t n_fields, lathe_diags *diags)
{
    const char *words[256];
    int32_t n = 0;
    for (int32_t i = 0; i < n_fields && n < 255; i++)
        words[n++] = fields[i].key;
    if (scope->skipped != NULL)
        words[n++] = scope->skipped;
    const lathe_place place = lathe_key_place(scope->place.file, node);
    const char *near = lathe_suggest(node->key, words, n);
    char elsewhere[128];
    lathe_buffer others = LATHE_BUFFER_INIT;
    put_others(scope, node->key, near == NULL, &others);
    if (near == NULL && others.len == 0 &&
        lathe_schema_key_elsewhere(node->key, elsewhere, sizeof elsewhere))
        near = elsewhere;
    lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, others.len > 0 ? NULL : near,
                    "unknown key '%s' in [%s]%s", node->key, scope->section,
                    others.len > 0 ? others.data : "");
    lathe_buffer_fini(&others);
}

/* Parses the default, a TOML literal that lathe_schema_validate has checked. */
static lathe_status set_default(const lathe_field *field, lathe_arena *arena, lathe_value *out)
{
    lathe_toml_node *node = NULL;
    char why[256];
    LATHE_TRY(lathe_toml_literal(field->default_value, arena, &node));
    const lathe_status status =
        lathe_value_from_toml(field, node, arena, out, why, sizeof why, NULL);
    if (status == LATHE_OK || status == LATHE_E_NOMEM)
        return status;
    return lathe_error(status, "default %s of %s %s", field->default_value, field->key, why);
}

static lathe_status check_one(const lathe_schema_scope *scope, const lathe_toml_node *table,
                              const lathe_field *field, lathe_arena *arena, lathe_diags *diags,
                              lathe_value *out)
{
    const lathe_toml_node *node = lathe_toml_find(table, field->key);
    if (node == NULL) {
        if (field->default_value != NULL)
            return set_default(field, arena, out);
        if (field->flags & LATHE_FIELD_REQUIRED)
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &scope->place, NULL, "%s.%s is required%s%s",
                            scope->section, field->key, field->doc != NULL ? ": " : "",
                            field->doc != NULL ? field->doc : "");
        return LATHE_OK;
    }
    char why[512];
    const char *suggestion = NULL;
    const lathe_status status =
        lathe_value_from_toml(field, node, arena, out, why, sizeof why, &suggestion);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK) {
        const lathe_place place = lathe_value_place(scope->place.file, node);
        lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, suggestion, "%s.%s %s", scope->section,
                        field->key, why);
        memset(out, 0, sizeof *out);
        out->type = field->type;
        return LATHE_OK;
    }
    out->is_explicit = 1;
    return LATHE_OK;
}

lathe_status lathe_schema_check(const lathe_schema_scope *scope, const lathe_toml_node *table,
                                const lathe_field *fields, int32_t n_fields, lathe_arena *arena,
                                lathe_diags *diags, lathe_value **out_values)
{
    lathe_value *values = lathe_arena_alloc(arena, n_fields * (int64_t)sizeof *values);
    *out_values = values;
    if (values == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; table != NULL && i < table->n_children && !scope->ignore_unknown; i++) {
        const lathe_toml_node *node = table->children[i];
        if (scope->skipped != NULL && strcmp(node->key, scope->skipped) == 0)
            continue;
        if (lathe_schema_index(fields, n_fields, node->key) < 0)
            lathe_schema_unknown(scope, node, fields, n_fields, diags);
    }
    for (int32_t i = 0; i < n_fields; i++) {
        values[i].type = fields[i].type;
        LATHE_TRY(check_one(scope, table, &fields[i], arena, diags, &values[i]));
    }
    return LATHE_OK;
}

static int is_key(const char *key)
{
    if (key == NULL || key[0] < 'a' || key[0] > 'z')
        return 0;
    for (const char *at = key; *at != '\0'; at++)
        if (!((*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9') || *at == '_'))
            return 0;
    return 1;
}

enum {
    KNOWN_FLAGS = LATHE_FIELD_REQUIRED | LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_MAX_EXCLUSIVE |
                  LATHE_FIELD_NULLABLE | LATHE_FIELD_WHOLE | LATHE_FIELD_OR_TEXT
};

lathe_status lathe_schema_validate(const lathe_field *fields, int32_t n_fields)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = LATHE_OK;
    if (n_fields < 0 || n_fields > 250 || (n_fields > 0 && fields == NULL))
        return lathe_error(LATHE_E_PLUGIN, "schema of %d fields", n_fields);
    for (int32_t i = 0; i < n_fields && status == LATHE_OK; i++) {
        const lathe_field *field = &fields[i];
        lathe_value value;
        if (!is_key(field->key))
            status = lathe_error(LATHE_E_PLUGIN, "schema field %d: key '%s' is not snake_case", i,
                                 field->key != NULL ? field->key : "(null)");
        else if (strcmp(field->key, "name") == 0 || lathe_schema_index(fields, i, field->key) >= 0)
            status = lathe_error(LATHE_E_PLUGIN, "schema: key '%s' is taken", field->key);
        else if (field->type < LATHE_T_BOOL || field->type > LATHE_T_TABLE)
            status = lathe_error(LATHE_E_PLUGIN,
                                 "schema: %s has type %d, which this core does not "
                                 "know",
                                 field->key, field->type);
        else if (field->flags & ~KNOWN_FLAGS)
            status = lathe_error(LATHE_E_PLUGIN,
                                 "schema: %s has flags %#x, of which this core knows %#x",
                                 field->key, (unsigned)field->flags, (unsigned)KNOWN_FLAGS);
        else if (field->doc == NULL)
            status = lathe_error(LATHE_E_PLUGIN, "schema: %s has no line of documentation (doc)",
                                 field->key);
        else if (isnan(field->min) || isnan(field->max))
            status =
                lathe_error(LATHE_E_PLUGIN, "schema: the range of %s is not a number", field->key);
        else if (field->default_value != NULL)
            status = set_default(field, &arena, &value);
        if (status != LATHE_OK && status != LATHE_E_NOMEM && status != LATHE_E_PLUGIN)
            status = lathe_error(LATHE_E_PLUGIN, "schema: default %s of %s does not fit its field",
                                 field->default_value, field->key);
    }
    lathe_arena_fini(&arena);
    return status;
}

/* Fills structs from the checked values of a section or of tables inside it. */
#include <math.h>
#include <string.h>

#include "config/config_fill.h"
#include "config/config_state.h"
#include "plug/schema_check.h"

/* Index of a text among the words of "a|b|c"; 0 if it is unset. The schema has refused other
 * texts. */
static int32_t choice(const char *words, const char *text)
{
    const size_t n = text != NULL ? strlen(text) : 0;
    int32_t index = 0;
    for (const char *at = words; n > 0 && at != NULL; index++) {
        const size_t length = strcspn(at, "|");
        if (length == n && strncmp(at, text, n) == 0)
            return index;
        at = at[length] == '|' ? at + length + 1 : NULL;
    }
    return 0;
}

static int64_t bytes(const char *unit, double x)
{
    const double each = strcmp(unit, "GiB") == 0   ? 1073741824.0
                        : strcmp(unit, "MiB") == 0 ? 1048576.0
                                                   : 1e9; /* GB */
    return (int64_t)(x * each);
}

static void fill(const lathe_config *config, const char *section, const lathe_field *field,
                 const lathe_value *value, const lathe_key *key, void *out)
{
    const char *text = value->is_set && value->s != NULL && value->s[0] != '\0' ? value->s : NULL;
    switch (key->form) {
    case LATHE_FILL_INT32:
        *(int32_t *)out = value->is_set ? (int32_t)value->i : 0;
        break;
    case LATHE_FILL_INT64:
        *(int64_t *)out = value->is_set ? value->i : 0;
        break;
    case LATHE_FILL_DOUBLE:
        *(double *)out = value->is_set ? value->f : 0.0;
        break;
    case LATHE_FILL_OPTIONAL:
        *(double *)out = value->is_set ? value->f : (double)NAN;
        break;
    case LATHE_FILL_TEXT:
        *(const char **)out = text;
        break;
    case LATHE_FILL_STRING:
        *(const char **)out = value->is_set ? value->s : NULL;
        break;
    case LATHE_FILL_TEXTS:
        *(lathe_texts *)out = (lathe_texts){value->strs, value->is_set ? value->n : 0};
        break;
    case LATHE_FILL_CHOICE:
        *(int32_t *)out = choice(field->choices, text);
        break;
    case LATHE_FILL_OPTIONAL_CHOICE:
        *(int32_t *)out = text != NULL ? choice(field->choices, text) : -1;
        break;
    case LATHE_FILL_BYTES:
        *(int64_t *)out = value->is_set ? bytes(field->unit, value->f) : 0;
        break;
    case LATHE_FILL_SEED:
        *(uint64_t *)out = lathe_config_seed(config, section);
        break;
    default:
        key->convert(config, value, out);
    }
}

static void fill_all(const lathe_config *config, const char *section, const lathe_field *fields,
                     int32_t n_fields, const lathe_value *values, const lathe_key *keys,
                     int32_t n_keys, void *out)
{
    for (int32_t k = 0; k < n_keys; k++) {
        const int32_t i = lathe_schema_index(fields, n_fields, keys[k].key);
        if (i >= 0)
            fill(config, section, &fields[i], &values[i], &keys[k], (char *)out + keys[k].offset);
    }
}

void lathe_config_fill(const lathe_config *config, const char *section, const lathe_key *keys,
                       int32_t n_keys, void *out)
{
    const struct lathe__section *found = lathe__config_section(config, section);
    if (found != NULL)
        fill_all(config, section, found->fields, found->n_fields, found->values, keys, n_keys, out);
}

const lathe_config_table *lathe_config_table_at(const lathe_config *config, const char *section,
                                                const char *key, int64_t index)
{
    const lathe_core_section *schema = lathe_core_table_find(section, key);
    for (const lathe_config_table *t = config->tables; t != NULL; t = t->next)
        if (t->schema != NULL && t->schema == schema && index-- == 0)
            return t;
    return NULL;
}

const lathe_config_table *lathe_config_table_inside(const lathe_config *config,
                                                    const lathe_config_table *outer,
                                                    const char *key)
{
    for (const lathe_config_table *t = config->tables; t != NULL; t = t->next)
        if (t->schema != NULL && t->outer == outer && strcmp(t->schema->key, key) == 0)
            return t;
    return NULL;
}

void lathe_config_table_fill(const lathe_config *config, const lathe_config_table *table,
                             const lathe_key *keys, int32_t n_keys, void *out)
{
    const lathe_core_section *schema = table->schema;
    fill_all(config, schema->name, schema->fields, schema->n_fields, table->values, keys, n_keys,
             out);
}

const lathe_named_text *lathe_config_table_others(const lathe_config_table *table, int64_t *out_n)
{
    *out_n = table->n_others;
    return table->others;
}

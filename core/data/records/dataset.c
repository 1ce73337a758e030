/* Reads the datasets of a configuration. */
#include "data/records/dataset.h"
#include "config/config_fill.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/records/record_keys.h"

const char *lathe_column_name(int32_t column)
{
    return lathe_record_key_get(column)->name;
}

void lathe_dataset_hash_columns(const lathe_dataset *dataset, lathe_sha256 *hash)
{
    for (int32_t k = 0; k < 2 * LATHE_N_COLUMNS; k++) {
        const char *text =
            k < LATHE_N_COLUMNS ? dataset->columns[k] : dataset->formats[k - LATHE_N_COLUMNS];
        /* a column that came later leaves the names of older caches as they were */
        if (k % LATHE_N_COLUMNS == LATHE_COLUMN_COMPLETIONS && !text)
            continue;
        lathe_sha256_update(hash, text ? text : "", text ? (int64_t)strlen(text) + 1 : 1);
    }
    if (dataset->messages)
        lathe_sha256_update(hash, dataset->messages, (int64_t)strlen(dataset->messages));
    const int64_t numbers[2] = {dataset->as_chat, dataset->max_samples};
    lathe_sha256_update(hash, numbers, sizeof numbers);
    for (int32_t i = 0; i < dataset->n_inputs; i++) {
        const lathe_stage_input *input = &dataset->inputs[i];
        const char *field = lathe_dataset_input_field(dataset, i);
        lathe_sha256_update(hash, input->name, (int64_t)strlen(input->name) + 1);
        lathe_sha256_update(hash, field, (int64_t)strlen(field) + 1);
        lathe_sha256_update(hash, &input->fallback, sizeof input->fallback);
        lathe_sha256_update(hash, &input->required, sizeof input->required);
        lathe_sha256_update(hash, &input->is_boolean, sizeof input->is_boolean);
    }
}

const char *lathe_dataset_input_field(const lathe_dataset *dataset, int32_t i)
{
    const char *name = dataset->inputs[i].name;
    for (int32_t k = 0; k < dataset->n_input_columns; k++)
        if (strcmp(dataset->input_columns[k].input, name) == 0)
            return dataset->input_columns[k].field;
    return name;
}

/* How a file counts its records; NULL: by lines. */
static const char *unit_of(const lathe_source *source)
{
    return source->reader != NULL ? "row" : source->is_array ? "record" : NULL;
}

const char *lathe_source_place_text(const lathe_source *source, int64_t line, char *out,
                                    size_t bytes)
{
    const char *unit = unit_of(source);
    if (unit != NULL)
        (void)snprintf(out, bytes, "%s: %s %lld", source->path, unit, (long long)line);
    else
        (void)snprintf(out, bytes, "%s:%lld", source->path, (long long)line);
    return out;
}

lathe_status lathe_source_error(lathe_status status, const lathe_source *source, int64_t line)
{
    return status == LATHE_OK ? status
                              : lathe_error_in_record(status, source->path, unit_of(source), line);
}

const char *lathe_dataset_messages(const lathe_dataset *dataset)
{
    return dataset->messages ? dataset->messages : LATHE_RECORD_MESSAGES;
}

/* ---- data.datasets and data.validation ---- */

/* Reads the key chat: unset is another choice than false. */
static void read_chat(const lathe_config *config, const lathe_value *value, void *out)
{
    (void)config;
    *(int32_t *)out = !value->is_set ? 0 : value->i ? 1 : -1;
}

#define KEY(key, c_type, member, form, convert, ...)                                               \
    LATHE_KEY_OF(lathe_dataset, key, member, form, convert)
#define KEY_ALONE(...)
static const lathe_key keys[] = {
#include "plug/keys_dataset.inc"
};
static const lathe_key column_keys[] = {
#include "plug/keys_dataset_columns.inc"
};
static const lathe_key format_keys[] = {
#include "plug/keys_dataset_format.inc"
};
#define N_KEYS(list) (int32_t)(sizeof(list) / sizeof *(list))

/* Reads the entries of `columns` that name the fields of the stage's inputs. Whether the stage has
 * such inputs is checked with the stage (layout.h). */
static lathe_status read_input_columns(const lathe_config_table *columns, const char *key,
                                       int64_t index, lathe_dataset *out)
{
    int64_t n;
    const lathe_named_text *others = lathe_config_table_others(columns, &n);
    if (n > LATHE_MAX_STAGE_INPUTS)
        return lathe_error(LATHE_E_CONFIG,
                           "data.%s[%lld].columns: more than %d columns for inputs of a stage", key,
                           (long long)index, LATHE_MAX_STAGE_INPUTS);
    for (int64_t i = 0; i < n; i++)
        out->input_columns[i] = (lathe_input_column){others[i].name, others[i].text};
    out->n_input_columns = (int32_t)n;
    return LATHE_OK;
}

static int is_same_place(const char *a, const char *b)
{
    char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
    const int same =
        strcmp(a, b) == 0 || (real_a != NULL && real_b != NULL && strcmp(real_a, real_b) == 0);
    free(real_a);
    free(real_b);
    return same;
}

int32_t lathe_datasets_name_only(const lathe_toml_node *value, const char *path)
{
    int32_t same = 1;
    if (value->kind == LATHE_TOML_ARRAY) {
        for (int64_t i = 0; i < value->n_children; i++)
            same &= lathe_datasets_name_only(value->children[i], path);
        return same;
    }
    const lathe_toml_node *at =
        value->kind == LATHE_TOML_TABLE ? lathe_toml_find(value, "path") : value;
    return at != NULL && at->kind == LATHE_TOML_STRING && is_same_place(at->s, path);
}

lathe_status lathe_datasets_read(const lathe_config *config, const char *key, lathe_arena *arena,
                                 lathe_dataset **out, int64_t *out_n)
{
    const lathe_config_table *table, *inner;
    int64_t n = 0;
    while (lathe_config_table_at(config, "data", key, n))
        n++;
    *out_n = n;
    *out = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof **out);
    if (!*out)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        lathe_dataset *dataset = &(*out)[i];
        table = lathe_config_table_at(config, "data", key, i);
        *dataset =
            (lathe_dataset){.weight = (double)NAN, .registry = lathe_config_registry(config)};
        lathe_config_table_fill(config, table, keys, N_KEYS(keys), dataset);
        if (isnan(dataset->weight))
            dataset->weight = 1.0;
        inner = lathe_config_table_inside(config, table, "format");
        if (inner)
            lathe_config_table_fill(config, inner, format_keys, N_KEYS(format_keys), dataset);
        inner = lathe_config_table_inside(config, table, "columns");
        if (inner) {
            lathe_config_table_fill(config, inner, column_keys, N_KEYS(column_keys), dataset);
            LATHE_TRY(read_input_columns(inner, key, i, dataset));
        }
    }
    return LATHE_OK;
}

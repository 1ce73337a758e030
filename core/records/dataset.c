/* data.datasets: the list of datasets in a configuration. */
#include "records/dataset.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

static const char *const column_names[LATHE_N_COLUMNS] = {"text", "prompt", "chosen", "rejected",
                                                          "completion"};
static const char *const type_names[] = {"text", "jsonl", "json", "csv"}; /* by LATHE_DATASET_* */

#define MAX_WEIGHT 1e6

const char *lathe_column_name(int32_t column)
{
    return column_names[column];
}

void lathe_dataset_hash_columns(const lathe_dataset *dataset, lathe_sha256 *hash)
{
    for (int32_t k = 0; k < 2 * LATHE_N_COLUMNS; k++) {
        const char *text =
            k < LATHE_N_COLUMNS ? dataset->columns[k] : dataset->formats[k - LATHE_N_COLUMNS];
        lathe_sha256_update(hash, text ? text : "", text ? (int64_t)strlen(text) + 1 : 1);
    }
    if (dataset->messages)
        lathe_sha256_update(hash, dataset->messages, (int64_t)strlen(dataset->messages));
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

const char *lathe_dataset_messages(const lathe_dataset *dataset)
{
    return dataset->messages ? dataset->messages : "messages";
}

static lathe_status copy_text(const json_t *value, const char *where, const char *key,
                              lathe_arena *arena, const char **out)
{
    if (!json_is_string(value) || !json_string_length(value))
        return lathe_error(LATHE_E_CONFIG, "%s.%s: expected a string", where, key);
    *out = lathe_arena_strdup(arena, json_string_value(value));
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

/* An entry of `columns` that names the field of a stage's input. Whether the stage has such an
 * input is checked with the stage (layout.h). */
static lathe_status read_input_column(const json_t *value, const char *where, const char *key,
                                      lathe_arena *arena, lathe_dataset *out)
{
    if (out->n_input_columns == LATHE_MAX_STAGE_INPUTS)
        return lathe_error(LATHE_E_CONFIG, "%s.columns: more than %d columns for inputs of a stage",
                           where, LATHE_MAX_STAGE_INPUTS);
    lathe_input_column *column = &out->input_columns[out->n_input_columns++];
    column->input = lathe_arena_strdup(arena, key);
    return column->input ? copy_text(value, where, key, arena, &column->field) : LATHE_E_NOMEM;
}

/* The tables columns and format (`name`): a text for each column. with_inputs NULL: of columns
 * alone. */
static lathe_status read_columns(json_t *object, const char *where, const char *name,
                                 lathe_arena *arena, const char *out[LATHE_N_COLUMNS],
                                 lathe_dataset *with_inputs)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return lathe_error(LATHE_E_CONFIG, "%s.%s: expected a table", where, name);
    json_object_foreach(object, key, value)
    {
        int32_t k = 0;
        if (with_inputs && strcmp(key, "messages") == 0) {
            LATHE_TRY(copy_text(value, where, key, arena, &with_inputs->messages));
            continue;
        }
        while (k < LATHE_N_COLUMNS && strcmp(key, column_names[k]))
            k++;
        if (k == LATHE_N_COLUMNS && with_inputs) {
            LATHE_TRY(read_input_column(value, where, key, arena, with_inputs));
            continue;
        }
        if (k == LATHE_N_COLUMNS)
            return lathe_error(LATHE_E_CONFIG,
                               "%s.%s.%s: no such column; there are text, prompt, completion, "
                               "chosen, rejected",
                               where, name, key);
        if (!strcmp(name, "format") && json_is_string(value))
            out[k] = lathe_arena_strdup(arena, json_string_value(value)); /* checked by layout.h */
        else
            LATHE_TRY(copy_text(value, where, key, arena, &out[k]));
        if (!out[k])
            return LATHE_E_NOMEM;
    }
    return LATHE_OK;
}

static lathe_status read_type(const json_t *value, const char *where, lathe_dataset *out)
{
    const char *type = json_is_string(value) ? json_string_value(value) : "";
    for (int32_t k = 0; k < (int32_t)(sizeof type_names / sizeof *type_names); k++)
        if (strcmp(type, type_names[k]) == 0) {
            out->type = k;
            return LATHE_OK;
        }
    return lathe_error(LATHE_E_CONFIG, "%s.type is \"%s\"; there are text, jsonl, json, csv", where,
                       type);
}

static lathe_status read_weight(const json_t *value, const char *where, lathe_dataset *out)
{
    out->weight = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (out->weight > 0.0 && out->weight <= MAX_WEIGHT)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "%s.weight is %g; expected a number above 0, up to %g",
                       where, out->weight, MAX_WEIGHT);
}

static lathe_status read_dataset(json_t *entry, const char *where, lathe_arena *arena,
                                 lathe_dataset *out)
{
    const char *key;
    json_t *value;
    out->type = LATHE_DATASET_AUTO;
    out->weight = 1.0;
    if (!json_is_object(entry))
        return lathe_error(LATHE_E_CONFIG, "%s: expected a table", where);
    json_object_foreach(entry, key, value)
    {
        if (!strcmp(key, "path"))
            LATHE_TRY(copy_text(value, where, key, arena, &out->path));
        else if (!strcmp(key, "columns"))
            LATHE_TRY(read_columns(value, where, key, arena, out->columns, out));
        else if (!strcmp(key, "format"))
            LATHE_TRY(read_columns(value, where, key, arena, out->formats, NULL));
        else if (!strcmp(key, "type"))
            LATHE_TRY(read_type(value, where, out));
        else if (!strcmp(key, "weight"))
            LATHE_TRY(read_weight(value, where, out));
        else
            return lathe_error(LATHE_E_CONFIG,
                               "%s.%s: no such key; there are path, type, columns, format, weight",
                               where, key);
    }
    return out->path ? LATHE_OK : lathe_error(LATHE_E_CONFIG, "%s.path is missing", where);
}

lathe_status lathe_datasets_parse(const char *where, const char *json, lathe_arena *arena,
                                  lathe_dataset **out, int64_t *out_n)
{
    json_t *list;
    LATHE_TRY(lathe_json_load(where, json, (int64_t)strlen(json), &list));
    const size_t n = json_is_array(list) ? json_array_size(list) : 0;
    lathe_status status = LATHE_OK;
    *out = NULL;
    if (!n)
        status = lathe_error(LATHE_E_CONFIG, "%s: expected a list of tables", where);
    else if (!(*out = lathe_arena_alloc(arena, (int64_t)(n * sizeof **out))))
        status = LATHE_E_NOMEM;
    for (size_t i = 0; i < n && status == LATHE_OK; i++) {
        const char *place = lathe_arena_printf(arena, "%s[%zu]", where, i);
        status =
            place ? read_dataset(json_array_get(list, i), place, arena, &(*out)[i]) : LATHE_E_NOMEM;
    }
    *out_n = (int64_t)n;
    json_decref(list);
    return status;
}

/* Gives the rows of a table the formats of the folder that stores them. */
#include "model/family/stored_formats.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "files/safetensors/expert_tensors.h"
#include "model/family/tower_names.h"
#include "model/family/weight_planes.h"
#include "model/family/weight_tensor.h"
#include "plug/answers.h"

/* The module of a linear layer's weight; fused experts have its name themselves. */
static void module_of(const lathe_param *row, char *out, size_t bytes)
{
    const char *dot = row->layout == LATHE_LAYOUT_FUSED_EXPERTS ? NULL : strrchr(row->name, '.');
    const size_t n = dot != NULL ? (size_t)(dot - row->name) : strlen(row->name);
    (void)snprintf(out, bytes, "%.*s", (int)n, row->name);
}

/* Whether the set has plain numbers for a weight: the first expert's stand for all of them. */
static int is_plain(const lathe_stored_model *stored, const lathe_param *row)
{
    char name[512];
    lathe_param one = *row;
    if (stored->set == NULL)
        return 0;
    if (!lathe_weights_is_by_expert(row) || lathe_weight_is_plain(stored->set, stored->model, row))
        return lathe_weight_is_plain(stored->set, stored->model, row);
    const int32_t n = lathe_expert_tensor_name(row->name, 0, name, sizeof name);
    if (n < 0 || n >= (int32_t)sizeof name)
        return 0;
    one.name = name;
    one.desc.dims[0] /= row->n_experts;
    one.n_experts = 0;
    return lathe_weight_is_plain(stored->set, stored->model, &one);
}

int32_t lathe_format_stores_conv1d(const lathe_instance *format)
{
    const lathe_quant_v1 *table = format->table;
    return LATHE_HAS(table, stores_conv1d);
}

lathe_status lathe_stored_format(const lathe_stored_model *stored, const lathe_param *row,
                                 const lathe_instance **out)
{
    char module[512], text[512];
    *out = NULL;
    if (stored->source == NULL || is_plain(stored, row))
        return LATHE_OK;
    module_of(row, module, sizeof module);
    const char *in_file =
        lathe_text_tower_file(stored->model, module, -1, text, (int64_t)sizeof text);
    const lathe_quant_layer layer = {.module = module,
                                     .in_file = in_file != module ? in_file : NULL,
                                     .kind = row->transposed                     ? "Conv1D"
                                             : row->role == LATHE_ROLE_EMBEDDING ? "Embedding"
                                                                                 : "Linear",
                                     .model = stored->model,
                                     .set = stored->set};
    const lathe_instance *format = NULL;
    LATHE_TRY(lathe_quant_source_format(stored->source, &layer, &format));
    if (format != NULL && row->transposed && !lathe_format_stores_conv1d(format))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: %s is a Conv1D weight in format %s, of which no library stores "
                           "Conv1D weights: it cannot be read",
                           stored->path, row->name, format->component->plugin->name);
    if (format != NULL && lathe_weights_is_by_expert(row))
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: %s: the experts are stored in format %s, one by one, which is not "
                           "read: take a folder with plain experts, and set quant.name",
                           stored->path, row->name, format->component->plugin->name);
    *out = format; /* NULL: the folder lacks the weight, and reading it says so */
    return LATHE_OK;
}

lathe_status lathe_param_set_format(lathe_param *row, const lathe_instance *format)
{
    const lathe_quant_v1 *table = format->table;
    const int64_t rows = row->desc.dims[0], cols = row->desc.dims[1];
    LATHE_TRY(table->accepts(format->self, rows, cols));
    LATHE_TRY(lathe_answer_planes(format, rows, cols, row->planes, &row->n_planes));
    LATHE_TRY(lathe_answer_activations(format, rows, cols, &row->activations));
    row->format = format;
    return LATHE_OK;
}

static lathe_status take_planes(const lathe_stored_model *stored, lathe_param *row,
                                const lathe_instance *format)
{
    const lathe_status status = lathe_param_set_format(row, format);
    if (status == LATHE_E_SHAPE)
        return lathe_error(LATHE_E_SHAPE, "%s: %s: %s", stored->path, row->name,
                           lathe_error_message());
    LATHE_TRY(status);
    row->planes_on_file = 1;
    return LATHE_OK;
}

int32_t lathe_param_may_be_stored(const lathe_param *row)
{
    return row->desc.rank == 2 && !row->stage_head &&
           (row->role == LATHE_ROLE_MATRIX || row->role == LATHE_ROLE_HEAD ||
            row->role == LATHE_ROLE_EMBEDDING);
}

lathe_status lathe_param_take_stored(const lathe_stored_model *stored, lathe_params *params,
                                     int32_t index, const lathe_instance *format)
{
    lathe_param *row = params->rows[index];
    return row->role == LATHE_ROLE_MATRIX
               ? take_planes(stored, row, format)
               : lathe_param_decode_stored(stored, params, index, format);
}

lathe_status lathe_param_decode_stored(const lathe_stored_model *stored, lathe_params *params,
                                       int32_t index, const lathe_instance *format)
{
    lathe_param *row = params->rows[index];
    lathe_param *coded = lathe_arena_alloc(&params->arena, (int64_t)sizeof *coded);
    if (coded == NULL)
        return LATHE_E_NOMEM;
    *coded = *row;
    LATHE_TRY(take_planes(stored, coded, format));
    row->stored = coded;
    return LATHE_OK;
}

lathe_status lathe_stored_weights_open(const char *path, lathe_safetensors **out)
{
    *out = NULL;
    const lathe_status status = lathe_safetensors_open_all(path, out);
    if (status != LATHE_E_NOT_FOUND)
        return status;
    lathe_error_clear();
    return LATHE_OK;
}

static lathe_status take_all(const lathe_stored_model *stored, lathe_params *params)
{
    for (int32_t i = 0; i < params->n; i++) {
        const lathe_instance *format = NULL;
        if (!lathe_param_may_be_stored(params->rows[i]))
            continue;
        LATHE_TRY(lathe_stored_format(stored, params->rows[i], &format));
        if (format != NULL)
            LATHE_TRY(lathe_param_take_stored(stored, params, i, format));
    }
    return LATHE_OK;
}

lathe_status lathe_stored_formats_take(lathe_registry *registry, const char *path,
                                       const lathe_model_config *model, lathe_params *params,
                                       lathe_quant_source **out_source)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_safetensors *set = NULL;
    *out_source = NULL;
    if (!model->is_quantized)
        return LATHE_OK;
    const char *place = lathe_path_join(&arena, path, "config.json");
    lathe_status status =
        place != NULL ? lathe_quant_source_create(registry, place, model->json, NULL, out_source)
                      : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = lathe_stored_weights_open(path, &set);
    const lathe_stored_model stored = {path, model, *out_source, set};
    if (status == LATHE_OK)
        status = take_all(&stored, params);
    lathe_safetensors_close(set);
    lathe_arena_fini(&arena);
    return status;
}

int32_t lathe_params_have_planes(const lathe_params *params)
{
    for (int32_t i = 0; i < params->n; i++)
        if (params->rows[i]->planes_on_file)
            return 1;
    return 0;
}

lathe_status lathe_stored_formats_refuse(lathe_registry *registry, const char *path,
                                         const lathe_model_config *model, lathe_params *params,
                                         const char *what)
{
    lathe_quant_source *source = NULL;
    lathe_status status = lathe_stored_formats_take(registry, path, model, params, &source);
    if (status == LATHE_OK && lathe_params_have_planes(params))
        status = lathe_model_config_refuse_quantized(model, path, what);
    lathe_quant_source_destroy(source);
    return status;
}

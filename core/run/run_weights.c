/* Placing a run's memory and filling its weights: from a folder, at random, or from a checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "io/convert.h"
#include "model/param_init.h"
#include "model/weights.h"
#include "run/checkpoint.h"
#include "run/checkpoint_image.h"
#include "run/generate.h"
#include "run/model_file.h"
#include "run/run_check.h"
#include "run/run_state.h"
#include "run/state_rows.h"
#include "run/weight_average.h"
#include "run/weight_fill.h"

lathe_status lathe__run_place(lathe_run *run)
{
    void *memory = NULL;
    LATHE_TRY(lathe_staging_place(&run->machine));
    LATHE_TRY(lathe_store_place(&run->store, &run->machine));
    LATHE_TRY(lathe_machine_alloc(&run->machine, LATHE_MEM_ACTIVATIONS, run->programs.arena_bytes,
                                  &memory));
    run->programs.arena = memory;
    lathe_machine_recount(&run->machine, LATHE_MEM_ACTIVATIONS, LATHE_MEM_SCRATCH,
                          run->programs.arena_bytes - run->programs.activation_bytes);
    if (run->programs.train.exec)
        LATHE_TRY(lathe_exec_place(run->programs.train.exec, &run->store, run->programs.arena));
    if (run->programs.eval.exec)
        LATHE_TRY(lathe_exec_place(run->programs.eval.exec, &run->store, run->programs.arena));
    if (run->programs.sampling.exec)
        LATHE_TRY(lathe_exec_place(run->programs.sampling.exec, &run->store, run->programs.arena));
    if (run->opt.update)
        LATHE_TRY(lathe_update_place(run->opt.update, run->programs.arena));
    if (run->generator)
        LATHE_TRY(lathe__generator_place(run));
    LATHE_TRY(lathe_image_place(run));
    LATHE_TRY(
        lathe_machine_alloc(&run->machine, LATHE_MEM_STAGING, lathe__losses_bytes(run), &memory));
    run->programs.losses = memory;
    run->open.placed = 1;
    return LATHE_OK;
}

/* ---- the sink: f32 rows become masters, compute copies or planes ---- */

/* Host memory of at least `bytes` for one row at a time. */
static lathe_status row_buffer(lathe_weight_fill *fill, const lathe_param *row, int64_t bytes)
{
    if (bytes <= fill->bytes)
        return LATHE_OK;
    float *grown = realloc(fill->buffer, (size_t)bytes);
    if (!grown)
        return lathe_error(LATHE_E_NOMEM, "no memory to read '%s'", row->name);
    fill->buffer = grown;
    fill->bytes = bytes;
    return LATHE_OK;
}

static lathe_status place_row(void *arg, int32_t index, const lathe_param *row, void **out_data,
                              int32_t *out_dtype)
{
    lathe_weight_fill *fill = arg;
    const lathe_store *store = &fill->run->store;
    const int64_t n = lathe_desc_count(&row->desc);
    void *memory = lathe_store_master(store, index);
    *out_dtype = LATHE_F32;
    if (!memory && lathe_store_shadow(store, index)) {
        memory = lathe_store_shadow(store, index);
        *out_dtype = lathe_params_value_dtype(&fill->run->params, index);
    }
    if (!memory || !store->is_host) { /* on its way into planes, or to the device */
        LATHE_TRY(row_buffer(fill, row, 4 * n));
        memory = fill->buffer;
    }
    *out_data = memory;
    return LATHE_OK;
}

/* The planes of a row from its f32 values; encoded on the host. */
static lathe_status encode_row(lathe_run *run, int32_t index, const lathe_param *row,
                               const float *values)
{
    const lathe_quant_v1 *table = run->parts.quant.table;
    void *planes[LATHE_MAX_PLANES] = {NULL};
    char *host = NULL;
    int64_t at[LATHE_MAX_PLANES + 1] = {0};
    for (int32_t k = 0; k < row->n_planes; k++) {
        at[k + 1] = at[k] + (lathe_desc_bytes(&row->planes[k].desc) + 63) / 64 * 64;
        planes[k] = lathe_store_plane(&run->store, index, k);
    }
    if (!run->store.is_host) {
        host = aligned_alloc(64, (size_t)at[row->n_planes] + 64);
        if (!host)
            return lathe_error(LATHE_E_NOMEM, "no memory to encode '%s'", row->name);
        memset(host, 0, (size_t)at[row->n_planes]);
        for (int32_t k = 0; k < row->n_planes; k++)
            planes[k] = host + at[k];
    }
    lathe_status status =
        table->encode(run->parts.quant.self, row->desc.dims[0], row->desc.dims[1], values, planes);
    for (int32_t k = 0; host && k < row->n_planes && status == LATHE_OK; k++)
        status = lathe_store_put(&run->store, lathe_store_plane(&run->store, index, k), planes[k],
                                 lathe_desc_bytes(&row->planes[k].desc));
    free(host);
    return status;
}

static lathe_status row_done(void *arg, int32_t index, const lathe_param *row, void *data)
{
    lathe_weight_fill *fill = arg;
    lathe_run *run = fill->run;
    if (row->quantized)
        return encode_row(run, index, row, data);
    if (lathe_store_master(&run->store, index))
        return lathe_store_set(&run->store, index, data);
    if (run->store.is_host) /* it was written in its place */
        return LATHE_OK;
    return lathe_store_put(&run->store, lathe_store_shadow(&run->store, index), data,
                           lathe_desc_count(&row->desc) *
                               lathe_dtype_bytes(lathe_params_value_dtype(&run->params, index)));
}

lathe_weight_sink lathe__weight_sink(lathe_weight_fill *fill)
{
    const lathe_weight_sink sink = {.place = place_row, .done = row_done, .arg = fill};
    return sink;
}

void lathe__weight_fill_fini(lathe_weight_fill *fill)
{
    free(fill->buffer);
    fill->buffer = NULL;
    fill->bytes = 0;
}

/* One row from the counter RNG, through the sink. */
static lathe_status random_row(lathe_weight_fill *fill, int32_t index, uint64_t seed)
{
    lathe_run *run = fill->run;
    const lathe_param *row = run->params.rows[index];
    const int64_t n = lathe_desc_count(&row->desc);
    void *data = NULL;
    int32_t dtype = LATHE_F32;
    LATHE_TRY(place_row(fill, index, row, &data, &dtype));
    if (dtype == LATHE_F32) {
        LATHE_TRY(lathe_param_init(row, seed, data));
    } else {
        float *wide = malloc((size_t)n * sizeof *wide);
        if (!wide)
            return lathe_error(LATHE_E_NOMEM, "no memory to make '%s'", row->name);
        lathe_status status = lathe_param_init(row, seed, wide);
        if (status == LATHE_OK)
            status = lathe_convert(data, dtype, wide, LATHE_F32, n);
        free(wide);
        LATHE_TRY(status);
    }
    return row_done(fill, index, row, data);
}

/* The frozen copies start as what the model is now. */
static lathe_status fill_reference(lathe_run *run)
{
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        if (!row->reference)
            continue;
        const int32_t from =
            lathe_params_find(&run->params, row->name + strlen(LATHE_REFERENCE_PREFIX));
        LATHE_TRY(lathe_move(&run->machine, lathe_store_value(&run->store, i),
                             lathe_store_value(&run->store, from),
                             lathe_desc_count(&row->desc) *
                                 lathe_dtype_bytes(lathe_params_value_dtype(&run->params, i))));
    }
    return LATHE_OK;
}

/* model.path is a checkpoint whose f32 masters are elsewhere. */
static lathe_status say_rounded(lathe_run *run)
{
    const char *masters = NULL;
    LATHE_TRY(
        lathe__state_rows_find(&run->arena, run->set.model_path, LATHE_ROWS_MASTERS, &masters));
    if (masters)
        lathe_log(
            LATHE_LOG_INFO,
            "%s: the weights are read as they were saved, rounded to %s; only resuming the run "
            "(checkpoint.resume) takes the fp32 masters, %s",
            run->set.model_path, lathe_precision_name(run->model.file_dtype), masters);
    return LATHE_OK;
}

static lathe_status load_folder(lathe_run *run, lathe_weight_fill *fill)
{
    lathe_safetensors *set = NULL;
    LATHE_TRY(lathe_safetensors_open(run->set.model_path, &set));
    const lathe_weight_sink sink = lathe__weight_sink(fill);
    lathe_status status = lathe_weights_load(set, &run->model, &run->params, &sink);
    if (status == LATHE_OK)
        status = lathe__model_file_origin(run, set);
    if (status == LATHE_OK)
        status = say_rounded(run);
    lathe_safetensors_close(set);
    return status;
}

lathe_status lathe__weights_check(lathe_run *run)
{
    lathe_safetensors *set = NULL;
    lathe_status status = lathe_safetensors_open(run->set.model_path, &set);
    if (status == LATHE_E_NOT_FOUND && lathe__checkpoint_brings_all(run))
        return LATHE_OK;
    LATHE_TRY(status);
    status = lathe_weights_check(set, &run->model, &run->params);
    lathe_safetensors_close(set);
    return status;
}

lathe_status lathe__run_weights(lathe_run *run)
{
    run->open.weights_wait = 0;
    lathe_weight_fill fill = {run, NULL, 0};
    lathe_status status = run->set.model_path ? load_folder(run, &fill) : LATHE_OK;
    for (int32_t i = 0; i < run->params.n && status == LATHE_OK; i++)
        if (!run->params.rows[i]->reference && (i >= run->params.n_model || !run->set.model_path))
            status = random_row(&fill, i, run->set.model_seed);
    if (status == LATHE_OK)
        status = fill_reference(run);
    if (status == LATHE_OK)
        status = lathe__average_begin(run);
    lathe__weight_fill_fini(&fill);
    return status;
}

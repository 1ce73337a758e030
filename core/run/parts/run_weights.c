/* Allocates a run's memory and fills its weights: from a folder, at random, or from a
 * checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "checkpoint/state/adapter_file.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/checkpoint_image.h"
#include "checkpoint/state/model_file.h"
#include "checkpoint/state/state_rows.h"
#include "exec/program/precision.h"
#include "exec/store/gathered.h"
#include "exec/store/row_norms.h"
#include "exec/store/singular_rows.h"
#include "exec/store/store_io.h"
#include "exec/store/token_rows_fill.h"
#include "exec/store/weight_fill.h"
#include "files/safetensors/convert.h"
#include "generate/generator.h"
#include "model/family/grown_rows.h"
#include "model/family/param_init.h"
#include "model/family/weights.h"
#include "run/decide/run_check.h"
#include "run/parts/iteration.h"
#include "run/parts/named_adapters.h"
#include "run/parts/reference_model.h"
#include "run/parts/rollout_noise.h"
#include "run/parts/run_parts.h"
#include "run/parts/run_ranks.h"
#include "run/parts/teacher.h"
#include "run/state/run_saved.h"
#include "run/state/run_state.h"

int64_t lathe__losses_bytes(const lathe_run *run)
{
    if (!lathe__run_has_step(run) || !lathe_machine_memory(&run->machine)->is_queued)
        return 0;
    return run->set.gradient_accumulation_steps * run->programs.losses_each *
           (int64_t)sizeof *run->programs.losses;
}

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
    if (run->programs.top.exec)
        LATHE_TRY(lathe_exec_place(run->programs.top.exec, &run->store, run->programs.arena));
    for (int32_t i = 0; i < run->programs.shorter.n; i++) {
        const lathe_short_programs *shorter = &run->programs.shorter;
        if (shorter->train[i].exec)
            LATHE_TRY(lathe_exec_place(shorter->train[i].exec, &run->store, run->programs.arena));
        if (shorter->eval[i].exec)
            LATHE_TRY(lathe_exec_place(shorter->eval[i].exec, &run->store, run->programs.arena));
    }
    if (run->programs.sampling.exec)
        LATHE_TRY(lathe_exec_place(run->programs.sampling.exec, &run->store, run->programs.arena));
    if (run->opt.update)
        LATHE_TRY(lathe_update_place(run->opt.update, run->programs.arena));
    if (run->generator)
        LATHE_TRY(lathe__run_place_generator(run));
    LATHE_TRY(lathe_image_place(lathe__run_saved(run)));
    LATHE_TRY(
        lathe_machine_alloc(&run->machine, LATHE_MEM_STAGING, lathe__losses_bytes(run), &memory));
    run->programs.losses = memory;
    LATHE_TRY(lathe__iteration_place(run));
    LATHE_TRY(lathe__noise_place(run));
    LATHE_TRY(lathe__run_place_buckets(run));
    run->placed = 1;
    return LATHE_OK;
}

/* Fills one row with its initial values: random numbers from the counter RNG, or row norms. */
static lathe_status random_row(lathe_weight_fill *fill, int32_t index, uint64_t seed)
{
    const lathe_weight_sink sink = lathe_weight_fill_sink(fill);
    const lathe_param *row = fill->params->rows[index];
    if (row->init == LATHE_INIT_ROW_NORMS || row->init == LATHE_INIT_COLUMN_NORMS)
        return lathe_row_norms_fill(fill->store, index);
    if (row->init == LATHE_INIT_TOKEN_ROWS || row->init == LATHE_INIT_TOKEN_MARKS)
        return lathe_token_rows_fill(fill->store, index);
    if (row->init >= LATHE_INIT_SINGULAR_A && row->init <= LATHE_INIT_LOFTQ_B)
        return LATHE_OK; /* lathe_singular_rows_fill and lathe_loftq_finish set them */
    const int64_t n = lathe_desc_count(&row->desc);
    void *data = NULL;
    int32_t dtype = LATHE_F32;
    LATHE_TRY(sink.place(fill, index, row, &data, &dtype));
    if (dtype == LATHE_F32) {
        LATHE_TRY(lathe_param_init(row, seed, data));
    } else {
        float *wide = malloc((size_t)n * sizeof *wide);
        if (wide == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory to make '%s'", row->name);
        lathe_status status = lathe_param_init(row, seed, wide);
        if (status == LATHE_OK)
            status = lathe_convert(data, dtype, wide, LATHE_F32, n);
        free(wide);
        LATHE_TRY(status);
    }
    return sink.done(fill, index, row, data);
}

lathe_status lathe__run_begin_row(lathe_run *run, int32_t index, uint64_t seed)
{
    lathe_weight_fill fill = {.store = &run->store, .params = &run->params};
    const lathe_status status = random_row(&fill, index, seed);
    lathe_weight_fill_fini(&fill);
    return status;
}

/* Logs a note if model.path is a checkpoint that stores the f32 masters in a separate file. */
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
    LATHE_TRY(lathe_model_config_weights(&run->model, run->set.model_path, &set));
    const lathe_weight_sink sink = lathe_weight_fill_sink(fill);
    lathe_status status = lathe_weights_load(set, &run->model, &run->params, &sink);
    if (status == LATHE_OK)
        status = lathe__model_file_origin(lathe__run_saved(run), set);
    if (status == LATHE_OK)
        status = say_rounded(run);
    lathe_safetensors_close(set);
    return status;
}

lathe_status lathe__weights_check(lathe_run *run)
{
    lathe_safetensors *set = NULL;
    lathe_status status = lathe_model_config_weights(&run->model, run->set.model_path, &set);
    if (status == LATHE_E_NOT_FOUND && lathe__checkpoint_brings_all(lathe__run_saved(run)))
        return LATHE_OK;
    LATHE_TRY(status);
    status = lathe_weights_check(set, &run->model, &run->params);
    lathe_safetensors_close(set);
    return status;
}

/* Whether the row begins with random values: it is not in the folder of model.path. */
static int begins_random(const lathe_run *run, const lathe_weight_fill *fill, int32_t i)
{
    const lathe_param *row = run->params.rows[i];
    if (row->reference || run->set.model_path == NULL)
        return !row->reference;
    return row->stage_head ? lathe_weight_fill_is_new(fill, i) : i >= run->params.n_model;
}

/* The rows with singular vectors that no file has later. */
static int32_t singular_of(const lathe_run *run)
{
    if (run->set.model_adapter != NULL)
        return LATHE_SINGULAR_DERIVED;
    return lathe__run_trains(run) ? LATHE_SINGULAR_ALL : LATHE_SINGULAR_LEADING;
}

lathe_status lathe__run_weights(lathe_run *run)
{
    run->checkpoints.weights_wait = 0;
    lathe_weight_fill fill = {.store = &run->store,
                              .params = &run->params,
                              .factors_follow =
                                  run->set.model_adapter != NULL || lathe__run_infers(run)};
    lathe_status status = run->set.model_path ? load_folder(run, &fill) : LATHE_OK;
    for (int32_t i = 0; i < run->params.n && status == LATHE_OK; i++)
        if (begins_random(run, &fill, i))
            status = random_row(&fill, i, run->set.model_seed);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_weight_fill_finish(&fill)) != LATHE_OK)
        goto out;
    if ((status = lathe_singular_rows_fill(&run->store, singular_of(run))) != LATHE_OK)
        goto out;
    if (run->parts.reference_adapter.component &&
        (status = lathe__reference_fill_adapted(run)) != LATHE_OK)
        goto out;
    if (run->set.model_adapter)
        status = lathe__adapter_file_begin(lathe__run_saved(run), run->set.model_adapter, 1);
    if (status != LATHE_OK)
        goto out;
    if (run->parts.reference_adapter.component == NULL &&
        (status = lathe__reference_fill(&run->store, 0)) != LATHE_OK)
        goto out;
    if ((status = lathe__named_adapters_load(run)) != LATHE_OK)
        goto out;
    if ((status = lathe__teacher_load(run)) != LATHE_OK)
        goto out;
    const lathe_averaging average = lathe__run_averaging(run);
    status = lathe_average_begin(&average);
out:
    lathe_weight_fill_fini(&fill);
    return status;
}

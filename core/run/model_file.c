/* The model's own file in a checkpoint. */
#include "run/model_file.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "model/param_init.h"
#include "model/weight_file.h"
#include "model/weights.h"
#include "run/checkpoint.h"
#include "run/weight_average.h"

/* ---- dtypes ---- */

/* Those of the tensors; what `set` lacks keeps what it has. */
static void take_dtypes(lathe_run *run, const lathe_safetensors *set)
{
    for (int32_t i = 0; i < run->params.n_model; i++) {
        const lathe_st_tensor *t = lathe_weights_find(set, &run->model, run->params.rows[i]->name);
        if (t)
            run->checkpoints.file.dtypes[i] = t->desc.dtype;
    }
    run->checkpoints.file.is_guessed = 0;
}

lathe_status lathe__model_file_plan(lathe_run *run)
{
    const int32_t asked = run->set.save_dtype;
    lathe_safetensors *set = NULL;
    run->checkpoints.file.dtypes = lathe_arena_alloc(
        &run->arena, (run->params.n_model + 1) * (int64_t)sizeof *run->checkpoints.file.dtypes);
    if (!run->checkpoints.file.dtypes)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < run->params.n_model; i++)
        run->checkpoints.file.dtypes[i] = asked == LATHE_SAVE_AUTO ? run->model.file_dtype : asked;
    run->checkpoints.file.is_guessed = 0;
    if (asked != LATHE_SAVE_AUTO || !run->set.model_path || !lathe__checkpoint_has_model(run))
        return LATHE_OK;
    run->checkpoints.file.is_guessed =
        1; /* a plan needs no weights; reading them says what is wrong with them */
    if (lathe_safetensors_open(run->set.model_path, &set) == LATHE_OK)
        take_dtypes(run, set);
    lathe_safetensors_close(set);
    return LATHE_OK;
}

static int32_t saved_dtype(const lathe_run *run, int32_t param)
{
    return run->checkpoints.file.dtypes[param];
}

int32_t lathe__model_file_rounds(const lathe_run *run, int32_t param)
{
    const int32_t dtype = param < run->params.n_model ? saved_dtype(run, param) : LATHE_F32;
    return run->params.rows[param]->trainable && lathe_dtype_bytes(dtype) < 4;
}

int32_t lathe__model_file_rounds_any(const lathe_run *run)
{
    for (int32_t i = 0; i < run->params.n_model; i++)
        if (lathe__model_file_rounds(run, i))
            return 1;
    return 0;
}

/* ---- where values come from ---- */

static int32_t has_frozen_rows(const lathe_run *run)
{
    for (int32_t i = 0; i < run->params.n_model; i++)
        if (!run->params.rows[i]->trainable)
            return 1;
    return 0;
}

lathe_status lathe__model_file_origin(lathe_run *run, const lathe_safetensors *set)
{
    lathe_weight_origin *made = NULL;
    if (run->checkpoints.file.is_guessed)
        take_dtypes(run, set);
    if (!lathe__checkpoint_has_model(run) || !has_frozen_rows(run))
        return LATHE_OK;
    LATHE_TRY(lathe_weight_origin_create(set, &run->model, &run->params,
                                         run->checkpoints.file.origin, &made));
    lathe_weight_origin_destroy(run->checkpoints.file.origin);
    run->checkpoints.file.origin = made;
    return LATHE_OK;
}

/* The job's make(): masters that the host cannot touch, and random numbers that nothing trained. */
typedef struct maker {
    const lathe_run *run;
    float *buffer;
    int64_t capacity; /* floats */
} maker;

static lathe_status make_values(void *arg, int32_t param, const float **out)
{
    maker *m = arg;
    const lathe_run *run = m->run;
    const lathe_param *row = run->params.rows[param];
    const int64_t n = lathe_desc_count(&row->desc);
    if (row->trainable) {
        const void *values = NULL;
        LATHE_TRY(lathe_download_whole(run->store.m, lathe_store_master(&run->store, param), 4 * n,
                                       &values));
        *out = values;
        return LATHE_OK;
    }
    if (n > m->capacity) {
        free(m->buffer);
        m->buffer = malloc((size_t)n * sizeof *m->buffer);
        m->capacity = m->buffer ? n : 0;
        if (!m->buffer)
            return lathe_error(LATHE_E_NOMEM, "no memory to make '%s'", row->name);
    }
    *out = m->buffer;
    return lathe_param_init(row, run->set.model_seed, m->buffer);
}

static lathe_status add_tensor(const lathe_run *run, int32_t param, lathe_weight_tensor *out)
{
    const lathe_param *row = run->params.rows[param];
    *out = (lathe_weight_tensor){.param = param, .dtype = saved_dtype(run, param)};
    if (row->trainable) {
        out->values = run->store.is_host ? lathe_store_master(&run->store, param) : NULL;
        return LATHE_OK;
    }
    if (lathe_weight_origin_dtype(run->checkpoints.file.origin, param) >= 0)
        out->origin = run->checkpoints.file.origin;
    else if (run->set.model_path)
        return lathe_error(LATHE_E_STATE, "'%s' does not train and was read from no file",
                           row->name);
    return LATHE_OK;
}

/* ---- writing and comparing ---- */

static void say_wide(void *arg, const char *name)
{
    (void)arg;
    lathe_log(LATHE_LOG_WARN,
              "'%s' holds numbers above 65504, which fp16 does not have: it is saved in fp32",
              name);
}

static void say_nothing(void *arg, const char *name)
{
    (void)arg, (void)name;
}

typedef lathe_status (*job_fn)(const lathe_run *run, const lathe_weight_job *job, const char *dir);

static lathe_status with_job(const lathe_run *run, const char *dir,
                             void (*report)(void *arg, const char *name), job_fn fn)
{
    maker m = {.run = run};
    lathe_weight_job job = {.params = &run->params, .make = make_values, .arg = &m};
    lathe_status status = lathe_weight_origin_check(run->checkpoints.file.origin);
    job.tensors = calloc((size_t)run->params.n_model + 1, sizeof *job.tensors);
    if (status == LATHE_OK && !job.tensors)
        status = lathe_error(LATHE_E_NOMEM, "no memory for %d tensors", run->params.n_model);
    for (int32_t i = 0; i < run->params.n_model && status == LATHE_OK; i++)
        status = add_tensor(run, i, &job.tensors[job.n++]);
    if (status == LATHE_OK)
        status = lathe_weight_file_widen(&job, report, NULL);
    if (status == LATHE_OK)
        status = fn(run, &job, dir);
    free(job.tensors);
    free(m.buffer);
    return status;
}

static lathe_status write_job(const lathe_run *run, const lathe_weight_job *job, const char *dir)
{
    lathe_model_config config = run->model; /* its texts are borrowed */
    const int32_t asked = run->set.save_dtype;
    config.file_dtype =
        lathe_weight_file_dtype(job, asked == LATHE_SAVE_AUTO ? config.file_dtype : asked);
    LATHE_TRY(lathe_model_config_save(&config, dir));
    return lathe_weight_file_write(job, dir, run->set.shard_bytes);
}

lathe_status lathe__model_file_write(const lathe_run *run, const char *dir)
{
    return with_job(run, dir, say_wide, write_job);
}

static lathe_status compare_job(const lathe_run *run, const lathe_weight_job *job, const char *dir)
{
    lathe_safetensors *set = NULL;
    (void)run;
    LATHE_TRY(lathe_safetensors_open(dir, &set));
    const lathe_status status = lathe_weight_file_compare(job, set);
    lathe_safetensors_close(set);
    return status;
}

lathe_status lathe__model_file_compare(const lathe_run *run, const char *dir)
{
    return with_job(run, dir, say_nothing, compare_job);
}

/* ---- sizes ---- */

int64_t lathe__checkpoint_disk_bytes(const lathe_run *run)
{
    const int32_t averages = run->store.average_bytes > 0;
    int64_t model = 0, adapter = 0, average = 0, masters = 0, slots = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        const int64_t n = lathe_desc_count(&row->desc);
        if (i < run->params.n_model && lathe__checkpoint_has_model(run))
            model += n * lathe_dtype_bytes(saved_dtype(run, i));
        else if (i >= run->params.n_model && !row->reference)
            adapter += 4 * n;
        masters += lathe__model_file_rounds(run, i) ? 4 * n : 0;
        average += row->trainable ? 4 * n : 0;
        for (int32_t k = 0; k < run->store.rows[i].n_slots; k++)
            slots += lathe_desc_bytes(&run->store.rows[i].slots[k].desc);
    }
    if (!averages)
        return model + adapter + masters + slots;
    if (!lathe__average_is_state(run) && !lathe__model_file_rounds_any(run))
        average = 0;
    return 2 * (model + adapter) + masters + slots + average;
}

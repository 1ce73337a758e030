/* Writes and compares the model file of a checkpoint. */
#include "checkpoint/state/model_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/state/adapter_file.h"
#include "checkpoint/state/checkpoint.h"
#include "exec/store/store_io.h"
#include "files/safetensors/convert.h"
#include "model/family/grown_rows.h"
#include "model/family/param_init.h"
#include "model/family/quant_source.h"
#include "model/family/tower_names.h"
#include "model/family/weight_file.h"
#include "model/family/weights.h"

/* Allowance for config.json, manifest.json and the other small files of a folder, each of which
 * takes whole blocks of 4 KiB; and for an entry of a safetensors header, without its name. */
enum { SMALL_FILES = 64 << 10, HEADER_ENTRY = 192 };

/* ---- dtypes ---- */

/* Takes the dtypes of the tensors in `set`; parameters that it lacks keep theirs. */
static void take_dtypes(const lathe_saved_state *saved, const lathe_safetensors *set)
{
    for (int32_t i = 0; i < saved->params->n_model; i++) {
        const lathe_st_tensor *t =
            lathe_weights_find(set, saved->model, saved->params->rows[i]->name);
        if (t != NULL && lathe_convert_takes(t->desc.dtype)) /* else codes, which are decoded */
            saved->checkpoints->file.dtypes[i] = t->desc.dtype;
    }
    saved->checkpoints->file.is_guessed = 0;
}

/* Bytes in a file of the tensors of other towers, with their entries in its header. */
static int64_t count_carried(const lathe_saved_state *saved, const lathe_safetensors *set)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        if (lathe_text_tower_carries(saved->model, t->name))
            bytes += lathe_desc_bytes(&t->desc) + HEADER_ENTRY + (int64_t)strlen(t->name);
    }
    return bytes;
}

lathe_status lathe__model_file_plan(const lathe_saved_state *saved)
{
    const int32_t asked = saved->set->save_dtype;
    lathe_safetensors *set = NULL;
    saved->checkpoints->file.dtypes =
        lathe_arena_alloc(saved->arena, (saved->params->n_model + 1) *
                                            (int64_t)sizeof *saved->checkpoints->file.dtypes);
    if (saved->checkpoints->file.dtypes == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < saved->params->n_model; i++)
        saved->checkpoints->file.dtypes[i] =
            asked == LATHE_SAVE_AUTO ? saved->model->file_dtype : asked;
    saved->checkpoints->file.is_guessed = 0;
    const int32_t is_auto = asked == LATHE_SAVE_AUTO, carries = saved->model->wrapper != NULL;
    saved->checkpoints->file.carried_bytes = 0;
    if ((!is_auto && !carries) || saved->model_path == NULL || !lathe__checkpoint_has_model(saved))
        return LATHE_OK;
    saved->checkpoints->file.is_guessed =
        is_auto; /* a plan needs no weights; an error is reported when they are read */
    const lathe_status opened = lathe_model_config_weights(saved->model, saved->model_path, &set);
    if (opened == LATHE_OK && is_auto)
        take_dtypes(saved, set);
    if (opened == LATHE_OK)
        saved->checkpoints->file.carried_bytes = count_carried(saved, set);
    lathe_safetensors_close(set);
    return LATHE_OK;
}

static int32_t saved_dtype(const lathe_saved_state *saved, int32_t param)
{
    return saved->checkpoints->file.dtypes[param];
}

int32_t lathe__model_file_rounds(const lathe_saved_state *saved, int32_t param)
{
    const int32_t dtype = param < saved->params->n_model ? saved_dtype(saved, param) : LATHE_F32;
    const lathe_param *row = saved->params->rows[param];
    return lathe_param_changes(row) && !row->in_adapter && lathe_dtype_bytes(dtype) < 4;
}

int32_t lathe__model_file_rounds_any(const lathe_saved_state *saved)
{
    for (int32_t i = 0; i < saved->params->n_model; i++)
        if (lathe__model_file_rounds(saved, i))
            return 1;
    return 0;
}

/* ---- where values come from ---- */

static int32_t has_frozen_rows(const lathe_saved_state *saved)
{
    for (int32_t i = 0; i < saved->params->n_model; i++)
        if (!lathe_param_changes(saved->params->rows[i]))
            return 1;
    return 0;
}

lathe_status lathe__model_file_origin(const lathe_saved_state *saved, const lathe_safetensors *set)
{
    lathe_weight_origin *made = NULL;
    if (saved->checkpoints->file.is_guessed)
        take_dtypes(saved, set);
    if (!lathe__checkpoint_has_model(saved) ||
        (!has_frozen_rows(saved) && saved->model->wrapper == NULL))
        return LATHE_OK;
    LATHE_TRY(lathe_weight_origin_create(set, saved->model, saved->params,
                                         saved->checkpoints->file.origin, &made));
    lathe_weight_origin_destroy(saved->checkpoints->file.origin);
    saved->checkpoints->file.origin = made;
    return LATHE_OK;
}

/* Produces tensors that have no file: masters in device memory or divided among ranks, and
 * untrained weights from the seed. */
typedef struct maker {
    const lathe_saved_state *saved;
    float *buffer;
    int64_t capacity; /* floats */
} maker;

/* lathe_piece_fn */
static lathe_status copy_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    memcpy((char *)arg + offset, data, (size_t)bytes);
    return LATHE_OK;
}

static lathe_status make_values(void *arg, int32_t param, const float **out)
{
    maker *m = arg;
    const lathe_saved_state *saved = m->saved;
    const lathe_param *row = saved->params->rows[param];
    const int64_t n = lathe_desc_count(&row->desc);
    if (lathe_param_changes(row) && lathe_store_is_whole(saved->store, param, LATHE_OF_PARAMETER)) {
        const void *values = NULL;
        LATHE_TRY(lathe_read_whole(saved->store->m, lathe_store_master(saved->store, param), 4 * n,
                                   &values));
        *out = values;
        return LATHE_OK;
    }
    if (n > m->capacity) {
        free(m->buffer);
        m->buffer = malloc((size_t)n * sizeof *m->buffer);
        m->capacity = m->buffer ? n : 0;
        if (m->buffer == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory to make '%s'", row->name);
    }
    *out = m->buffer;
    if (!lathe_param_changes(row))
        return lathe_param_init(row, saved->model_seed, m->buffer);
    return lathe_store_stream(saved->store, LATHE_FAMILY_MASTERS, param, 0, copy_piece, m->buffer);
}

static lathe_status add_tensor(const lathe_saved_state *saved, int32_t param,
                               lathe_weight_tensor *out)
{
    const lathe_param *row = saved->params->rows[param];
    *out = (lathe_weight_tensor){.param = param, .dtype = saved_dtype(saved, param)};
    if (lathe_param_changes(row)) {
        out->values =
            saved->store->is_host && lathe_store_is_whole(saved->store, param, LATHE_OF_PARAMETER)
                ? lathe_store_master(saved->store, param)
                : NULL;
        return LATHE_OK;
    }
    if (lathe_weight_origin_dtype(saved->checkpoints->file.origin, param) >= 0)
        out->origin = saved->checkpoints->file.origin;
    else if (saved->model_path)
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

typedef lathe_status (*job_fn)(const lathe_saved_state *saved, const lathe_weight_job *job,
                               const char *dir);

static lathe_status with_job(const lathe_saved_state *saved, const char *dir,
                             void (*report)(void *arg, const char *name), job_fn fn)
{
    maker m = {.saved = saved};
    lathe_weight_job job = {.params = saved->params,
                            .config = saved->model,
                            .carried = saved->checkpoints->file.origin,
                            .make = make_values,
                            .arg = &m};
    lathe_status status = lathe_weight_origin_check(saved->checkpoints->file.origin);
    job.tensors = calloc((size_t)saved->params->n_model + 1, sizeof *job.tensors);
    if (status != LATHE_OK)
        goto out;
    if (job.tensors == NULL) {
        status = lathe_error(LATHE_E_NOMEM, "no memory for %d tensors", saved->params->n_model);
        goto out;
    }
    for (int32_t i = 0; i < saved->params->n_model && status == LATHE_OK; i++)
        status = add_tensor(saved, i, &job.tensors[job.n++]);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_weight_file_widen(&job, report, NULL)) != LATHE_OK)
        goto out;
    status = fn(saved, &job, dir);
out:
    free(job.tensors);
    free(m.buffer);
    return status;
}

static lathe_status write_job(const lathe_saved_state *saved, const lathe_weight_job *job,
                              const char *dir)
{
    lathe_model_config config = *saved->model; /* its texts are borrowed */
    const int32_t asked = saved->set->save_dtype;
    char *plain = NULL;
    config.file_dtype =
        lathe_weight_file_dtype(job, asked == LATHE_SAVE_AUTO ? config.file_dtype : asked);
    /* every tensor of the job is plain; a quantization_config that was left over plain weights
     * would keep transformers from loading them */
    if (config.is_quantized)
        LATHE_TRY(lathe_weight_origin_check_plain(saved->checkpoints->file.origin));
    if (config.is_quantized)
        LATHE_TRY(lathe_quant_source_forget(config.json, &plain));
    config.json = plain != NULL ? plain : config.json;
    lathe_status status = lathe_model_config_save(&config, dir);
    free(plain);
    if (status == LATHE_OK)
        status = lathe_weight_file_write(job, dir, saved->set->shard_bytes);
    return status;
}

lathe_status lathe__model_file_write(const lathe_saved_state *saved, const char *dir)
{
    return with_job(saved, dir, say_wide, write_job);
}

static lathe_status compare_job(const lathe_saved_state *saved, const lathe_weight_job *job,
                                const char *dir)
{
    lathe_safetensors *set = NULL;
    (void)saved;
    LATHE_TRY(lathe_safetensors_open_all(dir, &set));
    const lathe_status status = lathe_weight_file_compare(job, set);
    lathe_safetensors_close(set);
    return status;
}

lathe_status lathe__model_file_compare(const lathe_saved_state *saved, const char *dir)
{
    return with_job(saved, dir, say_nothing, compare_job);
}

/* ---- sizes ---- */

/* Tensors in the files of a checkpoint. */
typedef struct tensor_bytes {
    int64_t model, adapter, average, masters, slots;
    int64_t headers; /* of all of these together */
} tensor_bytes;

static tensor_bytes count_tensors(const lathe_saved_state *saved)
{
    const int32_t has_model = lathe__checkpoint_has_model(saved);
    tensor_bytes t = {.model = has_model ? saved->checkpoints->file.carried_bytes : 0};
    for (int32_t i = 0; i < saved->params->n; i++) {
        const lathe_param *row = saved->params->rows[i];
        const int64_t n = lathe_desc_count(&row->desc);
        const int64_t entry = HEADER_ENTRY + (int64_t)strlen(row->name);
        if (i < saved->params->n_model && has_model) {
            t.model += n * lathe_dtype_bytes(saved_dtype(saved, i));
            t.headers += entry;
        }
        if (lathe__adapter_file_has(saved, i)) {
            t.adapter += 4 * n * (row->is_tied ? 2 : 1);
            t.headers += entry * (row->is_tied ? 2 : 1);
        }
        t.masters += lathe__model_file_rounds(saved, i) ? 4 * n : 0;
        t.average += row->trainable ? 4 * n : 0;
        t.headers += row->trainable ? 2 * entry : 0;
        for (int32_t k = 0; k < saved->store->rows[i].n_slots; k++) {
            t.slots += lathe_desc_bytes(&saved->store->rows[i].slots[k].desc);
            t.headers += entry;
        }
    }
    return t;
}

int64_t lathe__checkpoint_tensor_bytes(const lathe_saved_state *saved)
{
    tensor_bytes t = count_tensors(saved);
    if (!saved->store->has_averages)
        return t.model + t.adapter + t.masters + t.slots;
    if (!lathe_average_is_state(saved->store, &saved->parts->optimizer) &&
        !lathe__model_file_rounds_any(saved))
        t.average = 0;
    return 2 * (t.model + t.adapter) + t.masters + t.slots + t.average;
}

int64_t lathe__checkpoint_disk_bytes(const lathe_saved_state *saved)
{
    const int64_t headers = count_tensors(saved).headers;
    const int64_t folders = saved->store->has_averages ? 2 : 1; /* that of the averages */
    int64_t copied = 0;
    if (saved->data->tokenizer_dir &&
        lathe_tokenizer_files_bytes(saved->data->tokenizer_dir, &copied) != LATHE_OK)
        lathe_error_clear(); /* opening the tokenizer says what is wrong with it */
    copied += saved->data->given.text.bytes + saved->data->given.tools.bytes;
    return lathe__checkpoint_tensor_bytes(saved) + saved->stage_state->bytes +
           folders * (copied + headers + SMALL_FILES);
}

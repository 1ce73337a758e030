/* Writes the model of a GGUF file as a Hugging Face folder. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/new_folder.h"
#include "files/gguf/gguf_folder.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/expert_tensors.h"
#include "files/safetensors/st_writer.h"
#include "model/convert/gguf_convert.h"
#include "model/family/model_build.h"
#include "model/family/tower_names.h"
#include "model/family/weight_tensor.h"
#include "model/family/weights.h"
#include "tokenizer/json/tokenizer_file.h"

#define SHARD_BYTES ((int64_t)5 * 1000 * 1000 * 1000)

enum { PART = 1 << 20 }; /* elements of a tensor that are converted at a time */

typedef struct import {
    const char *path;
    lathe_safetensors *set;
    lathe_model_config config;
    lathe_params params;
    int32_t dtype; /* of the tensors to write; -1: each keeps its own */
    const lathe_work_watch *watch;
    int64_t n_done, n_all; /* elements of tensors */
    float *values;         /* [PART] */
    uint16_t *narrow;      /* [PART] */
} import;

static const lathe_st_tensor *tensor_of(const import *m, int32_t i)
{
    return lathe_weights_find(m->set, &m->config, m->params.rows[i]->name);
}

static int32_t dtype_of(const import *m, int32_t i)
{
    return m->dtype >= 0 ? m->dtype : tensor_of(m, i)->desc.dtype;
}

static lathe_status check_range(const lathe_st_tensor *t, const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (isfinite(x[k]) && fabsf(x[k]) >= 65520.0f)
            return lathe_error(LATHE_E_NUMERIC,
                               "%s: tensor %s holds %g, too large for f16: use bf16 or f32",
                               t->file, t->name, (double)x[k]);
    return LATHE_OK;
}

/* The number of tensors that the folder has for a parameter: one for each expert, or head. */
static int64_t parts_of(const lathe_param *row)
{
    return lathe_weights_is_by_expert(row) ? row->n_experts : 1;
}

/* Writes elements at .. at+n of a parameter, whose tensors are numbered from `first` on and have
 * `each` elements. */
static lathe_status write_part(lathe_st_writer *w, int64_t first, int64_t each, int64_t at,
                               int64_t n, const void *data, int64_t width)
{
    for (int64_t done = 0; done < n;) {
        const int64_t part = (at + done) / each, from = (at + done) % each;
        const int64_t len = each - from < n - done ? each - from : n - done;
        LATHE_TRY(lathe_st_writer_write(w, first + part, from * width,
                                        (const char *)data + done * width, len * width));
        done += len;
    }
    return LATHE_OK;
}

/* first: the number of the parameter's first tensor in the files. */
static lathe_status write_tensor(import *m, int32_t i, int64_t first, lathe_st_writer *w)
{
    const lathe_st_tensor *t = tensor_of(m, i);
    const int64_t n = lathe_desc_count(&t->desc);
    const int64_t cols = t->desc.rank > 0 ? t->desc.dims[t->desc.rank - 1] : 1;
    const int64_t most = PART / cols * cols > 0 ? PART / cols * cols : PART;
    const int32_t dtype = dtype_of(m, i);
    for (int64_t at = 0; at < n; at += most) {
        const int64_t part = n - at < most ? n - at : most;
        const void *data = m->values;
        LATHE_TRY(lathe_work_tell(m->watch, m->n_done, m->n_all));
        LATHE_TRY(lathe_st_read(t, at, part, m->values, LATHE_F32));
        if (dtype == LATHE_F16)
            LATHE_TRY(check_range(t, m->values, part));
        if (dtype != LATHE_F32) {
            LATHE_TRY(lathe_convert(m->narrow, dtype, m->values, LATHE_F32, part));
            data = m->narrow;
        }
        LATHE_TRY(write_part(w, first, n / parts_of(m->params.rows[i]), at, part, data,
                             lathe_dtype_bytes(dtype)));
        m->n_done += part;
    }
    return LATHE_OK;
}

static lathe_status add_tensors(import *m, int32_t i, lathe_st_writer *w)
{
    const lathe_param *row = m->params.rows[i];
    lathe_desc desc = lathe_weights_file_desc(row);
    desc.dtype = dtype_of(m, i);
    if (parts_of(row) == 1) {
        m->n_all += lathe_desc_count(&desc);
        return lathe_st_writer_add(w, row->name, &desc);
    }
    desc.dims[0] /= parts_of(row);
    for (int64_t e = 0; e < parts_of(row); e++) {
        char name[LATHE_TENSOR_NAME];
        if (lathe_expert_tensor_name(row->name, e, name, sizeof name) >= (int32_t)sizeof name)
            return lathe_error(LATHE_E_UNSUPPORTED, "%s: the name is too long", row->name);
        m->n_all += lathe_desc_count(&desc);
        LATHE_TRY(lathe_st_writer_add(w, name, &desc));
    }
    return LATHE_OK;
}

static lathe_status write_weights(import *m, const char *folder)
{
    lathe_st_writer *w = NULL;
    LATHE_TRY(lathe_st_writer_create(folder, "model", SHARD_BYTES, &w));
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < m->params.n && status == LATHE_OK; i++)
        status = add_tensors(m, i, w);
    if (status == LATHE_OK)
        status = lathe_st_writer_begin(w);
    int64_t first = 0;
    for (int32_t i = 0; i < m->params.n && status == LATHE_OK; i++) {
        status = write_tensor(m, i, first, w);
        first += parts_of(m->params.rows[i]);
    }
    if (status == LATHE_OK)
        status = lathe_safetensors_check(m->set);
    if (status == LATHE_OK)
        status = lathe_st_writer_finish(w);
    lathe_st_writer_destroy(w);
    return status;
}

static lathe_status fill_folder(import *m, const char *folder)
{
    m->values = malloc(PART * sizeof *m->values);
    m->narrow = malloc(PART * sizeof *m->narrow);
    if (m->values == NULL || m->narrow == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to convert tensors");
    LATHE_TRY(lathe_tokenizer_files_copy(m->path, folder));
    LATHE_TRY(write_weights(m, folder));
    m->config.file_dtype = m->dtype >= 0 ? m->dtype : m->config.file_dtype;
    return lathe_model_config_save(&m->config, folder);
}

static lathe_status write_folder(import *m, const char *folder, lathe_arena *arena)
{
    const char *beside = NULL;
    LATHE_TRY(lathe_new_folder_begin(arena, folder, &beside));
    return lathe_new_folder_end(fill_folder(m, beside), beside, folder);
}

/* Reads and checks everything except the values of the tensors, so that nothing is written for a
 * file that cannot be converted. */
static lathe_status open_file(import *m, const lathe_model_source *source)
{
    LATHE_TRY(lathe_model_config_load(source, m->path, &m->config));
    LATHE_TRY(lathe_model_params(&m->config, &m->params));
    LATHE_TRY(lathe_model_weights(m->path, &m->set));
    LATHE_TRY(lathe_weights_check(m->set, &m->config, &m->params));
    if (!lathe_model_has(m->path, "tokenizer.json"))
        return lathe_tokenizer_missing(m->path);
    return LATHE_OK;
}

lathe_status lathe_gguf_import(const lathe_model_source *source, const char *path,
                               const char *folder, int32_t dtype, const lathe_work_watch *watch)
{
import m = {.path = path, .dtype = dtype, .watch = watch };
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_params_init(&m.params, LATHE_F32);
    lathe_status status = lathe_new_folder_check(folder);
    if (status == LATHE_OK)
        status = open_file(&m, source);
    if (status == LATHE_OK)
        status = write_folder(&m, folder, &arena);
    free(m.values);
    free(m.narrow);
    lathe_safetensors_close(m.set);
    lathe_params_fini(&m.params);
    lathe_model_config_fini(&m.config);
    lathe_arena_fini(&arena);
    return status;
}

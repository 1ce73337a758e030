/* Converts a GGUF file to a Hugging Face folder. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "gguf/gguf_codec.h"
#include "gguf/gguf_config.h"
#include "gguf/gguf_convert.h"
#include "gguf/gguf_tokenizer.h"
#include "io/convert.h"
#include "io/st_writer.h"
#include "model/model_build.h"

#define SHARD_BYTES ((int64_t)5 * 1000 * 1000 * 1000)

typedef struct import {
    const lathe_gguf_family *family;
    lathe_gguf *file;
    lathe_model_config config;
    lathe_params params;
    lathe_arena arena;
    const lathe_gguf_tensor **tensors; /* [params.n] */
    int32_t *dtypes;                   /* [params.n] */
    int32_t dtype;                     /* of matrices */
} import;

/* ---- the configuration ---- */

static lathe_status find_family(import *m)
{
    const char *arch;
    int64_t n;
    LATHE_TRY(lathe_gguf_text(m->file, "general.architecture", &arch, &n));
    if (arch == NULL)
        return lathe_error(LATHE_E_CONFIG, "%s: the key general.architecture is missing",
                           lathe_gguf_path(m->file));
    m->family = lathe_gguf_family_of_arch(arch, n);
    if (m->family != NULL)
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED, "%s: the architecture is \"%.*s\"; Lathe converts %s",
                       lathe_gguf_path(m->file), (int)(n < 40 ? n : 40), arch,
                       lathe_gguf_families());
}

static lathe_status read_config(import *m, const lathe_model_source *source)
{
    json_t *object = NULL;
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    LATHE_TRY(lathe_gguf_config_read(m->family, m->file, &object));
    lathe_status status = lathe_gguf_tokenizer_read(m->file, NULL, object);
    char *text = json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (status == LATHE_OK && text == NULL)
        status = lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
    if (status == LATHE_OK)
        status = lathe_model_config_parse(source, lathe_gguf_path(m->file), text,
                                          (int64_t)strlen(text), 0, &m->config);
    if (text != NULL)
        release(text);
    return status;
}

/* ---- tensors ---- */

static lathe_status find_tensor(import *m, int32_t i)
{
    const lathe_param *row = m->params.rows[i];
    const char *name;
    LATHE_TRY(lathe_gguf_name(&m->config, row->name, &m->arena, &name));
    const lathe_gguf_tensor *t = lathe_gguf_find(m->file, name);
    if (t == NULL)
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no tensor %s, which its keys ask for",
                           lathe_gguf_path(m->file), name);
    if (t->rank != row->desc.rank || t->dims[0] != row->desc.dims[0] ||
        t->dims[1] != row->desc.dims[1])
        return lathe_error(LATHE_E_SHAPE,
                           "%s: tensor %s is %lld x %lld, its keys ask for %lld x %lld",
                           lathe_gguf_path(m->file), name, (long long)t->rows, (long long)t->cols,
                           (long long)(row->desc.rank > 1 ? row->desc.dims[0] : 1),
                           (long long)row->desc.dims[row->desc.rank - 1]);
    m->tensors[i] = t;
    return LATHE_OK;
}

static int is_factors(const char *name)
{
    return strcmp(name, "rope_freqs.weight") == 0 ||
           strcmp(name, "rope_factors_long.weight") == 0 ||
           strcmp(name, "rope_factors_short.weight") == 0;
}

/* Refuses a tensor that the model does not have. */
static lathe_status check_all_used(const import *m)
{
    for (int64_t i = 0; i < lathe_gguf_count(m->file); i++) {
        const lathe_gguf_tensor *t = lathe_gguf_at(m->file, i);
        int used = is_factors(t->name);
        for (int32_t k = 0; k < m->params.n && !used; k++)
            used = m->tensors[k] == t;
        if (!used)
            return lathe_error(LATHE_E_UNSUPPORTED,
                               "%s: tensor %s is not part of a model of type %s",
                               lathe_gguf_path(m->file), t->name, m->config.model_type);
    }
    return LATHE_OK;
}

static lathe_status find_tensors(import *m)
{
    m->tensors = calloc((size_t)m->params.n + 1, sizeof *m->tensors);
    m->dtypes = calloc((size_t)m->params.n + 1, sizeof *m->dtypes);
    if (m->tensors == NULL || m->dtypes == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a list of tensors");
    for (int32_t i = 0; i < m->params.n; i++)
        LATHE_TRY(find_tensor(m, i));
    return check_all_used(m);
}

/* The values of a tensor as the folder has them, f32, malloc'ed. */
static lathe_status values_of(const import *m, int32_t i, float **out)
{
    const lathe_gguf_tensor *t = m->tensors[i];
    const int32_t change = lathe_gguf_change(m->family, m->params.rows[i]->name);
    const int64_t n = t->rows * t->cols;
    float *values = malloc((size_t)n * sizeof *values);
    *out = values;
    if (values == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to decode tensor %s", t->name);
    if (change == LATHE_GGUF_ROTATED && t->rank > 1) {
        for (int64_t r = 0; r < t->rows; r++)
            lathe_gguf_decode(t->type, t->data + r * lathe_gguf_row_bytes(t->type, t->cols),
                              t->cols,
                              values + lathe_gguf_rotated_row(r, m->config.head_dim) * t->cols);
        return LATHE_OK;
    }
    lathe_gguf_decode_all(t->type, t->data, n, values);
    if (change == LATHE_GGUF_ROTATED) {
        float *turned = malloc((size_t)n * sizeof *turned);
        if (turned == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory to decode tensor %s", t->name);
        for (int64_t r = 0; r < n; r++)
            turned[lathe_gguf_rotated_row(r, m->config.head_dim)] = values[r];
        free(values);
        *out = turned;
    }
    for (int64_t k = 0; k < n && change == LATHE_GGUF_PLUS_ONE; k++)
        values[k] -= 1.0f;
    return LATHE_OK;
}

/* The dtype of the matrices, if they have one; else F32. */
static int32_t common_dtype(const import *m)
{
    int32_t type = -1;
    for (int32_t i = 0; i < m->params.n; i++) {
        if (m->tensors[i]->rank < 2)
            continue;
        if (type >= 0 && m->tensors[i]->type->type != type)
            return LATHE_F32;
        type = m->tensors[i]->type->type;
    }
    return type == LATHE_GGUF_BF16 ? LATHE_BF16 : type == LATHE_GGUF_F16 ? LATHE_F16 : LATHE_F32;
}

/* 1: every value stays what it is in the dtype. */
static int is_exact(const float *x, int64_t n, int32_t dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float y = dtype == LATHE_BF16 ? lathe_bf16_to_f32(lathe_f32_to_bf16(x[i]))
                                            : lathe_f16_to_f32(lathe_f32_to_f16(x[i]));
        uint32_t before, after; /* as bits: -0 and NaN count as values of their own */
        memcpy(&before, &x[i], sizeof before);
        memcpy(&after, &y, sizeof after);
        if (before != after)
            return 0;
    }
    return 1;
}

static lathe_status choose_dtypes(import *m, int32_t dtype)
{
    m->dtype = dtype >= 0 ? dtype : common_dtype(m);
    for (int32_t i = 0; i < m->params.n; i++) {
        const lathe_gguf_tensor *t = m->tensors[i];
        m->dtypes[i] = m->dtype;
        if (dtype >= 0 || m->dtype == LATHE_F32 || t->rank > 1)
            continue;
        float *values;
        const lathe_status status = values_of(m, i, &values);
        if (status == LATHE_OK && !is_exact(values, t->cols, m->dtype))
            m->dtypes[i] = LATHE_F32;
        free(values);
        LATHE_TRY(status);
    }
    return LATHE_OK;
}

static lathe_status write_tensor(const import *m, int32_t i, lathe_st_writer *w)
{
    float *values = NULL;
    const int64_t n = m->tensors[i]->rows * m->tensors[i]->cols;
    const int32_t dtype = m->dtypes[i];
    lathe_status status = values_of(m, i, &values);
    for (int64_t k = 0; k < n && status == LATHE_OK && dtype == LATHE_F16; k++)
        if (isfinite(values[k]) && fabsf(values[k]) >= 65520.0f)
            status = lathe_error(LATHE_E_NUMERIC,
                                 "%s: tensor %s holds %g, too large for f16: use bf16 or f32",
                                 lathe_gguf_path(m->file), m->tensors[i]->name, (double)values[k]);
    void *data = values, *narrow = NULL;
    if (status == LATHE_OK && dtype != LATHE_F32) {
        data = narrow = malloc((size_t)n * 2);
        status = narrow != NULL ? lathe_convert(narrow, dtype, values, LATHE_F32, n)
                                : lathe_error(LATHE_E_NOMEM, "no memory to convert a tensor");
    }
    if (status == LATHE_OK)
        status = lathe_st_writer_write(w, i, 0, data, n * lathe_dtype_bytes(dtype));
    free(narrow);
    free(values);
    return status;
}

static lathe_status write_weights(const import *m, const char *folder)
{
    lathe_st_writer *w = NULL;
    LATHE_TRY(lathe_st_writer_create(folder, "model", SHARD_BYTES, &w));
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < m->params.n && status == LATHE_OK; i++) {
        lathe_desc desc = m->params.rows[i]->desc;
        desc.dtype = m->dtypes[i];
        status = lathe_st_writer_add(w, m->params.rows[i]->name, &desc);
    }
    if (status == LATHE_OK)
        status = lathe_st_writer_begin(w);
    for (int32_t i = 0; i < m->params.n && status == LATHE_OK; i++)
        status = write_tensor(m, i, w);
    if (status == LATHE_OK)
        status = lathe_gguf_check(m->file);
    if (status == LATHE_OK)
        status = lathe_st_writer_finish(w);
    lathe_st_writer_destroy(w);
    return status;
}

/* config.json is written last: a folder without it is no model. */
static lathe_status write_folder(import *m, const char *folder)
{
    LATHE_TRY(lathe_dir_create(folder));
    LATHE_TRY(lathe_gguf_tokenizer_read(m->file, folder, NULL));
    LATHE_TRY(write_weights(m, folder));
    m->config.file_dtype = m->dtype;
    return lathe_model_config_save(&m->config, folder);
}

lathe_status lathe_gguf_import(const lathe_model_source *source, const char *path,
                               const char *folder, int32_t dtype)
{
import m = {.dtype = dtype };
    const char *config = lathe_path_join(&m.arena, folder, "config.json");
    lathe_status status = config != NULL ? LATHE_OK : LATHE_E_NOMEM;
    lathe_params_init(&m.params, LATHE_F32);
    if (status == LATHE_OK && lathe_path_exists(config))
        status =
            lathe_error(LATHE_E_CONFIG, "%s exists; remove it, or choose another folder", config);
    if (status == LATHE_OK)
        status = lathe_gguf_open(path, &m.file);
    if (status == LATHE_OK)
        status = find_family(&m);
    if (status == LATHE_OK)
        status = read_config(&m, source);
    if (status == LATHE_OK)
        status = lathe_model_params(&m.config, &m.params);
    if (status == LATHE_OK)
        status = find_tensors(&m);
    if (status == LATHE_OK)
        status = choose_dtypes(&m, dtype);
    if (status == LATHE_OK)
        status = write_folder(&m, folder);
    free(m.tensors);
    free(m.dtypes);
    lathe_params_fini(&m.params);
    lathe_model_config_fini(&m.config);
    lathe_gguf_close(m.file);
    lathe_arena_fini(&m.arena);
    return status;
}

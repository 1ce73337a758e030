/* The tensors of a GGUF file as the tensors of a folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/gguf/gguf_codec.h"
#include "files/gguf/gguf_config.h"
#include "files/gguf/gguf_folder.h"

/* How one tensor differs from that of the folder. */
typedef struct coding {
    const lathe_gguf_type *type;
    int32_t change;   /* LATHE_GGUF_SAME, LATHE_GGUF_ROTATED, LATHE_GGUF_PLUS_ONE, _BY_HEAD */
    int32_t head_dim; /* rows of a head, if ROTATED or BY_HEAD */
    int32_t heads, kv_heads; /* if BY_HEAD */
} coding;

typedef struct tensors {
    lathe_gguf *file;
    const lathe_gguf_family *family;
    lathe_arena arena;
    coding *codings;       /* [n] */
    lathe_st_tensor *list; /* [n] */
    int64_t n, head_dim, heads, kv_heads, n_layers;
} tensors;

/* The row of a ROTATED or BY_HEAD tensor that is row `row` of the folder's: the inverse of
 * lathe_gguf_folder_row. */
static int64_t stored_row(int64_t row, const coding *c)
{
    const int64_t head_dim = c->head_dim;
    if (c->change == LATHE_GGUF_BY_HEAD)
        return lathe_gguf_by_head_stored(row, c->heads, c->kv_heads, head_dim);
    const int64_t in_head = row % head_dim, half = head_dim / 2;
    return row - in_head + in_head % half * 2 + in_head / half;
}

static int has_other_rows(const coding *c)
{
    return c->change == LATHE_GGUF_ROTATED || c->change == LATHE_GGUF_BY_HEAD;
}

/* A vector of a layer with rows in another order: its bias. */
static lathe_status decode_bias(const lathe_st_tensor *t, const coding *c, int64_t n, float *out)
{
    float *stored = malloc((size_t)n * sizeof *stored);
    if (stored == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory to decode %s", t->file, t->name);
    lathe_gguf_decode(c->type, t->data, n, stored);
    for (int64_t i = 0; i < n; i++)
        out[i] = stored[stored_row(i, c)];
    free(stored);
    return LATHE_OK;
}

/* lathe_st_decode_fn */
static lathe_status decode(const lathe_st_tensor *t, int64_t begin, int64_t n, float *out)
{
    const coding *c = t->coding;
    const int64_t cols = t->desc.dims[t->desc.rank - 1];
    const int64_t row_bytes = lathe_gguf_row_bytes(c->type, cols);
    const char *data = t->data;
    if (has_other_rows(c) && t->desc.rank == 1)
        return decode_bias(t, c, cols, out);
    if (has_other_rows(c)) {
        for (int64_t r = 0; r < n; r++)
            lathe_gguf_decode(c->type, data + stored_row(begin + r, c) * row_bytes, cols,
                              out + r * cols);
        return LATHE_OK;
    }
    lathe_gguf_decode_all(c->type, data + begin * row_bytes, n * cols, out);
    for (int64_t k = 0; k < n * cols && c->change == LATHE_GGUF_PLUS_ONE; k++)
        out[k] -= 1.0f;
    return LATHE_OK;
}

static int is_factors(const char *name)
{
    return strcmp(name, "rope_freqs.weight") == 0 ||
           strcmp(name, "rope_factors_long.weight") == 0 ||
           strcmp(name, "rope_factors_short.weight") == 0;
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

/* The dtype of a vector: that of the matrices, or F32. */
static lathe_status vector_dtype(lathe_st_tensor *t)
{
    const int64_t n = t->desc.dims[0];
    if (t->desc.dtype == LATHE_F32)
        return LATHE_OK;
    float *values = calloc((size_t)n, sizeof *values);
    if (values == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory to decode %s", t->file, t->name);
    const lathe_status status = decode(t, 0, 1, values);
    if (status == LATHE_OK && !is_exact(values, n, t->desc.dtype))
        t->desc.dtype = LATHE_F32;
    free(values);
    return status;
}

static lathe_status add(tensors *m, const lathe_gguf_tensor *t, int32_t dtype)
{
    lathe_st_tensor *made = &m->list[m->n];
    coding *c = &m->codings[m->n];
    const char *name;
    LATHE_TRY(lathe_gguf_folder_name(m->family, t->name, &m->arena, &name));
    if (name == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: tensor %s is not part of a model of type %s",
                           lathe_gguf_path(m->file), t->name, m->family->model_type);
    *c = (coding){t->type, lathe_gguf_change(m->family, name), (int32_t)m->head_dim,
                  (int32_t)m->heads, (int32_t)m->kv_heads};
    *made = (lathe_st_tensor){.name = name,
                              .file = lathe_gguf_path(m->file),
                              .data = t->data,
                              .desc = {.dtype = dtype, .rank = t->rank},
                              .decode = decode,
                              .coding = c};
    for (int32_t i = 0; i < LATHE_MAX_RANK; i++)
        made->desc.dims[i] = t->dims[i];
    if (t->rank == 3) { /* of all experts: their matrices one below the other */
        made->desc = lathe_desc_2d(dtype, t->rows, t->cols);
    } else if (t->rank == 1 && lathe_gguf_is_flat(t->name)) {
        made->desc = lathe_desc_2d(dtype, 1, t->cols);
    }
    if (strstr(name, "_layernorm.norms.") != NULL) { /* the heads' norms, one after the other */
        made->desc.rank = 1;
        made->desc.dims[0] = t->rows * t->cols;
        for (int32_t i = 1; i < LATHE_MAX_RANK; i++)
            made->desc.dims[i] = 1;
    }
    if (c->change == LATHE_GGUF_BY_HEAD &&
        made->desc.dims[0] != (m->heads + 2 * m->kv_heads) * m->head_dim)
        return lathe_error(LATHE_E_SHAPE,
                           "%s: tensor %s has %lld rows, expected those of %lld heads of %lld and "
                           "of two times %lld",
                           lathe_gguf_path(m->file), t->name, (long long)made->desc.dims[0],
                           (long long)m->heads, (long long)m->head_dim, (long long)m->kv_heads);
    if (c->change == LATHE_GGUF_ROTATED && t->dims[0] % m->head_dim != 0)
        return lathe_error(LATHE_E_SHAPE,
                           "%s: tensor %s has %lld rows, no multiple of heads of "
                           "%lld",
                           lathe_gguf_path(m->file), t->name, (long long)t->dims[0],
                           (long long)m->head_dim);
    if (made->desc.rank == 1)
        LATHE_TRY(vector_dtype(made));
    m->n++;
    return LATHE_OK;
}

/* The numbers of xIELU as the tensors that folders have for each layer, in the matrices' dtype
 * where that loses nothing. */
static lathe_status add_xielu(tensors *m, int32_t dtype)
{
    for (int32_t k = 0; k < LATHE_GGUF_N_XIELU; k++) {
        int32_t rank;
        char key[96];
        const lathe_gguf_entry *numbers;
        const char *name = lathe_gguf_xielu(k, &rank);
        (void)snprintf(key, sizeof key, "xielu.%s", name);
        LATHE_TRY(lathe_gguf_array(m->file, key, LATHE_GGUF_FLOAT, &numbers));
        if (numbers == NULL || numbers->n != m->n_layers)
            return lathe_error(LATHE_E_CONFIG, "%s: the key %s must have a number for each layer",
                               lathe_gguf_path(m->file), key);
        for (int64_t i = 0; i < m->n_layers; i++) {
            float value;
            void *kept = lathe_arena_alloc(&m->arena, (int64_t)sizeof value);
            const char *full = lathe_arena_printf(&m->arena, "model.layers.%lld.mlp.act_fn.%s",
                                                  (long long)i, name);
            if (kept == NULL || full == NULL)
                return LATHE_E_NOMEM;
            memcpy(&value, numbers->data + i * (int64_t)sizeof value, sizeof value);
            const int32_t as = dtype == LATHE_F32 || is_exact(&value, 1, dtype) ? dtype : LATHE_F32;
            const uint16_t half =
                as == LATHE_BF16 ? lathe_f32_to_bf16(value) : lathe_f32_to_f16(value);
            if (as == LATHE_F32)
                memcpy(kept, &value, sizeof value);
            else
                memcpy(kept, &half, sizeof half);
            m->list[m->n++] = (lathe_st_tensor){.name = full,
                                                .file = lathe_gguf_path(m->file),
                                                .data = kept,
                                                .desc = {as, rank, {1, 1, 1, 1}}};
        }
    }
    return LATHE_OK;
}

/* A layer of multi-token prediction, which no model computes. */
static int is_predicted(const tensors *m, const char *name)
{
    return m->family->experts != NULL && strncmp(name, "blk.", 4) == 0 &&
           strtoll(name + 4, NULL, 10) >= m->n_layers;
}

static lathe_status add_all(tensors *m)
{
    const int64_t n = lathe_gguf_count(m->file);
    const int64_t made = m->family->uses_xielu ? LATHE_GGUF_N_XIELU * m->n_layers : 0;
    const int32_t dtype = lathe_gguf_dtype(m->file);
    m->codings = calloc((size_t)n + 1, sizeof *m->codings);
    m->list = calloc((size_t)(n + made) + 1, sizeof *m->list);
    if (m->codings == NULL || m->list == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for its tensors",
                           lathe_gguf_path(m->file));
    for (int64_t i = 0; i < n; i++)
        if (!is_factors(lathe_gguf_at(m->file, i)->name) &&
            !is_predicted(m, lathe_gguf_at(m->file, i)->name))
            LATHE_TRY(add(m, lathe_gguf_at(m->file, i), dtype));
    return m->family->uses_xielu ? add_xielu(m, dtype) : LATHE_OK;
}

/* The heads, and the rows of a head of q and k. */
static lathe_status read_head(tensors *m)
{
    json_t *config = NULL;
    char key[96];
    LATHE_TRY(lathe_gguf_config_read(m->family, m->file, &config));
    const int64_t heads = json_integer_value(json_object_get(config, "num_attention_heads"));
    const int64_t width = json_integer_value(json_object_get(config, "hidden_size"));
    const int64_t n_layers = json_integer_value(json_object_get(config, "num_hidden_layers"));
    const json_t *dim = json_object_get(config, "head_dim");
    m->head_dim = dim != NULL ? json_integer_value(dim) : width / heads;
    json_decref(config);
    m->heads = heads;
    m->n_layers = n_layers;
    LATHE_TRY(lathe_gguf_int(m->file,
                             lathe__gguf_key(m->family, "attention.head_count_kv", key, sizeof key),
                             1, INT32_MAX, heads, &m->kv_heads));
    if (m->kv_heads > heads || heads % m->kv_heads != 0)
        return lathe_error(LATHE_E_CONFIG, "%s: the key %s is %lld; expected a divisor of %lld",
                           lathe_gguf_path(m->file), key, (long long)m->kv_heads, (long long)heads);
    if (m->head_dim >= 2 && (m->head_dim % 2 == 0 || !m->family->permutes))
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "%s: heads of %lld channels; expected an even number",
                       lathe_gguf_path(m->file), (long long)m->head_dim);
}

/* ---- lathe_st_owner ---- */

static lathe_status check(const void *arg)
{
    const tensors *m = arg;
    return lathe_gguf_check(m->file);
}

static void close_all(void *arg)
{
    tensors *m = arg;
    lathe_gguf_close(m->file);
    lathe_arena_fini(&m->arena);
    free(m->codings);
    free(m->list);
    free(m);
}

lathe_status lathe_gguf_tensors(lathe_gguf *file, lathe_safetensors **out)
{
    tensors *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m == NULL) {
        lathe_gguf_close(file);
        return lathe_error(LATHE_E_NOMEM, "no memory for the tensors of a GGUF file");
    }
    m->file = file;
    const lathe_st_owner owner = {m, check, close_all};
    lathe_status status = lathe_gguf_family_read(file, &m->family);
    if (status != LATHE_OK)
        goto out;
    if ((status = read_head(m)) != LATHE_OK)
        goto out;
    if ((status = add_all(m)) != LATHE_OK)
        goto out;
    status = lathe_safetensors_make(lathe_gguf_path(file), m->list, m->n, &owner, out);
out:
    if (status != LATHE_OK)
        close_all(m);
    return status;
}

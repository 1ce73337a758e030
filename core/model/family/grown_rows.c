/* Adds rows to the embedding and the head of a set of weights. */
#include "model/family/grown_rows.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/convert.h"
#include "lathe/rng.h"
#include "model/family/weight_tensor.h"

#define NOISE 1e-9 /* share of the rows' covariance, as in transformers */

enum { MAX_GROWN = 3 };

struct grown_set;

/* A tensor with a row for each token. */
typedef struct grown_tensor {
    struct grown_set *of;
    const lathe_st_tensor *tensor; /* as it is in the folder */
    int64_t cols;
    uint64_t stream;          /* of the noise; tensors that are one matrix have the same */
    double *mean, *deviation; /* [cols] of the old rows; NULL: not measured yet */
} grown_tensor;

typedef struct grown_set {
    lathe_safetensors *base; /* held */
    lathe_row_growth growth;
    int32_t *fresh; /* a copy */
    grown_tensor tensors[MAX_GROWN];
    int32_t n;
    pthread_mutex_t lock; /* of the measuring: tensors are read by any thread */
} grown_set;

int64_t lathe_grown_row_count(int64_t vocab, int64_t n_tokens, int64_t multiple_of)
{
    const int64_t rows = n_tokens > vocab ? n_tokens : vocab, m = multiple_of > 1 ? multiple_of : 1;
    return (rows + m - 1) / m * m;
}

lathe_status lathe_fresh_rows(const int32_t *ids, int64_t n, int64_t n_tokens, lathe_arena *arena,
                              lathe_row_growth *out)
{
    int32_t *fresh = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *fresh);
    out->n_fresh = 0;
    out->fresh = fresh;
    if (fresh == NULL)
        return lathe_error(LATHE_E_NOMEM, "rows of new tokens");
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= n_tokens && ids[i] < out->rows_before)
            fresh[out->n_fresh++] = ids[i];
    return LATHE_OK;
}

/* ---- values ---- */

/* Mean and deviation of each column, over all rows. */
static lathe_status measure(grown_tensor *g)
{
    const int64_t rows = g->of->growth.rows_before, cols = g->cols;
    const int n_passes = g->of->growth.init == LATHE_GROWTH_NOISE ? 2 : 1;
    float *row = malloc((size_t)cols * sizeof *row);
    double *mean = calloc((size_t)cols, sizeof *mean),
           *deviation = calloc((size_t)cols, sizeof *deviation);
    lathe_status status = row && mean && deviation
                              ? LATHE_OK
                              : lathe_error(LATHE_E_NOMEM, "the mean of %s", g->tensor->name);
    for (int pass = 0; pass < n_passes && status == LATHE_OK; pass++) {
        double *sum = pass ? deviation : mean;
        for (int64_t i = 0; i < rows && status == LATHE_OK; i++) {
            status = lathe_st_read(g->tensor, i * cols, cols, row, LATHE_F32);
            for (int64_t j = 0; j < cols && status == LATHE_OK; j++) {
                const double x = pass ? (double)row[j] - mean[j] : (double)row[j];
                sum[j] += pass ? x * x : x;
            }
        }
        for (int64_t j = 0; j < cols && status == LATHE_OK; j++)
            sum[j] = pass ? sqrt(sum[j] / (double)rows) : sum[j] / (double)rows;
    }
    free(row);
    if (status != LATHE_OK) {
        free(mean);
        free(deviation);
        return status;
    }
    g->mean = mean;
    g->deviation = deviation;
    return LATHE_OK;
}

/* Measures the tensor at its first new row: who reads only headers does not wait for it. */
static lathe_status measure_once(grown_tensor *g)
{
    (void)pthread_mutex_lock(&g->of->lock);
    const lathe_status status = g->mean == NULL ? measure(g) : LATHE_OK;
    (void)pthread_mutex_unlock(&g->of->lock);
    return status;
}

/* Row i as `init` says; the noise depends on the seed, the tensor's stream and the element. */
static void new_row(const grown_tensor *g, int64_t i, float *out)
{
    const lathe_row_growth *growth = &g->of->growth;
    for (int64_t j = 0; j < g->cols; j++) {
        double x = g->mean[j];
        if (growth->init == LATHE_GROWTH_NOISE) {
            const lathe_u32x4 w =
                lathe_rng_block(growth->seed, 0, g->stream, (uint64_t)(i * g->cols + j));
            const double u = lathe_uniform_f64(w.v[0], w.v[1]),
                         v = lathe_uniform_f64(w.v[2], w.v[3]);
            x += sqrt(NOISE) * g->deviation[j] * sqrt(-2.0 * log(1.0 - u)) *
                 cos(6.283185307179586 * v);
        }
        out[j] = (float)x;
    }
}

static int is_fresh(const lathe_row_growth *growth, int64_t row)
{
    if (row >= growth->rows_before)
        return 1;
    for (int64_t i = 0; i < growth->n_fresh; i++)
        if (growth->fresh[i] == row)
            return 1;
    return 0;
}

/* Reads a row in the dtype of the file, as f32: the tensor's dtype holds it exactly. */
static lathe_status read_row(grown_tensor *g, int64_t i, void *narrow, float *out)
{
    const int32_t dtype = g->tensor->desc.dtype;
    if (!is_fresh(&g->of->growth, i))
        return lathe_st_read(g->tensor, i * g->cols, g->cols, out, LATHE_F32);
    LATHE_TRY(measure_once(g));
    new_row(g, i, out);
    LATHE_TRY(lathe_convert(narrow, dtype, out, LATHE_F32, g->cols));
    return lathe_convert(out, LATHE_F32, narrow, dtype, g->cols);
}

/* lathe_st_decode_fn. The bias of a head is one row of as many elements as there are tokens. */
static lathe_status decode(const lathe_st_tensor *t, int64_t begin, int64_t n, float *out)
{
    grown_tensor *g = (grown_tensor *)(uintptr_t)t->coding;
    const int64_t per = t->desc.dims[t->desc.rank - 1] / g->cols;
    void *narrow = malloc((size_t)g->cols * sizeof(float));
    if (narrow == NULL)
        return lathe_error(LATHE_E_NOMEM, "rows of %s", t->name);
    lathe_status status = LATHE_OK;
    for (int64_t i = begin * per; i < (begin + n) * per && status == LATHE_OK; i++)
        status = read_row(g, i, narrow, out + (i - begin * per) * g->cols);
    free(narrow);
    return status;
}

/* ---- the set ---- */

static lathe_status check_set(const void *arg)
{
    const grown_set *s = arg;
    return lathe_safetensors_check(s->base);
}

static void close_set(void *arg)
{
    grown_set *s = arg;
    for (int32_t i = 0; i < s->n; i++) {
        free(s->tensors[i].mean);
        free(s->tensors[i].deviation);
    }
    lathe_safetensors_close(s->base);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->fresh);
    free(s);
}

static lathe_status add_tensor(grown_set *s, const lathe_model_config *config, const char *folder,
                               const char *name, uint64_t stream)
{
    const lathe_st_tensor *t = name ? lathe_weights_find(s->base, config, name) : NULL;
    if (name == NULL)
        return LATHE_OK;
    for (int32_t i = 0; i < s->n; i++)
        if (s->tensors[i].tensor == t)
            return LATHE_OK;
    const int is_float =
        t != NULL && t->header == NULL && t->decode == NULL &&
        (t->desc.dtype == LATHE_F32 || t->desc.dtype == LATHE_BF16 || t->desc.dtype == LATHE_F16);
    if (!is_float || t->desc.rank < 1 || t->desc.dims[0] != s->growth.rows_before)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: %s is not stored as %lld rows of plain numbers, so no row can be "
                           "added; add the tokens to the model before it is quantized",
                           folder, name, (long long)s->growth.rows_before);
    s->tensors[s->n++] = (grown_tensor){.of = s,
                                        .tensor = t,
                                        .cols = lathe_desc_count(&t->desc) / t->desc.dims[0],
                                        .stream = stream};
    return LATHE_OK;
}

static int is_stored(const grown_set *s, const lathe_model_config *config, const char *name)
{
    return name != NULL && lathe_weights_find(s->base, config, name) != NULL;
}

/* A file may hold the head of a tied model, too: it must stay equal to the embedding, so it grows
 * with it, with the embedding's noise. */
static lathe_status add_all(grown_set *s, const lathe_model_config *config, const char *folder)
{
    const int tied = config->tied;
    LATHE_TRY(add_tensor(s, config, folder, config->embedding, 0));
    if (config->n_labels > 0)
        return LATHE_OK;
    if (!tied || is_stored(s, config, config->head))
        LATHE_TRY(add_tensor(s, config, folder, config->head, tied ? 0 : 1));
    if (!tied || is_stored(s, config, config->head_bias))
        LATHE_TRY(add_tensor(s, config, folder, config->head_bias, 2));
    return LATHE_OK;
}

static lathe_status make_set(grown_set *s, lathe_safetensors **out)
{
    const int64_t n = lathe_safetensors_count(s->base);
    const lathe_st_owner owner = {s, check_set, close_set};
    lathe_st_tensor *list = calloc((size_t)n + 1, sizeof *list);
    if (list == NULL)
        return lathe_error(LATHE_E_NOMEM, "%lld tensors", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        list[i] = *lathe_safetensors_at(s->base, i);
        for (int32_t k = 0; k < s->n; k++) {
            if (strcmp(s->tensors[k].tensor->name, list[i].name) != 0)
                continue;
            list[i].desc.dims[0] = s->growth.rows;
            list[i].data = NULL;
            list[i].decode = decode;
            list[i].coding = &s->tensors[k];
        }
    }
    const lathe_status status =
        lathe_safetensors_make(lathe_safetensors_path(s->base), list, n, &owner, out);
    free(list);
    return status;
}

lathe_status lathe_grown_weights(const lathe_safetensors *set, const lathe_model_config *config,
                                 const lathe_row_growth *growth, const char *folder,
                                 lathe_safetensors **out)
{
    grown_set *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s == NULL)
        return lathe_error(LATHE_E_NOMEM, "rows of new tokens");
    (void)pthread_mutex_init(&s->lock, NULL);
    s->growth = *growth;
    s->base = lathe_safetensors_hold(set);
    s->fresh = calloc((size_t)growth->n_fresh + 1, sizeof *s->fresh);
    lathe_status status =
        s->fresh != NULL ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "rows of new tokens");
    if (status == LATHE_OK && growth->n_fresh > 0)
        memcpy(s->fresh, growth->fresh, (size_t)growth->n_fresh * sizeof *s->fresh);
    s->growth.fresh = s->fresh;
    if (status == LATHE_OK)
        status = add_all(s, config, folder);
    if (status == LATHE_OK)
        status = make_set(s, out);
    if (status != LATHE_OK)
        close_set(s);
    return status;
}

lathe_status lathe_model_config_weights(const lathe_model_config *config, const char *folder,
                                        lathe_safetensors **out)
{
    lathe_safetensors *set = NULL;
    LATHE_TRY(lathe_model_weights(folder, &set));
    *out = set;
    if (config->growth == NULL)
        return LATHE_OK;
    const lathe_status status = lathe_grown_weights(set, config, config->growth, folder, out);
    lathe_safetensors_close(set); /* which the other one holds */
    return status;
}

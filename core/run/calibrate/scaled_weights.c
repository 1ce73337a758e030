/* Folds scales of inputs into the weights of a folder. */
#include "run/calibrate/scaled_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/safetensors/convert.h"
#include "model/family/weights.h"

lathe_status lathe__scaled_weights_init(lathe_scaled_weights *w, const lathe_run *run,
                                        const lathe_safetensors *set)
{
    const size_t n = (size_t)run->params.n_model + 1;
    *w = (lathe_scaled_weights){.run = run, .set = set};
    w->columns = calloc(n, sizeof *w->columns);
    w->rows = calloc(n, sizeof *w->rows);
    w->vectors = calloc(n, sizeof *w->vectors);
    if (w->columns != NULL && w->rows != NULL && w->vectors != NULL)
        return LATHE_OK;
    lathe__scaled_weights_fini(w);
    return lathe_error(LATHE_E_NOMEM, "no memory for the scales of a model");
}

static void free_all(float **list, int32_t n)
{
    for (int32_t i = 0; list != NULL && i < n; i++)
        free(list[i]);
    free(list);
}

void lathe__scaled_weights_fini(lathe_scaled_weights *w)
{
    if (w->run == NULL)
        return;
    free_all(w->columns, w->run->params.n_model);
    free_all(w->rows, w->run->params.n_model);
    free_all(w->vectors, w->run->params.n_model);
    *w = (lathe_scaled_weights){.run = NULL};
}

const lathe_st_tensor *lathe__scaled_weights_find(const lathe_scaled_weights *w, int32_t row)
{
    return lathe_weights_find(w->set, &w->run->model, w->run->params.rows[row]->name);
}

/* ---- reading ---- */

static void scale_matrix(const float *rows, const float *columns, int64_t n_rows, int64_t n_cols,
                         float *out)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_cols; c++)
            out[r * n_cols + c] *=
                (rows != NULL ? rows[r] : 1.0f) * (columns != NULL ? columns[c] : 1.0f);
}

lathe_status lathe__scaled_weights_load(const lathe_scaled_weights *w, int32_t row, float *out)
{
    const lathe_param *p = w->run->params.rows[row];
    const lathe_st_tensor *t = lathe__scaled_weights_find(w, row);
    const int64_t n = lathe_desc_count(&p->desc);
    if (t == NULL)
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no tensor %s", lathe_safetensors_path(w->set),
                           p->name);
    if (w->vectors[row] != NULL) {
        memcpy(out, w->vectors[row], (size_t)n * sizeof *out);
        return LATHE_OK;
    }
    if (lathe_weights_is_turned(p))
        LATHE_TRY(lathe_weights_turn(p, 0, out, LATHE_F32, t->data, t->desc.dtype));
    else
        LATHE_TRY(lathe_st_read(t, 0, n, out, LATHE_F32));
    if (w->rows[row] != NULL || w->columns[row] != NULL)
        scale_matrix(w->rows[row], w->columns[row], p->desc.dims[0], p->desc.dims[1], out);
    return LATHE_OK;
}

/* ---- folding ---- */

/* The factors of a list, 1 at first. */
static lathe_status factors_of(float **list, int32_t row, int64_t n)
{
    if (list[row] != NULL)
        return LATHE_OK;
    list[row] = malloc((size_t)n * sizeof **list);
    if (list[row] == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the scales of a weight");
    for (int64_t i = 0; i < n; i++)
        list[row][i] = 1.0f;
    return LATHE_OK;
}

lathe_status lathe__scaled_weights_multiply(lathe_scaled_weights *w, int32_t row,
                                            const float *factors)
{
    const int64_t n = w->run->params.rows[row]->desc.dims[1];
    LATHE_TRY(factors_of(w->columns, row, n));
    for (int64_t i = 0; i < n; i++)
        w->columns[row][i] *= factors[i];
    return LATHE_OK;
}

/* x in the dtype of a file. */
static lathe_status rounded(float x, int32_t dtype, float *out)
{
    uint64_t bits = 0;
    LATHE_TRY(lathe_convert(&bits, dtype, &x, LATHE_F32, 1));
    return lathe_convert(out, LATHE_F32, &bits, dtype, 1);
}

/* Divides x - offset by *scale in the dtype of a file, and makes *scale what that divided by. A
 * number that cannot be divided (0, too small for the dtype) keeps its value and gets the scale 1.
 */
static lathe_status divide_exactly(float *x, float offset, int32_t dtype, float *scale)
{
    const float before = *x + offset;
    float after = 0.0f;
    LATHE_TRY(rounded(before / *scale - offset, dtype, &after));
    const float used = before / (after + offset);
    if (!(used > 0.5f * *scale && used < 2.0f * *scale)) {
        *scale = 1.0f;
        return LATHE_OK;
    }
    *x = after;
    *scale = used;
    return LATHE_OK;
}

/* The values of a vector, as they are so far, and the dtype that they have in the folder. */
static lathe_status vector_of(lathe_scaled_weights *w, int32_t row, int32_t *out_dtype)
{
    const int64_t n = lathe_desc_count(&w->run->params.rows[row]->desc);
    const lathe_st_tensor *t = lathe__scaled_weights_find(w, row);
    float *values = w->vectors[row];
    if (values == NULL) {
        values = malloc((size_t)n * sizeof *values);
        if (values == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for the scales of a vector");
        const lathe_status status = lathe__scaled_weights_load(w, row, values);
        if (status != LATHE_OK) {
            free(values);
            return status;
        }
        w->vectors[row] = values;
    }
    *out_dtype = t->desc.dtype;
    return LATHE_OK;
}

static lathe_status divide_norm(lathe_scaled_weights *w, const lathe_scaled_source *source,
                                float *scales)
{
    int32_t dtype = LATHE_F32;
    LATHE_TRY(vector_of(w, source->weight, &dtype));
    float *const weight = w->vectors[source->weight];
    for (int32_t i = 0; i < source->n; i++)
        LATHE_TRY(divide_exactly(&weight[i], source->offset_one ? 1.0f : 0.0f, dtype, &scales[i]));
    if (source->bias < 0)
        return LATHE_OK;
    LATHE_TRY(vector_of(w, source->bias, &dtype));
    float *const bias = w->vectors[source->bias];
    for (int32_t i = 0; i < source->n; i++)
        LATHE_TRY(rounded(bias[i] / scales[i], dtype, &bias[i]));
    return LATHE_OK;
}

/* The bias of a linear layer decides the scale, because the weight is not rounded here. */
static lathe_status divide_rows(lathe_scaled_weights *w, const lathe_scaled_source *source,
                                float *scales)
{
    int32_t dtype = LATHE_F32;
    if (source->bias >= 0) {
        LATHE_TRY(vector_of(w, source->bias, &dtype));
        float *const bias = w->vectors[source->bias];
        for (int32_t i = 0; i < source->n; i++)
            if (bias[i] != 0.0f)
                LATHE_TRY(divide_exactly(&bias[i], 0.0f, dtype, &scales[i]));
    }
    LATHE_TRY(factors_of(w->rows, source->weight, source->n));
    for (int32_t i = 0; i < source->n; i++)
        w->rows[source->weight][i] /= scales[i];
    return LATHE_OK;
}

lathe_status lathe__scaled_weights_divide(lathe_scaled_weights *w,
                                          const lathe_scaled_source *source, float *scales)
{
    return source->is_norm ? divide_norm(w, source, scales) : divide_rows(w, source, scales);
}

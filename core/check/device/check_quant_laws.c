/* Checks rules that hold for every codec: how the decoded numbers relate to the weight, whatever
 * the format. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/device/quant_weight.h"

/* The best factor for w' is 1 if errors are centred. It differs from 1 by about the squared
 * relative error if they are rounding errors, which are independent of w. The mean error is much
 * smaller than the errors. */
static lathe_status gain_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const int64_t n = rows * cols;
    const float *w = lathe__random(s, n, 13, 0.05);
    lathe__weight q;
    void *out;
    double cross = 0, squares = 0, norm = 0, error = 0, bias = 0, max = 0;
    if (n < 1024) /* too few for a mean */
        return LATHE_OK;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &q));
    LATHE_TRY(lathe__decode(s, self, &q, LATHE_F32, &out));
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)w[i], y = (double)((const float *)out)[i];
        cross += x * y, squares += y * y, norm += x * x;
        error += (y - x) * (y - x), bias += y - x;
        max = fmax(max, fabs(y - x));
    }
    const double e2 = error / norm, gain = norm > 0 ? cross / squares : 1;
    if (!(fabs(1 - gain) <= 1.5 * e2 + 4 * sqrt(e2 / (double)n) + 1e-6))
        return lathe_error(LATHE_E_NUMERIC,
                           "decoded weights are %.4f times too large (relative error %.4f)",
                           1 / gain, sqrt(e2));
    const double rms = sqrt(error / (double)n);
    if (!(fabs(bias) / (double)n <= 0.35 * rms + 4 * rms / sqrt((double)n) + 1e-9))
        return lathe_error(LATHE_E_NUMERIC,
                           "decoded weights are %.3g too large on average, of errors of %.3g",
                           bias / (double)n, rms);
    if (!(max <= 0.4 * 0.05))
        return lathe_error(LATHE_E_NUMERIC, "an element is off by %.3g of weights up to 0.05", max);
    return LATHE_OK;
}

lathe_status lathe__codec_has_no_gain_and_no_bias(lathe__subject *s)
{
    return lathe__each_shape(s, gain_of);
}

/* Checks every element by itself, in small shapes too, so that none is lost at the end of a row or
 * of the last block. */
static lathe_status element_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const float *w = lathe__random(s, rows * cols, 17, 0.05);
    lathe__weight q;
    void *out;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &q));
    LATHE_TRY(lathe__decode(s, self, &q, LATHE_F32, &out));
    for (int64_t i = 0; i < rows * cols; i++)
        if (!(fabs((double)((const float *)out)[i] - (double)w[i]) <= 0.4 * 0.05))
            return lathe_error(LATHE_E_NUMERIC, "element %lld is %g, decoded %g", (long long)i,
                               (double)w[i], (double)((const float *)out)[i]);
    return LATHE_OK;
}

lathe_status lathe__codec_every_element_comes_back(lathe__subject *s)
{
    return lathe__each_shape(s, element_of);
}

static double relative_error(lathe__subject *s, void *self, int64_t rows, int64_t cols,
                             double scale, lathe_status *status)
{
    const float *w = lathe__random(s, rows * cols, 19, scale);
    lathe__weight q;
    void *out = NULL;
    double error = 0, norm = 0;
    *status = lathe__weight_init(s, self, rows, cols, w, &q);
    if (*status == LATHE_OK)
        *status = lathe__decode(s, self, &q, LATHE_F32, &out);
    for (int64_t i = 0; *status == LATHE_OK && i < rows * cols; i++) {
        const double d = (double)((const float *)out)[i] - (double)w[i];
        error += d * d;
        norm += (double)w[i] * (double)w[i];
    }
    return sqrt(error / norm);
}

static lathe_status scale_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    static const double scales[] = {0.01, 0.2, 1.0};
    for (int i = 0; i < 3; i++) {
        lathe_status status;
        const double error = relative_error(s, self, rows, cols, scales[i], &status);
        LATHE_TRY(status);
        if (!(error < 0.34))
            return lathe_error(LATHE_E_NUMERIC,
                               "relative error %.3f for weights up to %g, expected below 0.34",
                               error, scales[i]);
    }
    return LATHE_OK;
}

lathe_status lathe__codec_weights_of_any_size(lathe__subject *s)
{
    return lathe__each_shape(s, scale_of);
}

/* decode must read only its planes; decodes a thousand times. */
static lathe_status long_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const lathe_quant_v1 *table = s->table;
    const float *w = lathe__random(s, rows * cols, 23, 0.05);
    lathe__weight q;
    void *first, *kept[LATHE_MAX_PLANES];
    const void *planes[LATHE_MAX_PLANES];
    const int64_t bytes = rows * cols * 4;
    if (rows * cols > 256 && !(rows == 64 && cols == 64))
        return LATHE_OK;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &q));
    LATHE_TRY(lathe__decode_on_host(s, self, &q, LATHE_F32, &first));
    void *again = lathe__memory(s, bytes);
    for (int32_t k = 0; k < q.n_planes; k++) {
        const int64_t n = lathe_desc_bytes(&q.planes[k].desc);
        planes[k] = q.data[k];
        kept[k] = lathe__memory(s, n);
        memcpy(kept[k], q.data[k], (size_t)n);
    }
    for (int i = 2; i <= 1000; i++) {
        LATHE_TRY(table->decode(self, rows, cols, planes, again, LATHE_F32, q.scratch, NULL));
        if (!lathe__same(first, again, bytes))
            return lathe_error(LATHE_E_NUMERIC, "decode %d has other bits than the first", i);
    }
    for (int32_t k = 0; k < q.n_planes; k++)
        if (!lathe__same(kept[k], q.data[k], lathe_desc_bytes(&q.planes[k].desc)))
            return lathe_error(LATHE_E_PLUGIN, "decode writes to plane %s", q.planes[k].name);
    return LATHE_OK;
}

lathe_status lathe__codec_decodes_a_thousand_times(lathe__subject *s)
{
    return lathe__each_shape(s, long_of);
}

/* Encodes two weights in turn with two instances. */
static lathe_status apart_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    lathe_instance other;
    lathe__weight a, b;
    void *before, *after, *unused;
    LATHE_TRY(lathe__instance(s, &other));
    lathe_status status =
        lathe__weight_init(s, self, rows, cols, lathe__random(s, rows * cols, 29, 0.05), &a);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__decode(s, self, &a, LATHE_F32, &before)) != LATHE_OK)
        goto out;
    status =
        lathe__weight_init(s, other.self, rows, cols, lathe__random(s, rows * cols, 31, 2.0), &b);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__decode(s, other.self, &b, LATHE_F32, &unused)) != LATHE_OK)
        goto out;
    status = lathe__decode(s, self, &a, LATHE_F32, &after);
out:
    lathe_instance_fini(&other);
    if (status == LATHE_OK && !lathe__same(before, after, rows * cols * 4))
        status = lathe_error(LATHE_E_PLUGIN, "another instance's weight changes what is decoded");
    return status;
}

lathe_status lathe__codec_instances_are_apart(lathe__subject *s)
{
    return lathe__each_shape(s, apart_of);
}

/* A dtype that decode() need not support. */
static lathe_status dtype_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    static const int32_t unknown[] = {LATHE_I32, 99, -1};
    const lathe_quant_v1 *q = s->table;
    const void *planes[LATHE_MAX_PLANES];
    lathe__weight x;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, lathe__random(s, rows * cols, 37, 0.05), &x));
    float *out = lathe__memory(s, rows * cols * 8);
    for (int32_t i = 0; i < x.n_planes; i++)
        planes[i] = x.data[i];
    for (int i = 0; i < 3; i++) {
        lathe_error_clear();
        if (q->decode(self, rows, cols, planes, out, unknown[i], x.scratch, NULL) == LATHE_OK)
            return lathe_error(LATHE_E_PLUGIN, "decodes to dtype %d, expected an error",
                               unknown[i]);
        if (lathe_error_message()[0] == '\0')
            return lathe_error(LATHE_E_PLUGIN, "refuses dtype %d without a message", unknown[i]);
    }
    return LATHE_OK;
}

lathe_status lathe__codec_refuses_unknown_dtypes(lathe__subject *s)
{
    return lathe__each_shape(s, dtype_of);
}

/* A code stands for a number: a weight of a run that went wrong must not become one. */
static lathe_status finite_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    const int64_t n = rows * cols, places[] = {0, n / 2, n - 1};
    if (n > 256 * 256)
        return LATHE_OK;
    for (int i = 0; i < 9; i++) {
        lathe__weight x;
        float *w = lathe__random(s, n, 41, 0.05);
        w[places[i / 3]] = wrong[i % 3];
        lathe_error_clear();
        if (lathe__weight_init(s, self, rows, cols, w, &x) == LATHE_OK)
            return lathe_error(LATHE_E_NUMERIC,
                               "encode takes a weight [%lld, %lld] with %g at %lld, expected an "
                               "error",
                               (long long)rows, (long long)cols, (double)wrong[i % 3],
                               (long long)places[i / 3]);
        if (lathe_error_message()[0] == '\0')
            return lathe_error(LATHE_E_PLUGIN, "encode refuses %g without a message",
                               (double)wrong[i % 3]);
    }
    return LATHE_OK;
}

lathe_status lathe__codec_refuses_what_is_not_finite(lathe__subject *s)
{
    return lathe__each_shape(s, finite_of);
}

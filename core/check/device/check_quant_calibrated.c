/* Checks of formats whose quality rests on calibration data. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/device/quant_weight.h"

enum { N_ROWS = 96, MAX_COLS = 1024 };

/* Inputs of columns that differ in size by up to 16 times, as activations do. */
static lathe_quant_inputs make_inputs(lathe__subject *s, int64_t cols)
{
    const float *x = lathe__random(s, N_ROWS * cols, 23, 1.0);
    float *products = lathe__memory(s, cols * cols * 4), *magnitudes = lathe__memory(s, cols * 4);
    for (int64_t r = 0; r < N_ROWS; r++)
        for (int64_t i = 0; i < cols; i++) {
            const float scale = (float)(1 << i % 5);
            const float xi = x[r * cols + i] * scale;
            magnitudes[i] += fabsf(xi) / N_ROWS;
            for (int64_t j = 0; j <= i; j++)
                products[i * cols + j] +=
                    xi * x[r * cols + j] * (float)(1 << j % 5) / (float)N_ROWS;
        }
    for (int64_t i = 0; i < cols; i++)
        for (int64_t j = 0; j < i; j++)
            products[j * cols + i] = products[i * cols + j];
    return (lathe_quant_inputs){.size = (uint32_t)sizeof(lathe_quant_inputs),
                                .n = N_ROWS,
                                .products = products,
                                .magnitudes = magnitudes};
}

/* Mean of |(W' - W) x|^2 over the rows x of the inputs. */
static lathe_status loss_of(lathe__subject *s, void *self, const lathe__weight *q, const float *w,
                            const float *products, double *out)
{
    void *decoded;
    LATHE_TRY(lathe__decode_on_host(s, self, q, LATHE_F32, &decoded));
    *out = 0;
    for (int64_t r = 0; r < q->rows; r++)
        for (int64_t i = 0; i < q->cols; i++) {
            const double di =
                (double)((const float *)decoded)[r * q->cols + i] - (double)w[r * q->cols + i];
            double sum = 0;
            for (int64_t j = 0; j < q->cols; j++)
                sum += (double)products[i * q->cols + j] *
                       ((double)((const float *)decoded)[r * q->cols + j] -
                        (double)w[r * q->cols + j]);
            *out += di * sum;
        }
    return LATHE_OK;
}

typedef struct trial {
    lathe__subject *s;
    void *self;
    const float *w;
    const lathe_quant_inputs *inputs;
    lathe__weight q;
} trial;

static lathe_status encode(void *arg)
{
    trial *t = arg;
    const lathe_quant_v1 *table = t->s->table;
    for (int32_t i = 0; i < t->q.n_planes; i++)
        t->q.data[i] = lathe__memory(t->s, lathe_desc_bytes(&t->q.planes[i].desc));
    return table->encode_calibrated(t->self, t->q.rows, t->q.cols, t->w, t->inputs, t->q.data);
}

static lathe_status refuses_nan(trial *t)
{
    const int64_t n = t->q.rows * t->q.cols;
    float *w = lathe__memory(t->s, n * 4);
    memcpy(w, t->w, (size_t)n * 4);
    w[n - 1] = NAN;
    trial bad = *t;
    bad.w = w;
    lathe_error_clear();
    const lathe_status status = encode(&bad);
    if (status != LATHE_E_NUMERIC || lathe_error_message()[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN,
                           "encode_calibrated of NaN gives %s, expected LATHE_E_NUMERIC with a "
                           "message",
                           lathe_status_text(status));
    return LATHE_OK;
}

/* Inputs that are all zero tell nothing; the weight must still come back. */
static lathe_status takes_dead_inputs(trial *t)
{
    trial dead = *t;
    void *out;
    const lathe_quant_inputs zeros = {
        .size = (uint32_t)sizeof zeros,
        .n = 1,
        .products = lathe__memory(t->s, t->q.cols * t->q.cols * 4),
        .magnitudes = t->inputs->magnitudes != NULL ? lathe__memory(t->s, t->q.cols * 4) : NULL};
    double error = 0, norm = 0;
    dead.inputs = &zeros;
    LATHE_TRY(encode(&dead));
    LATHE_TRY(lathe__decode_on_host(t->s, t->self, &dead.q, LATHE_F32, &out));
    for (int64_t i = 0; i < t->q.rows * t->q.cols; i++) {
        const double d = (double)((const float *)out)[i] - (double)t->w[i];
        error += d * d, norm += (double)t->w[i] * (double)t->w[i];
    }
    return sqrt(error / norm) < 0.34
               ? LATHE_OK
               : lathe_error(LATHE_E_NUMERIC, "relative error %.3f with inputs of zeros",
                             sqrt(error / norm));
}

static lathe_status calibrated_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const lathe_quant_v1 *q = s->table;
    if (cols > MAX_COLS)
        return LATHE_OK;
    const float *w = lathe__random(s, rows * cols, 29, 0.05);
    lathe_quant_inputs inputs = make_inputs(s, cols);
    float *w_before = lathe__memory(s, rows * cols * 4),
          *products_before = lathe__memory(s, cols * cols * 4);
    if (!LATHE_HAS(q, scale_inputs))
        inputs.magnitudes = NULL;
    memcpy(w_before, w, (size_t)(rows * cols) * 4);
    memcpy(products_before, inputs.products, (size_t)(cols * cols) * 4);
    lathe__weight plain;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &plain));
    trial a = {.s = s, .self = self, .w = w, .inputs = &inputs, .q = plain}, b = a;
    LATHE_TRY(lathe__with_threads(1, encode, &a));
    LATHE_TRY(lathe__with_threads(3, encode, &b));
    for (int32_t i = 0; i < a.q.n_planes; i++)
        if (!lathe__same(a.q.data[i], b.q.data[i], lathe_desc_bytes(&a.q.planes[i].desc)))
            return lathe_error(LATHE_E_NUMERIC, "plane %s differs the second time",
                               a.q.planes[i].name);
    if (!lathe__same(w, w_before, rows * cols * 4) ||
        !lathe__same(inputs.products, products_before, cols * cols * 4))
        return lathe_error(LATHE_E_PLUGIN, "encode_calibrated changed the weight or its inputs");
    double loss, plain_loss;
    LATHE_TRY(loss_of(s, self, &a.q, w, products_before, &loss));
    LATHE_TRY(loss_of(s, self, &plain, w, products_before, &plain_loss));
    lathe__note(s, "outputs err by %.3f of what they do without data", sqrt(loss / plain_loss));
    if (!(loss <= plain_loss * 1.0001 + 1e-12))
        return lathe_error(LATHE_E_NUMERIC,
                           "outputs err by %.3f of what they do with encode, which has no data",
                           sqrt(loss / plain_loss));
    LATHE_TRY(refuses_nan(&a));
    return takes_dead_inputs(&a);
}

lathe_status lathe__codec_uses_calibration_data(lathe__subject *s)
{
    const lathe_quant_v1 *q = s->table;
    if (!LATHE_HAS(q, encode_calibrated))
        return lathe__skip(s, "no encode_calibrated");
    return lathe__each_shape(s, calibrated_of);
}

/* ---- scale_inputs ---- */

typedef struct scaling {
    lathe__subject *s;
    void *self;
    const lathe_quant_layers *layers;
    float *scales;
} scaling;

static lathe_status scale(void *arg)
{
    scaling *t = arg;
    const lathe_quant_v1 *q = t->s->table;
    t->scales = lathe__memory(t->s, t->layers->n_places * 4);
    for (int64_t i = 0; i < t->layers->n_places; i++)
        t->scales[i] = 1.0f;
    return q->scale_inputs(t->self, t->layers, t->scales);
}

/* Two layers of the same inputs; pairs of inputs come from one place, and the last place makes
 * none. */
static lathe_status scales_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    if (cols > MAX_COLS)
        return LATHE_OK;
    const lathe_quant_inputs inputs = make_inputs(s, cols);
    const int64_t both_rows[] = {rows, rows};
    const float *weights[] = {lathe__random(s, rows * cols, 31, 0.05),
                              lathe__random(s, rows * cols, 37, 0.05)};
    int32_t *from = lathe__memory(s, cols * (int64_t)sizeof *from);
    for (int64_t i = 0; i < cols; i++)
        from[i] = (int32_t)(i / 2);
    const lathe_quant_layers layers = {.size = (uint32_t)sizeof layers,
                                       .n = 2,
                                       .cols = cols,
                                       .rows = both_rows,
                                       .weights = weights,
                                       .inputs = &inputs,
                                       .from = from,
                                       .n_places = (cols + 1) / 2 + 1};
    float *before = lathe__memory(s, rows * cols * 4);
    memcpy(before, weights[1], (size_t)(rows * cols) * 4);
    scaling a = {s, self, &layers, NULL}, b = a;
    LATHE_TRY(lathe__with_threads(1, scale, &a));
    LATHE_TRY(lathe__with_threads(3, scale, &b));
    for (int64_t i = 0; i < layers.n_places; i++)
        if (!(a.scales[i] > 0.0f) || !isfinite(a.scales[i]))
            return lathe_error(LATHE_E_NUMERIC, "scale_inputs chose %g for place %lld",
                               (double)a.scales[i], (long long)i);
    if (!lathe__same(a.scales, b.scales, layers.n_places * 4))
        return lathe_error(LATHE_E_NUMERIC, "scale_inputs chooses otherwise the second time");
    if (!lathe__same(before, weights[1], rows * cols * 4))
        return lathe_error(LATHE_E_PLUGIN, "scale_inputs changed a weight");
    return LATHE_OK;
}

lathe_status lathe__codec_scales_inputs(lathe__subject *s)
{
    const lathe_quant_v1 *q = s->table;
    if (!LATHE_HAS(q, scale_inputs))
        return lathe__skip(s, "no scale_inputs");
    return lathe__each_shape(s, scales_of);
}

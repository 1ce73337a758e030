/* @NAME@: quantizes to one byte per weight and one scale per matrix.
 *
 *     scale = max|W| / 127;  q = round(W / scale) in -127 .. 127;  W' = q*scale
 *
 * The core allocates the planes, and calls encode once when the model is loaded. Products decode
 * the weight part by part with decode_part where the device has such products; else decode gives
 * all of it before each use. Real formats have a scale per row or block; for that, change planes(),
 * encode(), decode() and decode_part().
 */
#include <lathe/plugin.h>
#include <lathe/quant.h>
#include <math.h>

/* Planes: the packed weight, and its scale f32 [1]. */
enum { CODES, SCALE, N_PLANES };

typedef struct instance {
    const lathe_host *host;
} instance;

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values, (void)n_values;
    instance *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of @NAME@");
    self->host = host;
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

static lathe_status accepts(void *self, int64_t rows, int64_t cols)
{
    if (rows < 1 || cols < 1)
        return lathe_fail(((const instance *)self)->host, LATHE_E_SHAPE,
                          "@NAME@ holds matrices, not [%lld, %lld]", (long long)rows,
                          (long long)cols);
    return LATHE_OK;
}

static int32_t planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    (void)self;
    out[CODES] = (lathe_plane){"codes", "", lathe_desc_2d(LATHE_I8, rows, cols)};
    out[SCALE] = (lathe_plane){"scale", ".scale", lathe_desc_1d(LATHE_F32, 1)};
    return N_PLANES;
}

/* Once per weight, on the host: need not be fast, must be repeatable. */
static lathe_status encode(void *self, int64_t rows, int64_t cols, const float *w,
                           void *const *plane)
{
    int8_t *const codes = plane[CODES];
    float max = 0.0f;
    for (int64_t i = 0; i < rows * cols; i++) {
        if (!isfinite(w[i]))
            return lathe_fail(((const instance *)self)->host, LATHE_E_NUMERIC, "weight %lld is %g",
                              (long long)i, (double)w[i]);
        max = fabsf(w[i]) > max ? fabsf(w[i]) : max;
    }
    const float scale = max / 127.0f;
    for (int64_t i = 0; i < rows * cols; i++)
        codes[i] = scale > 0.0f ? (int8_t)lrintf(w[i] / scale) : (int8_t)0;
    *(float *)plane[SCALE] = scale;
    return LATHE_OK;
}

typedef struct job {
    const int8_t *codes;
    float scale;
    void *w;
    int32_t dtype;
} job;

static void decode_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const job *const x = arg;
    (void)worker;
    if (x->dtype == LATHE_F32) {
        float *const w = x->w;
        for (int64_t i = begin; i < end; i++)
            w[i] = (float)x->codes[i] * x->scale;
    } else {
        uint16_t *const w = x->w;
        for (int64_t i = begin; i < end; i++) {
            const float value = (float)x->codes[i] * x->scale;
            w[i] = x->dtype == LATHE_F16 ? lathe_f32_to_f16(value) : lathe_f32_to_bf16(value);
        }
    }
}

/* In every forward and backward: spreads over the host's threads, allocates nothing. */
static lathe_status decode(void *self, int64_t rows, int64_t cols, const void *const *plane,
                           void *w, int32_t dtype, void *scratch, void *stream)
{
    const lathe_host *const host = ((const instance *)self)->host;
    job x = {plane[CODES], *(const float *)plane[SCALE], w, dtype};
    (void)scratch, (void)stream;
    if (dtype != LATHE_F32 && dtype != LATHE_BF16 && dtype != LATHE_F16)
        return lathe_fail(host, LATHE_E_DTYPE, "@NAME@ decodes to f32, bf16 or f16, not %s",
                          lathe_dtype_name(dtype));
    host->parallel_for(rows * cols, 16384, decode_range, &x);
    return LATHE_OK;
}

/* Inside a product, on several threads at a time: calls no parallel_for, allocates nothing. */
static void decode_part(void *self, int64_t rows, int64_t cols, const void *const *plane,
                        const lathe_weight_part *part, void *out, int32_t dtype)
{
    (void)self, (void)rows;
    for (int64_t i = 0; i < part->runs * part->rows; i++) {
        const int64_t row = part->row + i / part->rows * part->distance + i % part->rows;
        job x = {(const int8_t *)plane[CODES] + row * cols + part->col,
                 *(const float *)plane[SCALE],
                 (char *)out + i * part->stride * lathe_dtype_bytes(dtype), dtype};
        decode_range(&x, 0, part->cols, 0);
    }
}

static const lathe_quant_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_QUANT_REVISION,
    .accepts = accepts,
    .planes = planes,
    .encode = encode,
    .decode = decode,
    .decode_part = decode_part,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_QUANT,
    .revision = LATHE_QUANT_REVISION,
    .name = "@NAME@",
    .version = "0.1.0",
    .summary = "8-bit integers with one scale per matrix",
    .source = "ours",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
    .destroy = destroy,
};

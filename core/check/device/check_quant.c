/* Checks of quantization formats: planes as declared, the same codes each time, bounded errors. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/device/device_checks.h"
#include "check/device/quant_weight.h"
#include "check/harness/device_side.h"

enum { N_SHAPES = 9 };
static const int64_t shapes[N_SHAPES][2] = {{64, 64}, {128, 256}, {3, 64},   {1, 128}, {5, 7},
                                            {16, 96}, {33, 96},   {7, 1024}, {2, 8192}};

lathe_status lathe__check_plane(const lathe_plane *p, int32_t i, int64_t rows, int64_t cols)
{
    const int64_t max = 8 * rows * cols + ((int64_t)1 << 20);
    int64_t n = 1;
    if (p->name == NULL || lathe_dtype_bytes(p->desc.dtype) == 0)
        return lathe_error(LATHE_E_PLUGIN, "plane %d lacks a name or dtype", i);
    if (p->desc.rank < 0 || p->desc.rank > LATHE_MAX_RANK)
        return lathe_error(LATHE_E_PLUGIN, "plane %s has rank %d", p->name, p->desc.rank);
    for (int32_t k = 0; k < p->desc.rank; k++) {
        if (p->desc.dims[k] < 0 || p->desc.dims[k] > max || n * p->desc.dims[k] > max)
            return lathe_error(LATHE_E_PLUGIN,
                               "plane %s is larger than 8 times the weight and 1 Mi", p->name);
        n *= p->desc.dims[k];
    }
    return LATHE_OK;
}

static int same_planes(const lathe_plane *a, const lathe_plane *b, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (a[i].desc.dtype != b[i].desc.dtype || a[i].desc.rank != b[i].desc.rank ||
            memcmp(a[i].desc.dims, b[i].desc.dims,
                   (size_t)a[i].desc.rank * sizeof a[i].desc.dims[0]) != 0)
            return 0;
    return 1;
}

lathe_status lathe__weight_init(lathe__subject *s, void *self, int64_t rows, int64_t cols,
                                const float *w, lathe__weight *out)
{
    const lathe_quant_v1 *q = s->table;
    *out = (lathe__weight){.rows = rows, .cols = cols};
    out->n_planes = q->planes(self, rows, cols, out->planes);
    lathe_plane again[LATHE_MAX_PLANES] = {{0}};
    if (out->n_planes < 1 || out->n_planes > LATHE_MAX_PLANES)
        return lathe_error(LATHE_E_PLUGIN, "%d planes, expected 1 to %d", out->n_planes,
                           LATHE_MAX_PLANES);
    for (int32_t i = 0; i < out->n_planes; i++) {
        const lathe_plane *p = &out->planes[i];
        LATHE_TRY(lathe__check_plane(p, i, rows, cols));
        for (int32_t k = 0; k < i; k++)
            if (p->file_suffix && out->planes[k].file_suffix &&
                strcmp(p->file_suffix, out->planes[k].file_suffix) == 0)
                return lathe_error(LATHE_E_PLUGIN, "two planes have the suffix '%s'",
                                   p->file_suffix);
        out->data[i] = lathe__memory(s, lathe_desc_bytes(&p->desc));
    }
    if (q->planes(self, rows, cols, again) != out->n_planes ||
        !same_planes(again, out->planes, out->n_planes))
        return lathe_error(LATHE_E_PLUGIN, "planes() answers otherwise the second time");
    const int64_t scratch = LATHE_HAS(q, decode_scratch) ? q->decode_scratch(self, rows, cols) : 0;
    if (scratch < 0 || scratch > (int64_t)1 << 32)
        return lathe_error(LATHE_E_PLUGIN, "decode wants %lld bytes of scratch",
                           (long long)scratch);
    if (scratch > 0) {
        out->scratch = lathe__memory(s, scratch);
        memset(out->scratch, 0xff, (size_t)scratch); /* its content must not matter */
    }
    out->w = lathe__memory(s, rows * cols * 4);
    memcpy(out->w, w, (size_t)(rows * cols) * 4);
    LATHE_TRY(q->encode(self, rows, cols, out->w, out->data));
    if (!lathe__same(w, out->w, rows * cols * 4))
        return lathe_error(LATHE_E_PLUGIN, "encode changed the weight");
    return LATHE_OK;
}

lathe_status lathe__decode_on_host(lathe__subject *s, void *self, const lathe__weight *w,
                                   int32_t dtype, void **out)
{
    const lathe_quant_v1 *q = s->table;
    const void *planes[LATHE_MAX_PLANES];
    for (int32_t i = 0; i < w->n_planes; i++)
        planes[i] = w->data[i];
    *out = lathe__memory(s, w->rows * w->cols * lathe_dtype_bytes(dtype));
    memset(*out, 0xff, (size_t)(w->rows * w->cols * lathe_dtype_bytes(dtype)));
    return q->decode(self, w->rows, w->cols, planes, *out, dtype, w->scratch, NULL);
}

static lathe_status launch(const lathe__subject *s, const char *kernel, int64_t n_blocks,
                           const lathe_quant_args *args)
{
    const lathe_quant_v1 *q = s->table;
    const lathe_machine *m = &s->device->machine;
    if (!LATHE_HAS(q, cuda_image))
        return lathe_error(LATHE_E_UNSUPPORTED, "it carries no code for a device (cuda_image)");
    if (!LATHE_HAS(m->dev, launch))
        return lathe_error(LATHE_E_UNSUPPORTED, "the device offers no launch()");
    return m->dev->launch(m->device->self, m->stream, q->cuda_image, kernel, n_blocks,
                          LATHE_QUANT_THREADS, args, (int64_t)sizeof *args);
}

/* Decodes with the image. max_blocks: limit of the grid; 0: one block for each chunk. */
static lathe_status decode_on_device(lathe__subject *s, void *self, const lathe__weight *w,
                                     int32_t dtype, int64_t max_blocks, void **out)
{
    const lathe_quant_v1 *q = s->table;
    const int64_t n = w->rows * w->cols;
    lathe_quant_args args = {.rows = w->rows,
                             .cols = w->cols,
                             .n_chunks = (n + LATHE_QUANT_CHUNK - 1) / LATHE_QUANT_CHUNK,
                             .dtype = dtype,
                             .n_planes = w->n_planes};
    *out = lathe__memory(s, n * lathe_dtype_bytes(dtype));
    if (w->scratch != NULL) /* its content is lost between calls */
        memset(w->scratch, 0xff, (size_t)q->decode_scratch(self, w->rows, w->cols));
    memset(*out, 0xff, (size_t)(n * lathe_dtype_bytes(dtype)));
    for (int32_t i = 0; i < w->n_planes; i++)
        args.planes[i] = lathe__on_device(s, w->data[i]);
    args.out = lathe__on_device(s, *out);
    args.scratch = lathe__on_device(s, w->scratch);
    if (LATHE_HAS(q, image_settings))
        q->image_settings(self, args.settings);
    LATHE_TRY(lathe__send(s));
    LATHE_TRY(launch(s, LATHE_QUANT_KERNEL,
                     max_blocks > 0 && args.n_chunks > max_blocks ? max_blocks : args.n_chunks,
                     &args));
    return lathe__fetch(s);
}

lathe_status lathe__decode(lathe__subject *s, void *self, const lathe__weight *w, int32_t dtype,
                           void **out)
{
    return s->device != NULL ? decode_on_device(s, self, w, dtype, 0, out)
                             : lathe__decode_on_host(s, self, w, dtype, out);
}

/* Runs `one` over every shape that the format accepts. */
lathe_status lathe__each_shape(lathe__subject *s, lathe_status (*one)(lathe__subject *s, void *self,
                                                                      int64_t rows, int64_t cols))
{
    const lathe_quant_v1 *q = s->table;
    lathe_instance instance;
    int accepted = 0;
    LATHE_TRY(lathe__instance(s, &instance));
    lathe_status status = LATHE_OK;
    for (int i = 0; i < N_SHAPES && status == LATHE_OK; i++) {
        if (q->accepts(instance.self, shapes[i][0], shapes[i][1]) != LATHE_OK)
            continue;
        accepted++;
        status = one(s, instance.self, shapes[i][0], shapes[i][1]);
        if (status < 0)
            status = lathe_error_context(status, "[%lld, %lld]", (long long)shapes[i][0],
                                         (long long)shapes[i][1]);
    }
    if (status == LATHE_OK && accepted == 0)
        status = lathe_error(LATHE_E_PLUGIN, "accepts none of %d shapes", N_SHAPES);
    if (status == LATHE_OK && s->note[0] == '\0')
        lathe__note(s, "%d of %d shapes accepted", accepted, N_SHAPES);
    lathe_instance_fini(&instance);
    return status;
}

/* Relative error |w' - w| / |w| of uniform weights: below a third for 3 bits and more. */
static lathe_status error_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const float *w = lathe__random(s, rows * cols, 3, 0.05);
    lathe__weight q;
    void *f32, *bf16, *f16;
    double error = 0, norm = 0;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &q));
    LATHE_TRY(lathe__decode(s, self, &q, LATHE_F32, &f32));
    LATHE_TRY(lathe__decode(s, self, &q, LATHE_BF16, &bf16));
    LATHE_TRY(lathe__decode(s, self, &q, LATHE_F16, &f16));
    for (int64_t i = 0; i < rows * cols; i++) {
        const double x = (double)((float *)f32)[i];
        const double y = (double)lathe_bf16_to_f32(((uint16_t *)bf16)[i]);
        const double z = (double)lathe_f16_to_f32(((uint16_t *)f16)[i]);
        error += (x - (double)w[i]) * (x - (double)w[i]);
        norm += (double)w[i] * (double)w[i];
        if (!(fabs(x - y) <= 0x1p-8 * fabs(x) + 0x1p-126)) /* half a unit of bf16 */
            return lathe_error(LATHE_E_NUMERIC, "element %lld decodes to %g in f32, %g in bf16",
                               (long long)i, x, y);
        if (!(fabs(x - z) <= 0x1p-11 * fabs(x) + 0x1p-25)) /* half a unit of f16 */
            return lathe_error(LATHE_E_NUMERIC, "element %lld decodes to %g in f32, %g in f16",
                               (long long)i, x, z);
    }
    lathe__note(s, "relative error %.4f", sqrt(error / norm));
    if (!(sqrt(error / norm) < 0.34))
        return lathe_error(LATHE_E_NUMERIC, "relative error %.3f, expected below 0.34",
                           sqrt(error / norm));
    return LATHE_OK;
}

static lathe_status error_is_bounded(lathe__subject *s)
{
    return lathe__each_shape(s, error_of);
}

static lathe_status zeros_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const float *w = lathe__memory(s, rows * cols * 4);
    lathe__weight q;
    void *out;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &q));
    LATHE_TRY(lathe__decode(s, self, &q, LATHE_F32, &out));
    for (int64_t i = 0; i < rows * cols; i++)
        if (!(fabsf(((float *)out)[i]) < 1e-6f))
            return lathe_error(LATHE_E_NUMERIC, "element %lld of a zero weight decodes to %g",
                               (long long)i, (double)((float *)out)[i]);
    return LATHE_OK;
}

static lathe_status zero_stays_zero(lathe__subject *s)
{
    return lathe__each_shape(s, zeros_of);
}

typedef struct repeat {
    lathe__subject *s;
    void *self;
    const float *w;
    lathe__weight q;
    void *out;
} repeat;

static lathe_status code_and_back(void *arg)
{
    repeat *r = arg;
    LATHE_TRY(lathe__weight_init(r->s, r->self, r->q.rows, r->q.cols, r->w, &r->q));
    return lathe__decode(r->s, r->self, &r->q, LATHE_F32, &r->out);
}

static lathe_status repeat_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const float *w = lathe__random(s, rows * cols, 9, 1.0);
    repeat a = {.s = s, .self = self, .w = w, .q = {.rows = rows, .cols = cols}}, b = a;
    LATHE_TRY(lathe__with_threads(1, code_and_back, &a));
    LATHE_TRY(lathe__with_threads(3, code_and_back, &b));
    for (int32_t i = 0; i < a.q.n_planes; i++)
        if (!lathe__same(a.q.data[i], b.q.data[i], lathe_desc_bytes(&a.q.planes[i].desc)))
            return lathe_error(LATHE_E_NUMERIC, "plane %s differs the second time",
                               a.q.planes[i].name);
    if (!lathe__same(a.out, b.out, rows * cols * 4))
        return lathe_error(LATHE_E_NUMERIC, "decode differs the second time");
    return LATHE_OK;
}

static lathe_status repeats_bit_for_bit(lathe__subject *s)
{
    return lathe__each_shape(s, repeat_of);
}

static lathe_status allocation_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const lathe_quant_v1 *q = s->table;
    const float *w = lathe__random(s, rows * cols, 9, 1.0);
    const void *planes[LATHE_MAX_PLANES];
    lathe__weight x;
    void *out;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &x));
    LATHE_TRY(lathe__decode(s, self, &x, LATHE_BF16, &out));
    for (int32_t i = 0; i < x.n_planes; i++)
        planes[i] = x.data[i];
    const int64_t before = lathe__heap();
    LATHE_TRY(q->decode(self, rows, cols, planes, out, LATHE_BF16, x.scratch, NULL));
    const int64_t taken = lathe__heap() - before;
    return taken == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_PLUGIN, "one decode took %lld heap blocks", (long long)taken);
}

static lathe_status decode_allocates_nothing(lathe__subject *s)
{
    return lathe__each_shape(s, allocation_of);
}

static lathe_status refuses_empty_shapes(lathe__subject *s)
{
    const lathe_quant_v1 *q = s->table;
    lathe_instance instance;
    LATHE_TRY(lathe__instance(s, &instance));
    lathe_status status = LATHE_OK;
    if (q->accepts(instance.self, 0, 64) == LATHE_OK ||
        q->accepts(instance.self, 64, 0) == LATHE_OK ||
        q->accepts(instance.self, -1, 64) == LATHE_OK)
        status = lathe_error(LATHE_E_PLUGIN, "accepts() takes an empty or negative shape");
    else if (lathe_error_message()[0] == '\0')
        status = lathe_error(LATHE_E_PLUGIN, "accepts() refuses without a message");
    lathe_instance_fini(&instance);
    return status;
}

typedef struct writer {
    const lathe_quant_v1 *table;
    void *self;
} writer;

static int64_t write_config(void *arg, char *out, int64_t capacity)
{
    const writer *w = arg;
    return w->table->config_json(w->self, out, capacity);
}

static lathe_status writes_its_config(lathe__subject *s)
{
    lathe_instance instance;
    writer w = {.table = s->table};
    if (!LATHE_HAS(w.table, config_json))
        return lathe__skip(s, "no config_json");
    LATHE_TRY(lathe__instance(s, &instance));
    w.self = instance.self;
    const lathe_status status = lathe__check_json(s, "config_json", write_config, &w);
    lathe_instance_fini(&instance);
    return status;
}

const lathe__check *lathe__checks_quant(void)
{
    static const lathe__check checks[] = {
        {"error_is_bounded", error_is_bounded, 0},
        {"zero_stays_zero", zero_stays_zero, 0},
        {"repeats_bit_for_bit", repeats_bit_for_bit, 0},
        {"decode_allocates_nothing", decode_allocates_nothing, 0},
        {"refuses_empty_shapes", refuses_empty_shapes, 0},
        {"writes_its_config", writes_its_config, 0},
        {"has_no_gain_and_no_bias", lathe__codec_has_no_gain_and_no_bias, 0},
        {"every_element_comes_back", lathe__codec_every_element_comes_back, 0},
        {"weights_of_any_size", lathe__codec_weights_of_any_size, 0},
        {"decodes_a_thousand_times", lathe__codec_decodes_a_thousand_times, 0},
        {"instances_are_apart", lathe__codec_instances_are_apart, 0},
        {"refuses_unknown_dtypes", lathe__codec_refuses_unknown_dtypes, 0},
        {"refuses_what_is_not_finite", lathe__codec_refuses_what_is_not_finite, 0},
        {"parts_have_the_bits_of_the_whole", lathe__codec_parts_have_the_bits_of_the_whole, 0},
        {"codes_have_the_bits_of_the_whole", lathe__codec_codes_have_the_bits_of_the_whole, 0},
        {"scaled_codes_are_the_weight", lathe__codec_scaled_codes_are_the_weight, 0},
        {"activations_are_codes", lathe__codec_activations_are_codes, 0},
        {"reads_what_it_writes", lathe__codec_reads_what_it_writes, 0},
        {"refuses_damaged_metadata", lathe__codec_refuses_damaged_metadata, 0},
        {"survives_damaged_planes", lathe__codec_survives_damaged_planes, 0},
        {"survives_configurations", lathe__codec_survives_configurations, 0},
        {"uses_calibration_data", lathe__codec_uses_calibration_data, 0},
        {"scales_inputs", lathe__codec_scales_inputs, 0},
        {NULL, NULL, 0},
    };
    return checks;
}

/* ---- the image on a device ---- */

static lathe_status image_loads(lathe__subject *s)
{
    const lathe_quant_args args = {0};
    LATHE_TRY(launch(s, LATHE_QUANT_KERNEL, 0, &args));
    if (launch(s, "no_such_kernel", 0, &args) != LATHE_E_NOT_FOUND)
        return lathe_error(LATHE_E_PLUGIN, "an unknown kernel is not LATHE_E_NOT_FOUND");
    return LATHE_OK;
}

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

static lathe_status check_bits(const void *a, const void *b, const lathe__weight *w, int32_t dtype)
{
    const int64_t width = lathe_dtype_bytes(dtype);
    for (int64_t i = 0; i < w->rows * w->cols; i++)
        if (!lathe__same((const char *)a + i * width, (const char *)b + i * width, width))
            return lathe_error(LATHE_E_NUMERIC, "element %lld has other bits in %s", (long long)i,
                               lathe_dtype_name(dtype));
    return LATHE_OK;
}

static lathe_status bits_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const float *w = lathe__random(s, rows * cols, 3, 0.05);
    lathe__weight q;
    void *host, *device;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &q));
    for (int i = 0; i < 3; i++) {
        LATHE_TRY(lathe__decode_on_host(s, self, &q, dtypes[i], &host));
        LATHE_TRY(decode_on_device(s, self, &q, dtypes[i], 0, &device));
        LATHE_TRY(check_bits(host, device, &q, dtypes[i]));
    }
    return LATHE_OK;
}

static lathe_status same_bits_as_the_host(lathe__subject *s)
{
    return lathe__each_shape(s, bits_of);
}

static lathe_status grid_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const float *w = lathe__random(s, rows * cols, 3, 0.05);
    lathe__weight q;
    void *whole, *narrow;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &q));
    LATHE_TRY(decode_on_device(s, self, &q, LATHE_BF16, 0, &whole));
    LATHE_TRY(decode_on_device(s, self, &q, LATHE_BF16, 2, &narrow));
    return check_bits(whole, narrow, &q, LATHE_BF16);
}

static lathe_status any_grid_will_do(lathe__subject *s)
{
    return lathe__each_shape(s, grid_of);
}

static lathe_status planes_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const float *w = lathe__random(s, rows * cols, 3, 0.05);
    lathe__weight q;
    void *kept[LATHE_MAX_PLANES] = {0}, *out;
    LATHE_TRY(lathe__weight_init(s, self, rows, cols, w, &q));
    for (int32_t i = 0; i < q.n_planes; i++) {
        const int64_t bytes = lathe_desc_bytes(&q.planes[i].desc);
        kept[i] = lathe__memory(s, bytes);
        memcpy(kept[i], q.data[i], (size_t)bytes);
    }
    LATHE_TRY(decode_on_device(s, self, &q, LATHE_F32, 0, &out));
    for (int32_t i = 0; i < q.n_planes; i++)
        if (!lathe__same(kept[i], q.data[i], lathe_desc_bytes(&q.planes[i].desc)))
            return lathe_error(LATHE_E_CORRUPT, "wrote to plane %s, which it is to read",
                               q.planes[i].name);
    return LATHE_OK;
}

static lathe_status leaves_planes_alone(lathe__subject *s)
{
    return lathe__each_shape(s, planes_of);
}

const lathe__check *lathe__checks_quant_device(void)
{
    static const lathe__check checks[] = {
        {"image_loads", image_loads, 0},
        {"error_is_bounded", error_is_bounded, 0},
        {"zero_stays_zero", zero_stays_zero, 0},
        {"same_bits_as_the_host", same_bits_as_the_host, 0},
        {"repeats_bit_for_bit", repeats_bit_for_bit, 0},
        {"any_grid_will_do", any_grid_will_do, 0},
        {"leaves_planes_alone", leaves_planes_alone, 0},
        {NULL, NULL, 0},
    };
    return checks;
}

/* Eight bits per weight with one scale per row, and one fault. */
#include "fault.h"

#include "lathe/quant.h"

static float shared_scale;
static int64_t n_decodes;

static lathe_status accepts(void *self, int64_t rows, int64_t cols)
{
    const instance *x = self;
    if (IS(accepts_nothing))
        return lathe_fail(x->host, LATHE_E_SHAPE, "never");
    if (IS(accepts_empty_shapes) || (rows > 0 && cols > 0))
        return LATHE_OK;
    return IS(refuses_without_a_message) ? LATHE_E_SHAPE
                                         : lathe_fail(x->host, LATHE_E_SHAPE, "empty");
}

static int32_t planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    instance *x = self;
    x->calls++;
    out[0] = (lathe_plane){"codes", "", lathe_desc_2d(LATHE_I8, rows, cols)};
    out[1] = (lathe_plane){"scale",
                           IS(same_suffix_twice)                       ? ""
                           : IS(reads_other_settings) && x->lr > 0.015 ? ".other"
                                                                       : ".scale",
                           lathe_desc_1d(LATHE_F32, rows)};
    if (IS(plane_without_name))
        out[1].name = NULL;
    if (IS(plane_of_unknown_dtype))
        out[1].desc.dtype = 77;
    if (IS(plane_of_huge_dims))
        out[1].desc.dims[0] = (int64_t)1 << 60;
    if (IS(plane_of_rank_nine))
        out[1].desc.rank = 9;
    if (IS(planes_change))
        out[1].desc.dims[0] = rows + x->calls;
    return IS(no_planes) ? 0 : IS(too_many_planes) ? 7 : 2;
}

static int64_t decode_scratch(void *self, int64_t rows, int64_t cols)
{
    (void)self, (void)rows, (void)cols;
    return IS(scratch_negative) ? -8 : IS(scratch_huge) ? (int64_t)1 << 60 : 64;
}

static float scale_of_row(const float *w, int64_t cols)
{
    float max = 0.0f;
    for (int64_t i = 0; i < cols; i++)
        max = fmaxf(max, fabsf(w[i]));
    if (IS(scale_is_fixed))
        return 0.05f / 127.0f;
    if (IS(divides_zero_by_zero))
        return max / max * (max / 127.0f);
    return max > 0.0f ? max / 127.0f : 1.0f;
}

static lathe_status encode(void *self, int64_t rows, int64_t cols, const float *w, void *const *out)
{
    const instance *x = self;
    int8_t *codes = out[0];
    float *scales = out[1];
    for (int64_t i = 0; i < rows * cols; i++)
        if (!isfinite(w[i]) && !IS(takes_what_is_not_finite) &&
            !(IS(takes_infinity) && !isnan(w[i])) && !(IS(looks_at_the_first_alone) && i > 0))
            return IS(refuses_nan_in_silence)
                       ? LATHE_E_NUMERIC
                       : lathe_fail(x->host, LATHE_E_NUMERIC, "a weight is not finite");
    for (int64_t r = 0; r < rows; r++) {
        scales[r] = shared_scale = scale_of_row(w + r * cols, cols);
        for (int64_t c = 0; c < cols; c++) {
            const float y = w[r * cols + c] / scales[r];
            codes[r * cols + c] = (int8_t)(IS(rounds_down) ? floorf(y) : rintf(y));
        }
    }
    if (IS(writes_the_weight))
        ((float *)(uintptr_t)w)[0] = 0.0f;
    if (IS(encodes_past_the_end))
        codes[rows * cols] = 1;
    if (IS(encodes_at_random))
        codes[0] = (int8_t)(rand() % 100);
    if (IS(encodes_by_threads))
        codes[0] = (int8_t)x->host->n_threads();
    return LATHE_OK;
}

static float decoded(const void *const *in, int64_t rows, int64_t cols, int64_t i,
                     const void *scratch)
{
    const int8_t *codes = in[0];
    const float *scales = in[1];
    const int64_t at = IS(decodes_transposed) ? i % rows * cols + i / rows : i;
    float y = (float)codes[at] * (IS(shares_its_scale) ? shared_scale : scales[at / cols]);
    if (IS(has_a_gain))
        y *= 1.05f;
    if (IS(has_a_small_gain))
        y *= 1.01f;
    if (IS(has_a_bias))
        y += 2e-4f;
    if (IS(flips_signs))
        y = -y;
    if (IS(loses_the_last_column) && i % cols == cols - 1)
        y = 0.0f;
    if (IS(loses_the_last_row) && i / cols == rows - 1 && rows > 1)
        y = 0.0f;
    if (IS(nan_at_decode_777) && n_decodes % 1000 == 777)
        y = NAN;
    if (IS(decodes_where_codes_point) && codes[at] == -128)
        y += *(const volatile float *)((uintptr_t)1 << 12); /* a page that nobody has */
    if (IS(reads_old_scratch))
        y += (float)*(const unsigned char *)scratch * 1e-5f;
    return y;
}

static lathe_status decode(void *self, int64_t rows, int64_t cols, const void *const *in, void *w,
                           int32_t dtype, void *scratch, void *stream)
{
    const instance *x = self;
    (void)stream;
    misbehave(x->host);
    n_decodes++;
    if (dtype != LATHE_F32 && dtype != LATHE_BF16 && dtype != LATHE_F16 &&
        !IS(takes_unknown_dtypes))
        return lathe_fail(x->host, LATHE_E_DTYPE, "dtype %d", (int)dtype);
    for (int64_t i = 0; i < rows * cols; i++)
        lathe_quant_store(w, IS(knows_bf16_only) && dtype == LATHE_F16 ? LATHE_BF16 : dtype, i,
                          decoded(in, rows, cols, i, scratch));
    if (IS(decodes_past_the_end))
        ((float *)w)[rows * cols] = 0.0f;
    if (IS(writes_its_planes))
        ((float *)(uintptr_t)in[1])[0] *= 0.5f;
    return LATHE_OK;
}

static void decode_part(void *self, int64_t rows, int64_t cols, const void *const *in,
                        const lathe_weight_part *p, void *out, int32_t dtype)
{
    const int64_t stride = IS(part_ignores_its_stride) ? p->cols : p->stride;
    const int64_t first = IS(part_ignores_its_column) ? 0 : p->col;
    (void)self;
    for (int64_t i = 0; i < p->runs * p->rows; i++)
        for (int64_t c = 0; c < (IS(part_writes_beside) ? p->stride : p->cols); c++) {
            const int64_t row = p->row + i / p->rows * p->distance + i % p->rows;
            const int64_t at = row * cols + (c < p->cols ? first + c : 0);
            lathe_quant_store(out, dtype, i * stride + c, decoded(in, rows, cols, at, ""));
        }
}

static void part_rows(void *self, int64_t rows, int64_t cols, lathe_part_rows *out)
{
    (void)self;
    (void)cols;
    *out = (lathe_part_rows){1, IS(runs_do_not_fill_the_rows) ? 2 : 1,
                             IS(runs_do_not_fill_the_rows) ? rows : 0};
}

static int64_t code_group(void *self, int64_t rows, int64_t cols)
{
    (void)self;
    (void)rows;
    (void)cols;
    return IS(codes_in_odd_groups) ? 48 : cols % 64 == 0 ? 64 : 0;
}

/* Codes of zeros, whose values are zeros. */
static int32_t part_codes(void *self, int64_t rows, int64_t cols, const void *const *in,
                          const lathe_weight_part *p, int32_t dtype, float *values, void *room,
                          lathe_part_codes *out)
{
    const int64_t n = p->runs * p->rows;
    (void)self;
    (void)rows;
    (void)cols;
    (void)in;
    (void)dtype;
    memset(values, 0, (size_t)(n * (p->cols / 64) * LATHE_CODE_VALUES) * sizeof *values);
    memset(room, 0, (size_t)(n * p->cols / 2));
    *out = (lathe_part_codes){.codes = room, .row_bytes = p->cols / 2};
    return 1;
}

static int32_t weight_codes(void *self, int64_t rows, int64_t cols, const void *const *in,
                            lathe_weight_codes *out)
{
    (void)self;
    (void)rows;
    *out = (lathe_weight_codes){.order = LATHE_CODES_BYTES,
                                .bits = IS(codes_of_other_bits) ? 16 : 8,
                                .values = LATHE_VALUES_I8,
                                .plane = IS(codes_of_no_plane) ? 2 : 0,
                                .group = cols};
    if ((IS(codes_depend_on_the_planes) && in == NULL) || IS(activations_of_groups))
        out->group = 16;
    return 1;
}

static int32_t activations(void *self, int64_t rows, int64_t cols, lathe_activations *out)
{
    instance *x = self;
    (void)rows, (void)cols;
    *out = (lathe_activations){IS(activations_of_other_dtype) ? LATHE_BF16 : LATHE_I8,
                               IS(activations_beyond_numbers) ? INFINITY : 6.0f};
    if (IS(activations_change))
        out->threshold = (float)x->calls++;
    return 1;
}

static const char *const unknown_fields[] = {"no_such_key", NULL};

static void part_scales(void *self, int64_t rows, int64_t cols, const void *const *in,
                        const lathe_weight_part *p, float *scales, float *offsets)
{
    const int64_t stride = IS(scales_ignore_their_stride) ? 1 : p->stride;
    (void)self;
    (void)rows;
    (void)cols;
    (void)offsets;
    for (int64_t i = 0; i < p->rows; i++)
        scales[i * stride] = ((const float *)in[1])[i + (IS(scales_of_other_rows) ? 0 : p->row)];
}

#define HAS_ACTIVATIONS                                                                            \
    (IS(activations_of_other_dtype) || IS(activations_beyond_numbers) || IS(activations_change) || \
     IS(activations_of_groups) || IS(activations_without_codes))

#define HAS_SCALES                                                                                 \
    (IS(codes_of_no_plane) || IS(codes_of_other_bits) || IS(scales_of_other_rows) ||               \
     IS(scales_ignore_their_stride) || IS(codes_depend_on_the_planes) ||                           \
     (HAS_ACTIVATIONS && !IS(activations_without_codes)))

#define HAS_CODES (IS(codes_in_odd_groups) || IS(codes_have_other_values))

/* ---- folders ---- */

#define HAS_META                                                                                   \
    (IS(meta_of_other_bytes) || IS(meta_ignores_capacity) || IS(meta_forgets_the_scales) ||        \
     IS(meta_takes_anything) || IS(meta_refused_in_silence) || IS(meta_refuses_itself))
#define HAS_FOLDERS                                                                                \
    (HAS_META || IS(method_is_not_its_own) || IS(reads_nothing_of_its_own) ||                      \
     IS(reads_other_settings) || IS(crashes_on_a_number) || IS(configuration_in_silence) ||        \
     IS(source_dtype_breaks_the_config) || IS(sound_quant_in_folders))
#define HAS_CHECK_PLANES                                                                           \
    (IS(refuses_its_own_planes) || IS(planes_refused_in_silence) ||                                \
     IS(decodes_where_codes_point) || IS(planes_refused_as_shape))
#define HAS_CALIBRATION                                                                            \
    (IS(calibrated_by_threads) || IS(calibrated_for_worse) || IS(calibrated_writes_its_inputs) ||  \
     IS(calibrated_takes_nan) || IS(divides_by_dead_inputs) || IS(scales_of_zero) ||               \
     IS(scales_by_threads) || IS(scales_change_a_weight) || IS(sound_quant_with_data))

static int32_t source_dtype;

static void set_source_dtype(void *self, int32_t dtype)
{
    (void)self;
    source_dtype = dtype;
}

static lathe_status read_config(const lathe_host *host, const lathe_quant_config *config,
                                lathe_value *values)
{
    const char *bits = config->get(config->ctx, "bits");
    if (IS(crashes_on_a_number) && atoi(bits) < 0)
        crash();
    if (bits == NULL || strcmp(bits, "8") != 0 || IS(reads_nothing_of_its_own))
        return IS(configuration_in_silence)
                   ? LATHE_E_UNSUPPORTED
                   : lathe_fail(host, LATHE_E_UNSUPPORTED, "bits are not 8");
    if (IS(reads_other_settings))
        values[0].f = 0.02;
    return LATHE_OK;
}

static int64_t weight_meta(void *self, int64_t rows, int64_t cols, const void *const *in, char *out,
                           int64_t capacity)
{
    char text[8] = "scales!";
    (void)self, (void)rows, (void)cols;
    if (IS(meta_ignores_capacity) && capacity > 0)
        memcpy(out, text, 8);
    for (int64_t i = 0; i < capacity && i < 8; i++)
        out[i] = text[i];
    return 8 + (IS(meta_of_other_bytes) && in != NULL);
}

static lathe_status read_meta(void *self, int64_t rows, int64_t cols, const char *meta,
                              int64_t bytes, void *const *out)
{
    const instance *x = self;
    if (IS(meta_takes_anything))
        return LATHE_OK;
    if (bytes != 8 || memcmp(meta, "scales!", 8) != 0 || IS(meta_refuses_itself))
        return IS(meta_refused_in_silence) ? LATHE_E_PARSE
                                           : lathe_fail(x->host, LATHE_E_PARSE, "other metadata");
    if (IS(meta_forgets_the_scales))
        memset(out[1], 0, (size_t)rows * sizeof(float));
    (void)cols;
    return LATHE_OK;
}

static const char *const methods[] = {"ours", NULL};

static lathe_status check_planes(void *self, int64_t rows, int64_t cols, const void *const *in)
{
    const instance *x = self;
    const int8_t *codes = in[0];
    if (IS(refuses_its_own_planes))
        return lathe_fail(x->host, LATHE_E_CORRUPT, "never");
    for (int64_t i = 0; i < rows * cols; i++)
        if (codes[i] == -128)
            return IS(planes_refused_in_silence) ? LATHE_E_CORRUPT
                   : IS(planes_refused_as_shape) ? lathe_fail(x->host, LATHE_E_SHAPE, "-128")
                                                 : LATHE_OK;
    return LATHE_OK;
}

/* ---- calibration data ---- */

static lathe_status encode_calibrated(void *self, int64_t rows, int64_t cols, const float *w,
                                      const lathe_quant_inputs *inputs, void *const *out)
{
    const instance *x = self;
    int8_t *codes = out[0];
    float *scales = out[1];
    if (IS(calibrated_takes_nan)) {
        memset(codes, 0, (size_t)(rows * cols));
        memset(scales, 0, (size_t)rows * sizeof *scales);
        for (int64_t i = 0; i < rows * cols; i++)
            if (!isfinite(w[i]))
                return LATHE_OK;
    }
    LATHE_TRY(encode(self, rows, cols, w, out));
    if (IS(calibrated_by_threads))
        codes[0] = (int8_t)x->host->n_threads();
    if (IS(calibrated_for_worse))
        for (int64_t i = 0; i < rows * cols; i++)
            codes[i] = (int8_t)(codes[i] / 2 * 2);
    if (IS(calibrated_writes_its_inputs))
        ((float *)(uintptr_t)inputs->products)[0] = 0.0f;
    if (IS(divides_by_dead_inputs))
        scales[0] *= inputs->products[0] / inputs->products[0];
    return LATHE_OK;
}

static lathe_status scale_inputs(void *self, const lathe_quant_layers *layers, float *scales)
{
    const instance *x = self;
    for (int64_t i = 0; i < layers->n_places; i++)
        scales[i] = IS(scales_of_zero)      ? 0.0f
                    : IS(scales_by_threads) ? (float)x->host->n_threads()
                                            : 1.0f;
    if (IS(scales_change_a_weight))
        ((float *)(uintptr_t)layers->weights[1])[0] = 0.0f;
    return LATHE_OK;
}

static int64_t config_json(void *self, char *out, int64_t capacity)
{
    const char *text = IS(config_is_no_json) ? "{bits: 8"
                       : IS(source_dtype_breaks_the_config) && source_dtype == LATHE_F16 ? "{"
                       : IS(method_is_not_its_own) ? "{\"quant_method\": \"theirs\", \"bits\": 8}"
                                                   : "{\"quant_method\": \"ours\", \"bits\": 8}";
    const int64_t n = (int64_t)strlen(text);
    (void)self;
    if (n <= capacity || IS(config_ignores_capacity))
        memcpy(out, text, (size_t)n);
    return n;
}

static const lathe_quant_v1 table = {
    .size = sizeof table,
    .revision = LATHE_QUANT_REVISION,
    .accepts = IS(null_accepts) ? NULL : accepts,
    .planes = IS(null_planes) ? NULL : planes,
    .decode_scratch = decode_scratch,
    .encode = IS(null_encode) ? NULL : encode,
    .decode = IS(null_decode) ? NULL : decode,
    .config_json = config_json,
    .part_rows = part_rows,
    .decode_part = decode_part,
    .code_group = HAS_CODES ? code_group : NULL,
    .part_codes = HAS_CODES ? part_codes : NULL,
    .codes = HAS_SCALES ? weight_codes : NULL,
    .part_scales = HAS_SCALES ? part_scales : NULL,
    .activations = HAS_ACTIVATIONS ? activations : NULL,
    .product_fields = IS(product_field_is_no_key) ? unknown_fields : NULL,
    .methods = HAS_FOLDERS ? methods : NULL,
    .read_config = HAS_FOLDERS ? read_config : NULL,
    .meta_suffix = HAS_META ? ".meta" : NULL,
    .weight_meta = HAS_META ? weight_meta : NULL,
    .read_meta = HAS_META ? read_meta : NULL,
    .set_source_dtype = IS(source_dtype_breaks_the_config) ? set_source_dtype : NULL,
    .check_planes = HAS_CHECK_PLANES ? check_planes : NULL,
    .encode_calibrated = HAS_CALIBRATION ? encode_calibrated : NULL,
    .scale_inputs = HAS_CALIBRATION ? scale_inputs : NULL,
};

FAULTY_PLUGIN(LATHE_KIND_QUANT, LATHE_QUANT_REVISION, &table);

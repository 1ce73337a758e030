/* NF4: 4-bit weights in bitsandbytes' layout, with or without double quantization.
 *
 * Sources: arXiv:2305.14314 (NF4, double quantization); bitsandbytes for layout and rounding. All
 * arithmetic is f32 in bitsandbytes' order, so codes, scales and decoded values have its bits.
 */
#include "nf4.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/kit/instance.h"
#include "shared/quant_table.h"

static const lathe_field fields[] = {
    LATHE_FIELD_BOOL("double_quant", "true", "store the scales of the blocks as 8-bit codes"),
    LATHE_FIELD_INT("block_size", "64", 64, 4096, NULL,
                    "elements that share a scale, a power of two; other sizes than 64 are read "
                    "from folders and not made"),
};

static int best_build(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return NF4_AVX512;
    /* every processor with both has F16C, whose name clang 14 does not know here */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return NF4_AVX2;
#endif
    return NF4_PORTABLE;
}

static lathe_status read_values(const lathe_host *host, nf4 *q, const lathe_value *values)
{
    q->block = values[NF4_FIELD_BLOCK_SIZE].i;
    q->file_nested = values[NF4_FIELD_DOUBLE_QUANT].i != 0;
    q->nested = q->file_nested && q->block == NF4_BLOCK;
    q->source_dtype = LATHE_BF16;
    if ((q->block & (q->block - 1)) != 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "block_size",
                             "block_size = %lld; expected a power of two", (long long)q->block);
    q->build = best_build();
    lathe_dynamic_map(q->nested_map, 1);
    return LATHE_OK;
}

static lathe_status nf4_accepts(void *self, int64_t rows, int64_t cols)
{
    const nf4 *q = self;
    if (rows < 1 || cols < 1 || rows > INT64_MAX / 8 / cols)
        return lathe_fail(q->host, LATHE_E_SHAPE, "nf4: a weight of [%lld, %lld]", (long long)rows,
                          (long long)cols);
    return LATHE_OK;
}

static int32_t nf4_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const nf4 *q = self;
    const int64_t n = rows * cols, blocks = nf4_blocks(n);
    const int64_t on_file = (n + q->block - 1) / q->block;
    const int64_t nested = (on_file + NF4_NESTED_BLOCK - 1) / NF4_NESTED_BLOCK;
    const lathe_plane planes[NF4_N_PLANES] = {
        {"weight", "", lathe_desc_2d(LATHE_U8, (n + 1) / 2, 1)},
        {"absmax", ".absmax", lathe_desc_1d(q->nested ? LATHE_U8 : LATHE_F32, blocks)},
        {"quant_map", ".quant_map", lathe_desc_1d(LATHE_F32, 16)},
        {"nested_absmax", ".nested_absmax", lathe_desc_1d(LATHE_F32, nested)},
        {"nested_quant_map", ".nested_quant_map", lathe_desc_1d(LATHE_F32, 256)},
        {"nested_offset", NULL, lathe_desc_1d(LATHE_F32, 1)},
    };
    const lathe_plane larger[] = {
        planes[NF4_WEIGHT],
        {"absmax", NULL, lathe_desc_1d(LATHE_F32, blocks)},
        planes[NF4_MAP],
        {"file_absmax", ".absmax", lathe_desc_1d(q->file_nested ? LATHE_U8 : LATHE_F32, on_file)},
        planes[NF4_NESTED_ABSMAX],
        planes[NF4_NESTED_MAP],
    };
    if (q->block != NF4_BLOCK) {
        const int32_t n_larger = q->file_nested ? NF4_FILE_NESTED_MAP + 1 : NF4_FILE_ABSMAX + 1;
        memcpy(out, larger, (size_t)n_larger * sizeof *larger);
        return n_larger;
    }
    const int32_t count = q->nested ? NF4_N_PLANES : NF4_NESTED_ABSMAX;
    memcpy(out, planes, (size_t)count * sizeof *planes);
    return count;
}

/* ---- encoding ---- */

typedef struct encode_job {
    const float *w;
    int64_t n;
    uint8_t *bytes;
    float *scales; /* [blocks] */
    nf4_encode_fn encode;
    int32_t bad; /* 1 if some value is not finite; threads only set it to 1 */
} encode_job;

static void encode_blocks(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    encode_job *job = arg;
    uint8_t codes[NF4_BLOCK];
    (void)worker;
    for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * NF4_BLOCK;
        const int64_t left = job->n - first, count = left < NF4_BLOCK ? left : NF4_BLOCK;
        const float scale = job->encode(job->w + first, count, count < NF4_BLOCK, codes);
        if (scale < 0)
            __atomic_store_n(&job->bad, 1, __ATOMIC_RELAXED);
        job->scales[block] = scale;
        /* codes beyond the end encode zeros; one of them fills the last nibble of an odd count */
        for (int64_t i = 0; i < (count + 1) / 2; i++)
            job->bytes[first / 2 + i] = (uint8_t)(codes[2 * i] << 4 | codes[2 * i + 1]);
    }
}

/* Index of the map value nearest to x, by midpoints; on a midpoint, the lower one. */
static uint8_t nearest(const float map[256], float x)
{
    int low = 0, high = 255; /* the answer is in [low, high] */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (x > (map[middle] + map[middle + 1]) / 2.0f)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint8_t)low;
}

/* Encodes scales [blocks] minus their mean as 8-bit codes, in blocks of 256. */
static void encode_scales(const nf4 *q, const float *scales, int64_t blocks, void *const *planes)
{
    uint8_t *codes = planes[NF4_ABSMAX];
    float *tops = planes[NF4_NESTED_ABSMAX];
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++)
        sum += (double)scales[i];
    const float offset = (float)(sum / (double)blocks);
    for (int64_t first = 0; first < blocks; first += NF4_NESTED_BLOCK) {
        const int64_t end = first + NF4_NESTED_BLOCK < blocks ? first + NF4_NESTED_BLOCK : blocks;
        const int last = end - first < NF4_NESTED_BLOCK;
        float top = 0;
        for (int64_t i = first; i < end; i++)
            top = fmaxf(top, fabsf(scales[i] - offset));
        const float divisor = fmaxf(top, 1e-38f), inverse = 1.0f / divisor;
        for (int64_t i = first; i < end; i++) {
            const float x = scales[i] - offset;
            codes[i] = nearest(q->nested_map, last ? x / divisor : x * inverse);
        }
        tops[first / NF4_NESTED_BLOCK] = last ? divisor : top;
    }
    *(float *)planes[NF4_OFFSET] = offset;
    memcpy(planes[NF4_NESTED_MAP], q->nested_map, sizeof q->nested_map);
}

static lathe_status nf4_encode(void *self, int64_t rows, int64_t cols, const float *w,
                               void *const *planes)
{
    const nf4 *q = self;
    const int64_t n = rows * cols, blocks = nf4_blocks(n);
    LATHE_TRY(nf4_accepts(self, rows, cols));
    if (q->block != NF4_BLOCK)
        return lathe_fail_at(
            q->host, LATHE_E_UNSUPPORTED, "block_size",
            "nf4: blocks of %lld elements are read from folders and not made: leave "
            "block_size at %d",
            (long long)q->block, NF4_BLOCK);
    float *scales = q->nested ? malloc((size_t)blocks * sizeof *scales) : planes[NF4_ABSMAX];
    if (scales == NULL)
        return lathe_fail(q->host, LATHE_E_NOMEM, "nf4: no memory for %lld scales",
                          (long long)blocks);
    encode_job job = {w,
                      n,
                      planes[NF4_WEIGHT],
                      scales,
                      q->build == NF4_AVX512 ? nf4_encode_block_avx512 : nf4_encode_block,
                      0};
    q->host->parallel_for(blocks, 256, encode_blocks, &job);
    memcpy(planes[NF4_MAP], nf4_map, sizeof nf4_map);
    if (q->nested && !job.bad)
        encode_scales(q, scales, blocks, planes);
    if (q->nested)
        free(scales);
    if (job.bad)
        return lathe_fail(q->host, LATHE_E_NUMERIC,
                          "nf4: the weight [%lld, %lld] holds values that are not finite",
                          (long long)rows, (long long)cols);
    return LATHE_OK;
}

/* ---- decoding ---- */

static const nf4_decode_fn decoders[NF4_N_BUILDS] = {nf4_decode_blocks, nf4_decode_blocks_avx2,
                                                     nf4_decode_blocks_avx512};

typedef struct decode_job {
    const void *const *planes;
    const nf4 *q;
    int64_t n; /* elements of the weight */
    char *out;
    int32_t dtype;
} decode_job;

/* Decodes elements [at, at + n) of one block, the last of which may be short. */
static void decode_slice(const decode_job *job, int64_t at, int64_t n, void *out)
{
    const int64_t block = at / NF4_BLOCK, width = lathe_dtype_bytes(job->dtype);
    const int64_t left = job->n - block * NF4_BLOCK, held = left < NF4_BLOCK ? left : NF4_BLOCK;
    const float scale = nf4_scale(job->planes, job->q->nested, block);
    uint8_t bytes[NF4_BLOCK / 2] = {0};
    float values[NF4_BLOCK];
    memcpy(bytes, (const uint8_t *)job->planes[NF4_WEIGHT] + block * (NF4_BLOCK / 2),
           (size_t)(held + 1) / 2);
    const void *const one[NF4_N_PLANES] = {bytes, &scale, job->planes[NF4_MAP], NULL, NULL, NULL};
    decoders[job->q->build](one, 0, 0, 1, values, job->dtype);
    memcpy(out, (const char *)values + at % NF4_BLOCK * width, (size_t)(n * width));
}

/* Decodes elements [at, at + n) of the weight. */
static void decode_run(const decode_job *job, int64_t at, int64_t n, char *out)
{
    const int64_t width = lathe_dtype_bytes(job->dtype), end = at + n;
    while (at < end) {
        const int64_t in = at % NF4_BLOCK, whole = (end - at) / NF4_BLOCK;
        int64_t done = whole * NF4_BLOCK;
        if (in == 0 && whole > 0) {
            decoders[job->q->build](job->planes, job->q->nested, at / NF4_BLOCK, whole, out,
                                    job->dtype);
        } else {
            done = end - at < NF4_BLOCK - in ? end - at : NF4_BLOCK - in;
            decode_slice(job, at, done, out);
        }
        at += done;
        out += done * width;
    }
}

static void decode_blocks(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const decode_job *job = arg;
    const int64_t from = begin * NF4_BLOCK, last = end * NF4_BLOCK;
    (void)worker;
    decode_run(job, from, (last < job->n ? last : job->n) - from,
               job->out + from * lathe_dtype_bytes(job->dtype));
}

static lathe_status nf4_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                               void *w, int32_t dtype, void *scratch, void *stream)
{
    const nf4 *q = self;
    (void)scratch;
    (void)stream;
    if (dtype != LATHE_F32 && dtype != LATHE_BF16 && dtype != LATHE_F16)
        return lathe_fail(q->host, LATHE_E_DTYPE, "nf4: decodes to f32, bf16 or f16, not to %s",
                          lathe_dtype_name(dtype));
    decode_job job = {planes, q, rows * cols, w, dtype};
    q->host->parallel_for(nf4_blocks(job.n), 1024, decode_blocks, &job);
    return LATHE_OK;
}

static void nf4_decode_part(void *self, int64_t rows, int64_t cols, const void *const *planes,
                            const lathe_weight_part *part, void *out, int32_t dtype)
{
    const decode_job job = {planes, self, rows * cols, out, dtype};
    const int64_t row_bytes = part->stride * lathe_dtype_bytes(dtype);
    for (int64_t i = 0; i < part->runs * part->rows; i++) {
        const int64_t row = part->row + i / part->rows * part->distance + i % part->rows;
        decode_run(&job, row * cols + part->col, part->cols, job.out + i * row_bytes);
    }
}

/* Groups are the blocks, where rows begin with one. */
static int64_t nf4_code_group(void *self, int64_t rows, int64_t cols)
{
    (void)self;
    (void)rows;
    return cols % NF4_BLOCK == 0 ? NF4_BLOCK : 0;
}

static int32_t nf4_part_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                              const lathe_weight_part *part, int32_t dtype, float *values,
                              void *room, lathe_part_codes *out)
{
    const nf4 *q = self;
    (void)rows;
    (void)room;
    for (int64_t i = 0; i < part->runs * part->rows; i++) {
        const int64_t row = part->row + i / part->rows * part->distance + i % part->rows;
        const int64_t first = (row * cols + part->col) / NF4_BLOCK, n = part->cols / NF4_BLOCK;
        nf4_code_values(q->build, planes, q->nested, first, n, values, dtype);
        values += n * LATHE_CODE_VALUES;
    }
    *out = (lathe_part_codes){.codes = (const uint8_t *)planes[NF4_WEIGHT] +
                                       (part->row * cols + part->col) / 2,
                              .row_bytes = cols / 2,
                              .run_bytes = part->distance * cols / 2,
                              .layout = LATHE_CODES_HIGH_FIRST};
    return 1;
}

/* Found by a search of all factors from 1 to 2: with this one the map loses least when it is
 * rounded to bf16. The root of the mean square is 3.2e-4 of the largest value; that of rounded
 * weights is 8.3e-4. */
#define NF4_FACTOR 1.43701171875f

static int32_t nf4_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                         lathe_weight_codes *out)
{
    const float *const map = planes != NULL ? (const float *)planes[NF4_MAP] : nf4_map;
    (void)self;
    (void)rows;
    if (cols % NF4_BLOCK != 0)
        return 0;
    *out = (lathe_weight_codes){.order = LATHE_CODES_HIGH_FIRST,
                                .bits = 4,
                                .values = LATHE_VALUES_TABLE,
                                .plane = NF4_WEIGHT,
                                .group = NF4_BLOCK};
    for (int i = 0; i < 16; i++)
        out->table[i] = map[i] * NF4_FACTOR;
    return 1;
}

static void nf4_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                            const lathe_weight_part *part, float *scales, float *offsets)
{
    const nf4 *q = self;
    const int64_t n = part->cols / NF4_BLOCK;
    (void)rows;
    (void)offsets;
    for (int64_t i = 0; i < part->runs * part->rows; i++) {
        const int64_t row = part->row + i / part->rows * part->distance + i % part->rows;
        float *const to = scales + i * part->stride;
        nf4_scales(q->build, planes, q->nested, (row * cols + part->col) / NF4_BLOCK, n, to);
        for (int64_t k = 0; k < n; k++)
            to[k] *= 1.0f / NF4_FACTOR;
    }
}

static void nf4_image_settings(void *self, int64_t *out)
{
    out[0] = ((const nf4 *)self)->nested;
}

static const lathe_quant_v1 nf4_table = {
    CODEC_TABLE(nf4),
    .code_group = nf4_code_group,
    .part_codes = nf4_part_codes,
    .weight_meta = nf4_weight_meta,
    .read_meta = nf4_read_meta,
    .meta_suffix = ".quant_state.bitsandbytes__nf4",
    .methods = nf4_methods,
    .image_settings = nf4_image_settings,
    .stores_conv1d = 1,
    .set_source_dtype = nf4_set_source_dtype,
};

LATHE_INSTANCE(nf4, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(nf4),
    CODEC_KIND,
    .version = "1.1.0",
    .summary = "4-bit NormalFloat weights in bitsandbytes' layout, with double quantization",
    .source = "arXiv:2305.14314",
    .license = "Apache-2.0",
};

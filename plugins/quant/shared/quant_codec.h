/* Shared by the quantization formats on the host: the choice of instruction set, a decode loop over
 * spans of rows, rounding to the output dtype, magnitudes, and the usual errors.
 *
 * A format gives a span function, which decodes a piece of one row to f32. CODEC_DECODER compiles
 * it three times (portable, AVX2, AVX-512) together with the rounding. All three give the same
 * bits, because plugins are compiled without contraction of floating-point expressions.
 */
#ifndef LATHE_QUANT_CODEC_H
#define LATHE_QUANT_CODEC_H

#include <string.h>

#include "lathe/plugin.h"
#include "lathe/quant.h"
#include "shared/codec_avx2.h"
#include "shared/codec_avx512.h"
#include "shared/quant_table.h"

enum { CODEC_PORTABLE, CODEC_AVX2, CODEC_AVX512, CODEC_N_BUILDS };

#define CODEC_BODY static inline __attribute__((always_inline))
#if defined(__x86_64__)
#define CODEC_FOR_AVX2 __attribute__((target("avx2,f16c")))
#define CODEC_FOR_AVX512                                                                           \
    __attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")))
#else
#define CODEC_FOR_AVX2
#define CODEC_FOR_AVX512
#endif

/* A span begins at a multiple of CODEC_SPAN in its row, so groups of 16, 32, 64 or 128 columns
 * begin with a span. Its f32 values stay in the L1 cache until they are rounded. */
enum { CODEC_SPAN = 512 };

/** The head of every instance: the tests choose the build by its second member. */
typedef struct codec_head {
    const lathe_host *host;
    int32_t build; /* CODEC_PORTABLE, ... */
} codec_head;

static inline int32_t codec_best_build(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return CODEC_AVX512;
    /* every processor with both has F16C, whose name clang 14 does not know here */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return CODEC_AVX2;
#endif
    return CODEC_PORTABLE;
}

/** One weight that is encoded, or of which a part is decoded. */
typedef struct codec_job {
    const codec_head *self;
    int64_t rows, cols;
    const void *const *planes; /* decode */
    void *out;                 /* [last - first, end - col], `stride` elements from row to row */
    int64_t first, last;       /* rows that are decoded */
    int64_t col, end;          /* columns, from a multiple of LATHE_PART_COLS on */
    int64_t stride;
    int32_t dtype;
    const float *w; /* encode */
    void *const *made;
    float *scratch;
    int32_t bad; /* 1: a value is not finite; threads only set it to 1 */
} codec_job;

/* ---- loops ---- */

/* name: an array of the body's three builds, for codec_rows. body: void (void *job, int64_t
 * begin, int64_t end, int build). build: a constant, CODEC_PORTABLE, ..., by which the body may
 * call codec_avx2.h or codec_avx512.h. */
#define CODEC_BUILDS(name, body)                                                                   \
    static void name##_portable(void *job, int64_t begin, int64_t end, int32_t worker)             \
    {                                                                                              \
        (void)worker;                                                                              \
        body(job, begin, end, CODEC_PORTABLE);                                                     \
    }                                                                                              \
    CODEC_FOR_AVX2 static void name##_avx2(void *job, int64_t begin, int64_t end, int32_t worker)  \
    {                                                                                              \
        (void)worker;                                                                              \
        body(job, begin, end, CODEC_AVX2);                                                         \
    }                                                                                              \
    CODEC_FOR_AVX512 static void name##_avx512(void *job, int64_t begin, int64_t end,              \
                                               int32_t worker)                                     \
    {                                                                                              \
        (void)worker;                                                                              \
        body(job, begin, end, CODEC_AVX512);                                                       \
    }                                                                                              \
    static const lathe_range_fn name[CODEC_N_BUILDS] = {name##_portable, name##_avx2,              \
                                                        name##_avx512};

/* Like CODEC_BUILDS, for a body without the build: void (void *job, int64_t begin, int64_t end). */
#define CODEC_LOOP(name, body)                                                                     \
    CODEC_BODY void name##_any(void *job, int64_t begin, int64_t end, int build)                   \
    {                                                                                              \
        (void)build;                                                                               \
        body(job, begin, end);                                                                     \
    }                                                                                              \
    CODEC_BUILDS(name, name##_any)

/** Where column `col` of row `row` is decoded to. */
CODEC_BODY void *codec_place(const codec_job *job, int64_t row, int64_t col)
{
    const int64_t i = (row - job->first) * job->stride + col - job->col;
    return (char *)job->out + i * (job->dtype == LATHE_F32 ? 4 : 2);
}

/* name: an array of three builds of a loop that decodes rows with span(const codec_job *, int64_t
 * row, int64_t col, int64_t n, float *out, int build). Row i of the loop is row first + i. */
#define CODEC_DECODER(name, span)                                                                  \
    CODEC_BODY void name##_rows(const codec_job *job, int64_t begin, int64_t end, int build)       \
    {                                                                                              \
        for (int64_t row = job->first + begin; row < job->first + end; row++)                      \
            for (int64_t col = job->col; col < job->end; col += CODEC_SPAN) {                      \
                const int64_t left = job->end - col, n = left < CODEC_SPAN ? left : CODEC_SPAN;    \
                void *const out = codec_place(job, row, col);                                      \
                float values[CODEC_SPAN];                                                          \
                if (job->dtype == LATHE_F32) {                                                     \
                    span(job, row, col, n, out, build);                                            \
                    continue;                                                                      \
                }                                                                                  \
                span(job, row, col, n, values, build);                                             \
                codec_round(values, n, out, job->dtype, build);                                    \
            }                                                                                      \
    }                                                                                              \
    CODEC_BUILDS(name, name##_rows)

/** Stores n values as bf16 or f16, as lathe_quant_store does. */
CODEC_BODY void codec_round(const float *x, int64_t n, void *out, int32_t dtype, int build)
{
    uint16_t *const y = out;
    if (build == CODEC_AVX512 && dtype == LATHE_BF16)
        wide_to_bf16(x, n, y);
    else if (build == CODEC_AVX512)
        wide_to_f16(x, n, y);
    else if (build == CODEC_AVX2 && dtype == LATHE_BF16)
        eight_to_bf16(x, n, y);
    else if (build == CODEC_AVX2)
        eight_to_f16(x, n, y);
    else if (dtype == LATHE_BF16)
        for (int64_t i = 0; i < n; i++)
            y[i] = lathe_f32_to_bf16(x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = lathe_f32_to_f16(x[i]);
}

/** Runs a loop over n rows of `cols` columns, about 64 Ki elements at a time. */
static inline void codec_rows(codec_job *job, const lathe_range_fn *loop, int64_t n, int64_t cols)
{
    const int64_t grain = cols >= 65536 ? 1 : 65536 / cols;
    job->self->host->parallel_for(n, grain, loop[job->self->build], job);
}

/* ---- magnitudes ---- */

/** The largest magnitude of n values; -1 if one is not finite. Magnitudes have the same order as
 *  their bits. */
CODEC_BODY float codec_largest(const float *w, int64_t n)
{
    uint32_t top = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &w[i], sizeof bits);
        bits &= 0x7fffffffu;
        top = bits > top ? bits : top;
    }
    float largest;
    memcpy(&largest, &top, sizeof largest);
    return top >= 0x7f800000u ? -1.0f : largest;
}

/* ---- what a table's functions check first ---- */

static inline lathe_status codec_check_dims(const codec_head *self, const char *name, int64_t rows,
                                            int64_t cols)
{
    if (rows < 1 || cols < 1 || rows > INT64_MAX / 8 / cols)
        return lathe_fail(self->host, LATHE_E_SHAPE, "%s: a weight of [%lld, %lld]", name,
                          (long long)rows, (long long)cols);
    return LATHE_OK;
}

/** Refuses a weight whose rows do not hold whole groups. */
static inline lathe_status codec_check_groups(const codec_head *self, const char *name,
                                              int64_t rows, int64_t cols, int64_t group)
{
    LATHE_TRY(codec_check_dims(self, name, rows, cols));
    if (cols % group != 0)
        return lathe_fail(self->host, LATHE_E_SHAPE,
                          "%s: a weight of [%lld, %lld]; the columns must be a multiple of %lld",
                          name, (long long)rows, (long long)cols, (long long)group);
    return LATHE_OK;
}

static inline lathe_status codec_check_dtype(const codec_head *self, const char *name,
                                             int32_t dtype)
{
    if (dtype != LATHE_F32 && dtype != LATHE_BF16 && dtype != LATHE_F16)
        return lathe_fail(self->host, LATHE_E_DTYPE, "%s: decodes to f32, bf16 or f16, not to %s",
                          name, lathe_dtype_name(dtype));
    return LATHE_OK;
}

/** The status of a finished encode: fails if a value was not finite. */
static inline lathe_status codec_encoded(const codec_job *job, const char *name)
{
    if (!job->bad)
        return LATHE_OK;
    return lathe_fail(job->self->host, LATHE_E_NUMERIC,
                      "%s: the weight [%lld, %lld] holds values that are not finite", name,
                      (long long)job->rows, (long long)job->cols);
}

CODEC_BODY void codec_set_bad(codec_job *job)
{
    __atomic_store_n(&job->bad, 1, __ATOMIC_RELAXED);
}

/** lathe_quant_v1.code_group of a format with groups of `group` columns, which rows hold whole: the
 *  largest number that divides them and the row, and that LATHE_PART_COLS is a multiple of. */
static inline int64_t codec_code_group(int64_t group, int64_t cols)
{
    for (int64_t n = LATHE_PART_COLS; n >= 32; n /= 2)
        if (group % n == 0 && cols % n == 0)
            return n;
    return 0;
}

/** Prefetches what lies after n bytes of scales: a product reads these a few rows at a time, with
 *  long runs of codes between, so that the hardware does not. */
CODEC_BODY void codec_prefetch(const uint8_t *scales, int64_t n)
{
    enum { AHEAD = 4096, LINE = 64 };
    for (int64_t i = 0; i < n; i += LINE)
        __builtin_prefetch(scales + AHEAD + i);
}

/** A value of part_codes, rounded to a dtype. */
CODEC_BODY float codec_rounded(float x, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return x;
    return dtype == LATHE_BF16 ? lathe_bf16_to_f32(lathe_f32_to_bf16(x))
                               : lathe_f16_to_f32(lathe_f32_to_f16(x));
}

/** Row i of a part. */
static inline int64_t codec_part_row(const lathe_weight_part *part, int64_t i)
{
    return part->row + i / part->rows * part->distance + i % part->rows;
}

/** The job of decoding all of a weight. */
static inline codec_job codec_whole(const codec_head *self, int64_t rows, int64_t cols,
                                    const void *const *planes, void *w, int32_t dtype)
{
    const codec_job job = {.self = self,
                           .rows = rows,
                           .cols = cols,
                           .planes = planes,
                           .out = w,
                           .last = rows,
                           .end = cols,
                           .stride = cols,
                           .dtype = dtype};
    return job;
}

/** The decode function of a table: checks the dtype and runs the loop over all rows. */
static inline lathe_status codec_decode(const codec_head *self, const char *name, int64_t rows,
                                        int64_t cols, const void *const *planes, void *w,
                                        int32_t dtype, const lathe_range_fn *loop)
{
    LATHE_TRY(codec_check_dtype(self, name, dtype));
    codec_job job = codec_whole(self, rows, cols, planes, w, dtype);
    codec_rows(&job, loop, rows, cols);
    return LATHE_OK;
}

/** The decode_part function of a table, on the calling thread. unit: rows of the weight in a row of
 *  the loop. */
static inline void codec_part(const codec_head *self, int64_t rows, int64_t cols,
                              const void *const *planes, const lathe_weight_part *part, void *out,
                              int32_t dtype, const lathe_range_fn *loop, int64_t unit)
{
    codec_job job = codec_whole(self, rows, cols, planes, out, dtype);
    job.col = part->col;
    job.end = part->col + part->cols;
    job.stride = part->stride;
    for (int64_t k = 0; k < part->runs; k++) {
        job.first = part->row + k * part->distance;
        job.last = job.first + part->rows;
        job.out = (char *)out + k * part->rows * part->stride * lathe_dtype_bytes(dtype);
        loop[self->build](&job, 0, (part->rows + unit - 1) / unit, 0);
    }
}

/* Defines type##_decode_part, which runs a loop of CODEC_BUILDS. unit: as in codec_part. */
#define CODEC_DECODE_PART(type, loop, unit)                                                        \
    static void type##_decode_part(void *self, int64_t rows, int64_t cols,                         \
                                   const void *const *planes, const lathe_weight_part *part,       \
                                   void *out, int32_t dtype)                                       \
    {                                                                                              \
        codec_part(self, rows, cols, planes, part, out, dtype, loop, unit);                        \
    }

/* Defines type##_decode and type##_decode_part, which run one loop over the rows. The host decodes
 * in the caller's memory, at once: it needs neither scratch nor a stream. */
#define CODEC_DECODE(type, loop)                                                                   \
    static lathe_status type##_decode(void *self, int64_t rows, int64_t cols,                      \
                                      const void *const *planes, void *w, int32_t dtype,           \
                                      void *scratch, void *stream)                                 \
    {                                                                                              \
        (void)scratch;                                                                             \
        (void)stream;                                                                              \
        return codec_decode(self, #type, rows, cols, planes, w, dtype, loop);                      \
    }                                                                                              \
    CODEC_DECODE_PART(type, loop, 1)

#endif

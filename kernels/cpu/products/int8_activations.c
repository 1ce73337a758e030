/* A row is read twice: for its largest magnitude, and to be rounded. Magnitudes are compared as the
 * bits of f32 numbers, which have the order of the numbers, with infinity and NaN above them.
 *
 *   scratch: | codes | masks | scales | sums | outliers |
 */
#include "products/int8_activations.h"

#include <float.h>
#include <math.h>

#include "products/int8_simd.h"

#define STEP_127 7.874015718698502e-3f /* 1/127 */
#define MAGNITUDE 0x7fffffff
#define INFINITE 0x7f800000

#if VL == 16
typedef uint16_t lane_mask;
#else
typedef uint8_t lane_mask;
#endif

typedef struct fill_job {
    int8_inputs to;
    int8_t *codes;
    uint64_t *masks;
    float *scales;
    int32_t *sums, *outliers;
    int32_t below; /* magnitudes above these bits are outliers */
} fill_job;

static int64_t row_stride(int64_t k)
{
    return cpu_round_up(k, INT8_BLOCK);
}

int64_t int8_inputs_bytes(int64_t m, int64_t k)
{
    const int64_t stride = row_stride(k);
    return cpu_round_up(m * (stride + stride / 8 + 12), 64);
}

/* ---- vectors of integers ---- */

/* Bit i: lane i of a is above b. *io_kept: the lanes of a where it is not. */
CPU_INLINE lane_mask lanes_above(vi a, vi b, vi *out_kept)
{
#if VL == 16
    const __mmask16 above = _mm512_cmpgt_epi32_mask(a, b);
    *out_kept = _mm512_maskz_mov_epi32((__mmask16)~above, a);
    return above;
#else
    const __m256i above = _mm256_cmpgt_epi32(a, b);
    *out_kept = _mm256_andnot_si256(above, a);
    return (lane_mask)_mm256_movemask_ps(_mm256_castsi256_ps(above));
#endif
}

/* Rounds x * factor to even, with zeros in the lanes of the mask; stores the VL codes. */
CPU_INLINE vi store_codes(int8_t *to, vf x, vf factor, lane_mask out)
{
#if VL == 16
    const __m512i c = _mm512_maskz_cvtps_epi32((__mmask16)~out, _mm512_mul_ps(x, factor));
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(c));
#else
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i gone = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(out), bits), bits);
    const __m256i c = _mm256_andnot_si256(gone, _mm256_cvtps_epi32(_mm256_mul_ps(x, factor)));
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packs_epi16(words, words));
#endif
    return c;
}

/* ---- a row ---- */

/* Elements [i, i + VL) of a row of k, with zeros beyond the last. */
CPU_INLINE vf load_end(const void *row, int64_t i, int64_t k, int32_t dtype)
{
    float line[VL] = {0};
    if (i + VL <= k)
        return v_load_as(row, i, dtype);
    for (int64_t j = i; j < k; j++)
        line[j - i] = ld(row, j, dtype);
    return v_load(line);
}

/* Sets the mask of a row; returns the bits of the largest magnitude below the threshold. *out_most:
 * of all. */
CPU_INLINE int32_t find_largest(const fill_job *job, const void *row, int64_t r, int32_t *out_most,
                                int32_t dtype)
{
    const int64_t k = job->to.k;
    lane_mask *const masks = (lane_mask *)(void *)(job->masks + r * (job->to.stride / 64));
    vi all = i_zero(), kept = i_zero();
    int32_t lanes[2][VL], most = 0, largest = 0, n = 0;
    memset(masks, 0, (size_t)job->to.stride / 8);
    for (int64_t i = 0; i < k; i += VL) {
        vi below;
        const vi x = i_and(i_bits_of(load_end(row, i, k, dtype)), i_set(MAGNITUDE));
        masks[i / VL] = lanes_above(x, i_set(job->below), &below);
        n += __builtin_popcount(masks[i / VL]);
        all = i_max(all, x);
        kept = i_max(kept, below);
    }
    i_store(lanes[0], all);
    i_store(lanes[1], kept);
    for (int i = 0; i < VL; i++) {
        most = lanes[0][i] > most ? lanes[0][i] : most;
        largest = lanes[1][i] > largest ? lanes[1][i] : largest;
    }
    job->outliers[r] = n;
    *out_most = most;
    return largest;
}

CPU_INLINE void round_row(const fill_job *job, const void *row, int64_t r, float factor,
                          int32_t dtype)
{
    const int64_t k = job->to.k;
    const lane_mask *const masks =
        (const lane_mask *)(const void *)(job->masks + r * (job->to.stride / 64));
    int8_t *const codes = job->codes + r * job->to.stride;
    vi sums = i_zero();
    for (int64_t i = 0; i < job->to.stride; i += VL)
        sums = i_add(sums, store_codes(codes + i, i < k ? load_end(row, i, k, dtype) : v_zero(),
                                       v_set(factor), masks[i / VL]));
    job->sums[r] = (int32_t)((uint32_t)i_sum(sums) << 7);
}

/* A row with an element that is not finite has NaN as its scale, and codes of zeros, so that each
 * of its products is NaN. */
CPU_INLINE void fill_row(const fill_job *job, int64_t r, int32_t dtype)
{
    const void *const row = at(job->to.x, r * job->to.k, dtype);
    int32_t most = 0;
    float largest;
    const int32_t bits = find_largest(job, row, r, &most, dtype);
    memcpy(&largest, &bits, sizeof largest);
    const float factor = 127.0f / largest; /* infinity: the codes would be those of nothing */
    job->scales[r] = largest * STEP_127;
    if (most < INFINITE && factor <= FLT_MAX) {
        round_row(job, row, r, factor, dtype);
        return;
    }
    memset(job->codes + r * job->to.stride, 0, (size_t)job->to.stride);
    job->sums[r] = 0;
    job->scales[r] = 0.0f;
    if (most >= INFINITE) {
        job->scales[r] = NAN;
        job->outliers[r] = 0;
        memset(job->masks + r * (job->to.stride / 64), 0, (size_t)job->to.stride / 8);
    }
}

static void fill_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const fill_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        CPU_BY_DTYPE(job->to.dtype, fill_row, job, r);
}

void int8_inputs_fill(const lathe_host *host, const void *x, int32_t dtype, int64_t m, int64_t k,
                      float threshold, void *to, int8_inputs *out)
{
    const int64_t stride = row_stride(k);
    fill_job job = {.codes = to, .below = MAGNITUDE};
    job.masks = (uint64_t *)(void *)(job.codes + m * stride);
    job.scales = (float *)(void *)(job.masks + m * (stride / 64));
    job.sums = (int32_t *)(void *)(job.scales + m);
    job.outliers = job.sums + m;
    if (threshold > 0.0f) {
        memcpy(&job.below, &threshold, sizeof job.below);
        job.below--;
    }
    job.to = (int8_inputs){x,         m,         k,          dtype,    stride,
                           job.codes, job.masks, job.scales, job.sums, job.outliers};
    host->parallel_for(m, cpu_row_grain(k), fill_range, &job);
    *out = job.to;
}

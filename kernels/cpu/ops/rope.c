/* ROPE: rotates the two halves of R elements of every head, those after its first `start`, or with
 * `interleaved` their even and odd elements, by the angles of its position.
 *
 *   y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin;  inverse: sin negated; the other elements stay
 *   x c[N,H*D], pos i32[N], table f32[P,2,R/2]; y may be x
 */
#include "base/cpu.h"
#include "base/element.h"

typedef struct rope_job {
    const lathe_kernel *k;
    const lathe_kernel_args *a;
    int64_t width, d, half; /* half: R/2 */
} rope_job;

CPU_INLINE void rotate(const void *x, void *y, const float *cosines, float sign, int64_t half,
                       int accumulate, int32_t dtype)
{
    const float *sines = cosines + half;
#pragma GCC ivdep
    for (int64_t i = 0; i < half; i++) {
        const float c = cosines[i], s = sign * sines[i];
        const float x1 = ld(x, i, dtype), x2 = ld(x, i + half, dtype);
        st(y, i, dtype, accumulate, x1 * c - x2 * s);
        st(y, i + half, dtype, accumulate, x2 * c + x1 * s);
    }
}

CPU_INLINE void rotate_pairs(const void *x, void *y, const float *cosines, float sign, int64_t half,
                             int accumulate, int32_t dtype)
{
    const float *sines = cosines + half;
#pragma GCC ivdep
    for (int64_t i = 0; i < half; i++) {
        const float c = cosines[i], s = sign * sines[i];
        const float x1 = ld(x, 2 * i, dtype), x2 = ld(x, 2 * i + 1, dtype);
        st(y, 2 * i, dtype, accumulate, x1 * c - x2 * s);
        st(y, 2 * i + 1, dtype, accumulate, x2 * c + x1 * s);
    }
}

CPU_INLINE void keep(const void *x, void *y, int64_t n, int accumulate, int32_t dtype)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        st(y, i, dtype, accumulate, ld(x, i, dtype));
}

/* One head. */
CPU_INLINE void turn(const rope_job *job, const void *x, void *y, const float *row, float sign,
                     int accumulate, int32_t dtype)
{
    const int64_t start = job->k->attrs.start, rest = job->d - start - 2 * job->half;
    if (start > 0 && (accumulate || x != y))
        keep(x, y, start, accumulate, dtype);
    x = at(x, start, dtype);
    y = at_mut(y, start, dtype);
    if (job->k->attrs.interleaved)
        rotate_pairs(x, y, row, sign, job->half, accumulate, dtype);
    else
        rotate(x, y, row, sign, job->half, accumulate, dtype);
    if (rest > 0 && (accumulate || x != y))
        keep(at(x, 2 * job->half, dtype), at_mut(y, 2 * job->half, dtype), rest, accumulate, dtype);
}

static void rope_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const rope_job *job = arg;
    const lathe_kernel_args *a = job->a;
    const int32_t dtype = job->k->in[0].dtype;
    const int32_t *pos = a->in[1];
    const float sign = job->k->attrs.inverse ? -1.0f : 1.0f;
    (void)worker;
    for (int64_t n = begin; n < end; n++) {
        const float *row = (const float *)a->in[2] + pos[n] * 2 * job->half;
        for (int64_t h = 0; h < job->width; h += job->d) {
            const void *x = at(a->in[0], n * job->width + h, dtype);
            void *y = at_mut(a->out[0], n * job->width + h, dtype);
            if (a->accumulate & 1u)
                CPU_BY_DTYPE(dtype, turn, job, x, y, row, sign, 1);
            else
                CPU_BY_DTYPE(dtype, turn, job, x, y, row, sign, 0);
        }
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t rows = lathe_desc_count(&k->in[1]), positions = k->in[2].dims[0];
    const int32_t *pos = a->in[1];
    for (int64_t i = 0; i < rows; i++)
        if (pos[i] < 0 || pos[i] >= positions)
            return lathe_fail(k->host, LATHE_E_ARG,
                              "rope: position %d of row %lld is outside the table of %lld",
                              (int)pos[i], (long long)i, (long long)positions);
    rope_job job = {k, a, lathe_desc_count(&k->in[0]) / rows, k->attrs.head_dim, k->in[2].dims[2]};
    k->host->parallel_for(rows, cpu_row_grain(job.width), rope_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(ROPE) = {NULL, run, NULL, 1};

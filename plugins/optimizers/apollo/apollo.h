/* Formulas of APOLLO for the CPU loops and the GPU kernels, and the GPU kernels. A line is a row
 * or a column of a matrix (shared/low_rank.h). */
#ifndef LATHE_APOLLO_H
#define LATHE_APOLLO_H

#include "lathe/kit/normal.h"
#include "shared/low_rank_queue.h"

#define GROWTH 1.01
#define RNG_STREAM UINT64_C(0x41504f4c4c4f) /* differs from the streams of dropout and rounding */
#define MAX_PARTIALS 1024
#define APOLLO_LINES 32 /* lines that a block of threads measures at a time */

enum { SLOT_M, SLOT_V, SLOT_NORM };

/** Values that are the same for all projected tensors of a step. */
typedef struct apollo_step {
    uint64_t epoch;   /* number of the projectors */
    double rank_root; /* square root of the tensor's rank */
    double root;      /* square root of the configured scale */
    int32_t per_tensor, scale_front, limits, is_first;
} apollo_step;
LATHE_ABI_SIZE(apollo_step, 40);

/** Computes the numbers 2*pair and 2*pair + 1 of a tensor's projector. */
LATHE_HD static inline void apollo_pair(const apollo_step *s, uint64_t seed, int32_t tensor,
                                        int64_t pair, float out[2])
{
    double first, second;
    lathe_normal_pair(
        lathe_rng_block(seed, s->epoch, RNG_STREAM ^ (uint64_t)tensor, (uint64_t)pair), &first,
        &second);
    out[0] = (float)(first / s->rank_root);
    out[1] = (float)(second / s->rank_root);
}

/** Returns a line's scale, from the sums of squares of its N and of its R. */
LATHE_HD static inline double apollo_scale(double n2, double r2)
{
    return sqrt(n2) / (sqrt(r2) + 1e-8);
}

/** Lines per partial sum, whole groups of LATHE_LINES; there are at most MAX_PARTIALS sums. */
LATHE_HD static inline int64_t apollo_run(int64_t lines)
{
    const int64_t fit = (lines + MAX_PARTIALS - 1) / MAX_PARTIALS;
    return (fit + LATHE_LINES - 1) / LATHE_LINES * LATHE_LINES;
}

/** Returns the limiter's factor on the whole update, from the sums of squares of N, of R and of
 *  G (of the scaled G, if there is a scale per line); updates the stored norm. */
LATHE_HD static inline float apollo_limit(const apollo_step *s, double n2, double r2, double g2,
                                          float *kept_norm)
{
    double by = s->per_tensor ? apollo_scale(n2, r2) : 1.0;
    double norm = by * sqrt(g2) * (s->scale_front ? s->root : 1.0);
    if (s->limits && !s->is_first) {
        const double growth = norm / ((double)*kept_norm + 1e-8);
        const double limiter = (growth > GROWTH ? growth : GROWTH) / GROWTH;
        by /= limiter;
        norm /= limiter;
    }
    if (s->limits)
        *kept_norm = (float)norm;
    return (float)(by * s->root);
}

/** Arguments of the kernels. */
typedef struct apollo_args {
    lathe_low_rank_args low;
    apollo_step step;
    double *squares;   /* [3, lines] of N, R and G */
    float *projector;  /* [rank, length], and one extra if that is odd */
    float *line_scale; /* [lines] */
    float *factor;     /* [1] */
} apollo_args;
LATHE_ABI_SIZE(apollo_args, 216);

#ifdef __CUDACC__

#include "lathe/kit/ordered_sums_cuda.h"

LATHE_CUDA_KERNEL(apollo_projector, LATHE_ELEMENTWISE_THREADS, apollo_args)
{
    const int64_t n_pairs = (a.low.rank * a.low.length + 1) / 2;
    const int32_t tensor = a.low.on.tensors[a.low.t].tensor;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t pair = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; pair < n_pairs;
         pair += stride)
        apollo_pair(&a.step, a.low.on.counter[0], tensor, pair, a.projector + 2 * pair);
}

LATHE_STATIC_ASSERT(APOLLO_LINES <= LATHE_RUNS, "a thread has the sums of a line");

/* Computes scales and squares of lines. */
LATHE_CUDA_KERNEL(apollo_lines, LATHE_ELEMENTWISE_THREADS, apollo_args)
{
    const lathe_low_rank_args *const low = &a.low;
    const float *const g = low->on.tensors[low->t].grad, *const r = low->r, *const u = low->u;
    const float scale = low->on.scalars[LATHE_SCALAR_GRAD_SCALE];
    const int64_t lines = low->lines, length = low->length;
    const int by_columns = low->by_columns;
    for (int64_t at = (int64_t)blockIdx.x * APOLLO_LINES; at < lines;
         at += (int64_t)gridDim.x * APOLLO_LINES) {
        const int n = lines - at < APOLLO_LINES ? (int)(lines - at) : APOLLO_LINES;
        const double r2 = lathe_run_sum(n, low->rank, 1, [=](int l, int64_t k) {
            const double x = (double)r[k * lines + at + l];
            return x * x;
        });
        const double n2 = lathe_run_sum(n, low->rank, 1, [=](int l, int64_t k) {
            const double x = (double)u[k * lines + at + l];
            return x * x;
        });
        const double g2 = lathe_run_sum(n, length, by_columns, [=](int l, int64_t j) {
            const int64_t i = by_columns ? j * lines + at + l : (at + l) * length + j;
            const double x = (double)(g[i] * scale);
            return x * x;
        });
        if ((int)threadIdx.x < n) {
            const int64_t line = at + threadIdx.x;
            const double s = apollo_scale(n2, r2);
            a.line_scale[line] = a.step.per_tensor ? 1.0f : (float)s;
            a.squares[line] = n2;
            a.squares[lines + line] = r2;
            a.squares[2 * lines + line] = a.step.per_tensor ? g2 : s * s * g2;
        }
    }
}

/* Sums one number per line, run by run. All threads must call it, and all get the sum. */
static __device__ inline double sum_of_lines(const double *x, int64_t lines)
{
    __shared__ double part[MAX_PARTIALS];
    const int64_t run = apollo_run(lines), n_runs = (lines + run - 1) / run;
    for (int64_t k = threadIdx.x; k < n_runs; k += blockDim.x) {
        const int64_t end = (k + 1) * run < lines ? (k + 1) * run : lines;
        double sum = 0.0;
        for (int64_t l = k * run; l < end; l++)
            sum += x[l];
        part[k] = sum;
    }
    __syncthreads();
    return lathe_ordered_sum(part, n_runs);
}

/* Runs with one block. */
LATHE_CUDA_KERNEL(apollo_limiter, LATHE_ELEMENTWISE_THREADS, apollo_args)
{
    const int64_t lines = a.low.lines;
    const double n2 = sum_of_lines(a.squares, lines);
    const double r2 = sum_of_lines(a.squares + lines, lines);
    const double g2 = sum_of_lines(a.squares + 2 * lines, lines);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *a.factor =
            apollo_limit(&a.step, n2, r2, g2, (float *)a.low.on.tensors[a.low.t].slots[SLOT_NORM]);
}

LATHE_CUDA_KERNEL(apollo_apply, LATHE_ELEMENTWISE_THREADS, apollo_args)
{
    const lathe_low_rank_args *const low = &a.low;
    const lathe_optimizer_tensor *const x = low->on.tensors + low->t;
    const float scale = low->on.scalars[LATHE_SCALAR_GRAD_SCALE];
    const int64_t first = low->on.first_chunk[low->t], n_chunks = lathe_queue_chunks(x);
    float factor, decay;
    lathe_low_rank_rates(low->on.scalars, x->lr_mult, low->weight_decay, x->weight_decay_mult,
                         &factor, &decay);
    factor *= *a.factor;
    for (int64_t chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        const lathe_elementwise_chunk c = lathe_elementwise_chunk_of(&low->on, first + chunk);
        double change = 0.0, size = 0.0;
        for (int64_t i = c.begin + threadIdx.x; i < c.end; i += blockDim.x) {
            const float s = a.line_scale[low->by_columns ? i % x->cols : i / x->cols];
            const float was = x->param[i];
            const float now = lathe_low_rank_move(was, x->grad[i] * scale * s, factor, decay);
            x->param[i] = now;
            lathe_elementwise_done(x, i, was, now, &change, &size);
        }
        lathe_elementwise_sums(&low->on, first + chunk, change, size);
    }
}

#endif

#endif

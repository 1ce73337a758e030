/* The kernels of adafactor.h, in the order in which a step queues them. As in the elementwise
 * kernel, a block of threads processes a chunk; of each loop it takes the part that corresponds to
 * its chunk. `means` and `rates` have one block per tensor. Bound by memory: the gradient is read
 * five times, the parameter twice. */
#ifndef LATHE_ADAFACTOR_CUDA_H
#define LATHE_ADAFACTOR_CUDA_H

#include "adafactor.h"
#include "lathe/kit/ordered_sums_cuda.h"

/* The data of a chunk. */
typedef struct tensor_chunk {
    lathe_elementwise_chunk c;
    const lathe_optimizer_tensor *x;
    int64_t number; /* number of the chunk in its tensor */
    float scale;    /* factor on the gradient */
    int is_matrix;
} tensor_chunk;

static __device__ inline tensor_chunk chunk_of(const adafactor_args *a, int64_t chunk)
{
    tensor_chunk k;
    k.c = lathe_elementwise_chunk_of(&a->on, chunk);
    k.x = k.c.x;
    k.number = k.c.begin / LATHE_ELEMENTWISE_CHUNK;
    k.scale = a->on.scalars[LATHE_SCALAR_GRAD_SCALE];
    k.is_matrix = adafactor_is_matrix(&a->step, k.x);
    return k;
}

/* Computes the partial sums of square(i) over the elements of a tensor. A run is at least a chunk
 * long, so there are at most as many partial sums as chunks; every LATHE_RUNS-th chunk computes
 * LATHE_RUNS of them. */
template <typename Square>
static __device__ inline void partial_sums(const adafactor_args *a, const tensor_chunk *k,
                                           const Square &square)
{
    const int64_t n = k->x->n, run = adafactor_run(n, LATHE_CHUNK_ELEMENTS);
    const int64_t n_partials = (n + run - 1) / run;
    if (k->number % LATHE_RUNS != 0 || k->number >= n_partials)
        return;
    const int64_t left = n_partials - k->number, from = k->number * run;
    const int n_runs = left < LATHE_RUNS ? (int)left : LATHE_RUNS;
    const double sum = lathe_run_sum(n_runs, run, 0, [=](int r, int64_t j) {
        const int64_t i = from + r * run + j;
        return i < n ? square(i) : 0.0; /* the last run is shorter */
    });
    if ((int)threadIdx.x < n_runs)
        a->partial[a->on.first_chunk[k->c.t] + k->number + threadIdx.x] = sum;
}

/* Sum of a tensor's partial sums, on all threads. */
static __device__ inline double sum_of_partials(const adafactor_args *a, int64_t t)
{
    const int64_t n = a->on.tensors[t].n, run = adafactor_run(n, LATHE_CHUNK_ELEMENTS);
    return lathe_ordered_sum(a->partial + a->on.first_chunk[t], (n + run - 1) / run);
}

LATHE_CUDA_KERNEL(adafactor_sizes, LATHE_ELEMENTWISE_THREADS, adafactor_args)
{
    for (int64_t chunk = blockIdx.x; chunk < a.on.n_chunks; chunk += gridDim.x) {
        const tensor_chunk k = chunk_of(&a, chunk);
        const float *const p = k.x->param;
        partial_sums(&a, &k, [=](int64_t i) { return (double)p[i] * (double)p[i]; });
    }
}

/* Updates R of the rows that begin in the chunk, or V of its elements. */
LATHE_CUDA_KERNEL(adafactor_rows, LATHE_ELEMENTWISE_THREADS, adafactor_args)
{
    for (int64_t chunk = blockIdx.x; chunk < a.on.n_chunks; chunk += gridDim.x) {
        const tensor_chunk k = chunk_of(&a, chunk);
        const adafactor_step s = a.step;
        const float *const g = k.x->grad;
        const float scale = k.scale;
        if (!k.is_matrix) {
            float *const v = (float *)k.x->slots[SLOT_V];
            for (int64_t i = k.c.begin + threadIdx.x; i < k.c.end; i += blockDim.x)
                v[i] = adafactor_moment(&s, adafactor_square(&s, g[i] * scale), v[i]);
            continue;
        }
        const int64_t cols = k.x->cols;
        const int64_t first = (k.c.begin + cols - 1) / cols, end = (k.c.end + cols - 1) / cols;
        for (int64_t row = first; row < end; row += LATHE_RUNS) {
            const int n_rows = end - row < LATHE_RUNS ? (int)(end - row) : LATHE_RUNS;
            const double sum = lathe_run_sum(n_rows, cols, 0, [=](int r, int64_t j) {
                return (double)adafactor_square(&s, g[(row + r) * cols + j] * scale);
            });
            if ((int)threadIdx.x < n_rows) {
                float *const at = (float *)k.x->slots[SLOT_ROW] + row + threadIdx.x;
                *at = adafactor_moment(&s, (float)(sum / (double)cols), *at);
            }
        }
    }
}

/* Loads of a thread that are in flight together. */
#define AT_ONCE 8

/* Updates C: one thread per column, over all rows. */
LATHE_CUDA_KERNEL(adafactor_cols, LATHE_ELEMENTWISE_THREADS, adafactor_args)
{
    for (int64_t chunk = blockIdx.x; chunk < a.on.n_chunks; chunk += gridDim.x) {
        const tensor_chunk k = chunk_of(&a, chunk);
        const int64_t rows = k.x->rows, cols = k.x->cols;
        const int64_t stride = lathe_queue_chunks(k.x) * blockDim.x;
        if (!k.is_matrix)
            continue;
        for (int64_t col = k.number * blockDim.x + threadIdx.x; col < cols; col += stride) {
            const float *const g = k.x->grad + col;
            double sum = 0.0;
            for (int64_t r = 0; r < rows; r += AT_ONCE) {
                float x[AT_ONCE];
                for (int i = 0; i < AT_ONCE; i++)
                    x[i] = r + i < rows ? g[(r + i) * cols] * k.scale : 0.0f;
                for (int i = 0; i < AT_ONCE; i++)
                    if (r + i < rows)
                        sum += (double)adafactor_square(&a.step, x[i]);
            }
            float *const at = (float *)k.x->slots[SLOT_COL] + col;
            *at = adafactor_moment(&a.step, (float)(sum / (double)rows), *at);
        }
    }
}

/* Computes the size and mean(R) of a tensor. */
LATHE_CUDA_KERNEL(adafactor_means, LATHE_ELEMENTWISE_THREADS, adafactor_args)
{
    __shared__ double part[ADAFACTOR_PARTIALS];
    for (int64_t t = blockIdx.x; t < a.on.n_tensors; t += gridDim.x) {
        const lathe_optimizer_tensor *const x = a.on.tensors + t;
        adafactor_tensor now = {1.0, 1.0f, 0.0f, 0.0f, 0.0f};
        if (x->n < 1)
            continue;
        if (a.step.scales_by_parameter)
            now.size = adafactor_size(&a.step, sum_of_partials(&a, t), x->n);
        if (adafactor_is_matrix(&a.step, x)) {
            const int64_t run = adafactor_row_run(x), n_runs = (x->rows + run - 1) / run;
            const float *const row = (const float *)x->slots[SLOT_ROW];
            for (int64_t k = threadIdx.x; k < n_runs; k += blockDim.x) {
                const int64_t end = (k + 1) * run < x->rows ? (k + 1) * run : x->rows;
                double sum = 0.0;
                for (int64_t r = k * run; r < end; r++)
                    sum += (double)row[r];
                part[k] = sum;
            }
            __syncthreads();
            now.inverse_mean = (float)((double)x->rows / lathe_ordered_sum(part, n_runs));
        }
        if (threadIdx.x == 0)
            a.tensors[t] = now;
    }
}

/* u of element i. */
static __device__ inline float direction(const tensor_chunk *k, float inverse_mean, int64_t i)
{
    const float g = k->x->grad[i] * k->scale;
    if (!k->is_matrix)
        return adafactor_direction(1.0f, ((const float *)k->x->slots[SLOT_V])[i], g);
    const int64_t row = i / k->x->cols;
    return adafactor_direction(
        adafactor_row_factor(((const float *)k->x->slots[SLOT_ROW])[row], inverse_mean),
        ((const float *)k->x->slots[SLOT_COL])[i - row * k->x->cols], g);
}

LATHE_CUDA_KERNEL(adafactor_updates, LATHE_ELEMENTWISE_THREADS, adafactor_args)
{
    for (int64_t chunk = blockIdx.x; chunk < a.on.n_chunks; chunk += gridDim.x) {
        const tensor_chunk k = chunk_of(&a, chunk);
        const float inverse_mean = a.tensors[k.c.t].inverse_mean;
        partial_sums(&a, &k, [=](int64_t i) {
            const double u = (double)direction(&k, inverse_mean, i);
            return u * u;
        });
    }
}

LATHE_CUDA_KERNEL(adafactor_rates, LATHE_ELEMENTWISE_THREADS, adafactor_args)
{
    for (int64_t t = blockIdx.x; t < a.on.n_tensors; t += gridDim.x) {
        const lathe_optimizer_tensor *const x = a.on.tensors + t;
        const double lr = (double)a.on.scalars[LATHE_SCALAR_LR] * x->lr_mult * a.step.rate;
        if (x->n < 1)
            continue;
        const double squares = sum_of_partials(&a, t);
        if (threadIdx.x == 0)
            adafactor_tensor_rates(&a.step, lr, x->weight_decay_mult, squares, x->n, &a.tensors[t]);
    }
}

LATHE_CUDA_KERNEL(lathe_elementwise_step, LATHE_ELEMENTWISE_THREADS, adafactor_args)
{
    for (int64_t chunk = blockIdx.x; chunk < a.on.n_chunks; chunk += gridDim.x) {
        const tensor_chunk k = chunk_of(&a, chunk);
        const adafactor_tensor t = a.tensors[k.c.t];
        float *const m = (float *)(a.step.has_beta1 ? k.x->slots[k.is_matrix ? 2 : 1] : NULL);
        double change = 0.0, size = 0.0;
        for (int64_t i = k.c.begin + threadIdx.x; i < k.c.end; i += blockDim.x) {
            const float was = k.x->param[i];
            const float now = adafactor_move(&a.step, &t, direction(&k, t.inverse_mean, i), was,
                                             m != NULL ? m + i : NULL);
            k.x->param[i] = now;
            lathe_elementwise_done(k.x, i, was, now, &change, &size);
        }
        lathe_elementwise_sums(&a.on, chunk, change, size);
    }
}

#endif

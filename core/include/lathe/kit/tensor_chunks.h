/* Splits the tensors of an optimizer step into chunks and runs them in parallel on the CPU.
 *
 * For CPU optimizers that cannot be written as one element function. The optimizer gives the chunk
 * size of each tensor: 16,384 elements, a number of rows, or a block with its scale. The split
 * depends only on the tensors, never on the thread count. Nothing is allocated.
 */
#ifndef LATHE_KIT_TENSOR_CHUNKS_H
#define LATHE_KIT_TENSOR_CHUNKS_H

#include "lathe/optimizer.h"

/* Compiles a loop for three instruction sets; the dynamic loader chooses the best one. The
 * portable version calls fmaf, which is exact but slow on CPUs without this instruction. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define LATHE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LATHE_CLONES
#endif

/** Prefetches n floats. For loops that read a block of each of several arrays in turn, a pattern
 *  that the hardware prefetcher does not recognize. */
static inline void lathe_prefetch(const float *x, int64_t n)
{
#ifdef __GNUC__
    for (int64_t i = 0; i < n; i += 64 / (int64_t)sizeof *x)
        __builtin_prefetch(&x[i]);
#else
    (void)x, (void)n;
#endif
}

/** Updates elements [begin, end) of one tensor; begin is a multiple of the tensor's chunk. */
typedef void (*lathe_chunk_fn)(void *ctx, const lathe_optimizer_step *step,
                               const lathe_optimizer_tensor *x, int64_t begin, int64_t end);

/** Elements per chunk of a tensor, >= 1. */
typedef int64_t (*lathe_chunk_size_fn)(void *ctx, const lathe_optimizer_tensor *x);

/* Default number of elements per chunk. */
#define LATHE_CHUNK_ELEMENTS 16384

/* Size of the table of first chunks, which has only every stride-th tensor and so fits on the
 * stack. */
#define LATHE_CHUNK_SAMPLES 256

typedef struct lathe_chunk_job {
    const lathe_optimizer_step *step;
    lathe_chunk_fn fn;
    lathe_chunk_size_fn size;
    void *ctx;
    int64_t n_chunks, stride, n_samples;
    int64_t sample[LATHE_CHUNK_SAMPLES];
} lathe_chunk_job;

static inline int64_t lathe_chunks_of(const lathe_chunk_job *job, const lathe_optimizer_tensor *x)
{
    const int64_t size = job->size(job->ctx, x);
    return (x->n + size - 1) / size;
}

static inline void lathe_chunk_body(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const lathe_chunk_job *const job = (const lathe_chunk_job *)arg;
    (void)worker;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        int64_t lo = 0, hi = job->n_samples - 1;
        while (lo < hi) {
            const int64_t mid = (lo + hi + 1) / 2;
            if (job->sample[mid] <= chunk)
                lo = mid;
            else
                hi = mid - 1;
        }
        const lathe_optimizer_tensor *x = job->step->tensors + lo * job->stride;
        int64_t skip = chunk - job->sample[lo];
        for (; skip >= lathe_chunks_of(job, x); x++)
            skip -= lathe_chunks_of(job, x);
        const int64_t size = job->size(job->ctx, x), at = skip * size;
        job->fn(job->ctx, job->step, x, at, at + size < x->n ? at + size : x->n);
    }
}

/** LATHE_E_ARG: tensor t of the step lacks param, grad or one of its first n_slots slots. */
static inline lathe_status lathe_tensor_check(const lathe_host *host,
                                              const lathe_optimizer_step *step, int32_t t,
                                              int32_t n_slots)
{
    const lathe_optimizer_tensor *const x = step->tensors + t;
    if (x->n < 0 || (x->n > 0 && (x->param == NULL || x->grad == NULL)))
        return lathe_fail(host, LATHE_E_ARG,
                          "tensor %d of the step: %lld elements, param %p, grad %p", t,
                          (long long)x->n, (void *)x->param, (const void *)x->grad);
    for (int32_t k = 0; k < n_slots; k++)
        if (x->n > 0 && x->slots[k] == NULL)
            return lathe_fail(host, LATHE_E_ARG, "tensor %d of the step: state slot %d is NULL", t,
                              k);
    return LATHE_OK;
}

/** LATHE_E_ARG: the step has less scratch than the `bytes` that this tensor needs. */
static inline lathe_status lathe_scratch_check(const lathe_host *host,
                                               const lathe_optimizer_step *step,
                                               const lathe_optimizer_tensor *x, int64_t bytes)
{
    if (step->scratch != NULL && step->scratch_bytes >= bytes)
        return LATHE_OK;
    return lathe_fail(host, LATHE_E_ARG, "tensor %d needs %lld bytes of scratch, the step has %lld",
                      x->tensor, (long long)bytes, (long long)step->scratch_bytes);
}

/** Updates one whole tensor; runs its own parallel loops. */
typedef lathe_status (*lathe_tensor_fn)(void *ctx, const lathe_optimizer_step *step,
                                        const lathe_optimizer_tensor *x);

/** Calls fn for each tensor that has elements, one after the other. n_slots as in
 *  lathe_chunks_run. */
static inline lathe_status lathe_tensors_run(const lathe_host *host,
                                             const lathe_optimizer_step *step, int32_t n_slots,
                                             lathe_tensor_fn fn, void *ctx)
{
    for (int32_t t = 0; t < step->n_tensors; t++) {
        LATHE_TRY(lathe_tensor_check(host, step, t, n_slots));
        if (step->tensors[t].n > 0)
            LATHE_TRY(fn(ctx, step, &step->tensors[t]));
    }
    return LATHE_OK;
}

static inline int64_t lathe_chunk_elements(void *ctx, const lathe_optimizer_tensor *x)
{
    (void)ctx, (void)x;
    return LATHE_CHUNK_ELEMENTS;
}

/** Calls fn in parallel for each chunk of each tensor. n_slots: slots that every tensor must
 *  have. */
static inline lathe_status lathe_chunks_run(const lathe_host *host,
                                            const lathe_optimizer_step *step, int32_t n_slots,
                                            lathe_chunk_size_fn size, lathe_chunk_fn fn, void *ctx)
{
    lathe_chunk_job job;
    job.step = step;
    job.fn = fn;
    job.size = size;
    job.ctx = ctx;
    job.n_chunks = job.n_samples = 0;
    job.stride = step->n_tensors / LATHE_CHUNK_SAMPLES + 1;
    for (int32_t t = 0; t < step->n_tensors; t++) {
        LATHE_TRY(lathe_tensor_check(host, step, t, n_slots));
        if (t % job.stride == 0)
            job.sample[job.n_samples++] = job.n_chunks;
        job.n_chunks += lathe_chunks_of(&job, step->tensors + t);
    }
    if (job.n_chunks > 0)
        host->parallel_for(job.n_chunks, 1, lathe_chunk_body, &job);
    return LATHE_OK;
}

/** Rounds elements [begin, end) of the parameter into its compute copy, if it has one. */
LATHE_CLONES static inline void lathe_shadow_refresh(const lathe_optimizer_tensor *x, int64_t begin,
                                                     int64_t end)
{
    const float *__restrict__ const from = x->param;
    uint16_t *__restrict__ const to = x->shadow;
    if (to == NULL)
        return;
    if (x->shadow_dtype == LATHE_F16)
        for (int64_t i = begin; i < end; i++)
            to[i] = lathe_f32_to_f16(from[i]);
    else
        for (int64_t i = begin; i < end; i++)
            to[i] = lathe_f32_to_bf16(from[i]);
}

#endif

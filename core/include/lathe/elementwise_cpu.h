/* The CPU half of elementwise.h: the vectorised loop, and its spread over the host's threads. Not
 * included alone. */
#ifndef LATHE_ELEMENTWISE_CPU_H
#define LATHE_ELEMENTWISE_CPU_H

#include "elementwise.h"

/* The CPU loop is compiled for three instruction sets; the loader's resolver takes the best. The
 * portable one calls fmaf, which is exact but slow without the instruction. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define LATHE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LATHE_CLONES
#endif

/** Updates n elements; the pointers of a tensor, advanced to the chunk's first element. */
typedef void (*lathe_elementwise_fn)(const float *scalars, const lathe_optimizer_tensor *x,
                                     uint64_t seed, uint64_t step);

#define LATHE_ELEMENTWISE(name, n_slots)                                                           \
    LATHE_CLONES static void name##_loop(                                                          \
        const name##_uniform *uniform, float grad_scale, float *__restrict__ p,                    \
        const float *__restrict__ g, float *__restrict__ s0, float *__restrict__ s1,               \
        float *__restrict__ s2, float *__restrict__ s3, uint16_t *__restrict__ shadow, int64_t n,  \
        int64_t first, uint64_t tensor, uint64_t seed, uint64_t step)                              \
    {                                                                                              \
        const name##_uniform u = *uniform;                                                         \
        (void)s0, (void)s1, (void)s2, (void)s3;                                                    \
        if (shadow == NULL)                                                                        \
            for (int64_t i = 0; i < n; i++) {                                                      \
                LATHE_ELEMENTWISE_BODY(name, n_slots)                                              \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                LATHE_ELEMENTWISE_BODY(name, n_slots)                                              \
                shadow[i] = lathe_f32_to_bf16(updated);                                            \
            }                                                                                      \
    }                                                                                              \
    static void name##_chunk(const float *scalars, const lathe_optimizer_tensor *x, uint64_t seed, \
                             uint64_t step)                                                        \
    {                                                                                              \
        const name##_uniform u =                                                                   \
            name##_prepare(scalars, (float)x->lr_mult, (float)x->weight_decay_mult);               \
        name##_loop(&u, scalars[LATHE_SCALAR_GRAD_SCALE], x->param, x->grad, (float *)x->slots[0], \
                    (float *)x->slots[1], (float *)x->slots[2], (float *)x->slots[3], x->shadow,   \
                    x->n, x->first, (uint64_t)x->tensor, seed, step);                              \
    }

/* first_chunk is kept for every stride-th tensor only, so that it fits the stack. */
#define LATHE_ELEMENTWISE_SAMPLES 256

typedef struct lathe_elementwise_job {
    const lathe_optimizer_step *step;
    lathe_elementwise_fn fn;
    int64_t n_chunks, stride, n_samples;
    int64_t sample[LATHE_ELEMENTWISE_SAMPLES];
} lathe_elementwise_job;

static inline int64_t lathe_elementwise_chunks(const lathe_optimizer_tensor *x)
{
    return (x->n + LATHE_ELEMENTWISE_CHUNK - 1) / LATHE_ELEMENTWISE_CHUNK;
}

static inline void lathe_elementwise_body(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const lathe_elementwise_job *const job = (const lathe_elementwise_job *)arg;
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
        const lathe_optimizer_tensor *t = job->step->tensors + lo * job->stride;
        int64_t skip = chunk - job->sample[lo];
        for (; skip >= lathe_elementwise_chunks(t); t++)
            skip -= lathe_elementwise_chunks(t);
        lathe_optimizer_tensor x = *t;
        const int64_t at = skip * LATHE_ELEMENTWISE_CHUNK;
        x.n = x.n - at < LATHE_ELEMENTWISE_CHUNK ? x.n - at : LATHE_ELEMENTWISE_CHUNK;
        x.first += at;
        x.param += at;
        x.grad += at;
        x.shadow = x.shadow != NULL ? x.shadow + at : NULL;
        for (int k = 0; k < LATHE_MAX_SLOTS; k++)
            x.slots[k] = x.slots[k] != NULL ? (float *)x.slots[k] + at : NULL;
        job->fn(job->step->scalars, &x, job->step->seed, (uint64_t)job->step->step);
    }
}

/** One optimizer step over all tensors: fn for each chunk, spread over host->parallel_for.
 *  Allocates nothing; the result does not depend on the thread count. LATHE_E_ARG: a tensor without
 *  param, grad or one of its n_slots slots. */
static inline lathe_status lathe_elementwise_run(const lathe_host *host,
                                                 const lathe_optimizer_step *step, int32_t n_slots,
                                                 lathe_elementwise_fn fn)
{
    lathe_elementwise_job job;
    job.step = step;
    job.fn = fn;
    job.n_chunks = job.n_samples = 0;
    job.stride = step->n_tensors / LATHE_ELEMENTWISE_SAMPLES + 1;
    for (int32_t t = 0; t < step->n_tensors; t++) {
        const lathe_optimizer_tensor *const x = step->tensors + t;
        if (x->n < 0 || (x->n > 0 && (x->param == NULL || x->grad == NULL)))
            return lathe_fail(host, LATHE_E_ARG,
                              "tensor %d of the step: %lld elements, param %p, grad %p", t,
                              (long long)x->n, (void *)x->param, (const void *)x->grad);
        for (int32_t k = 0; k < n_slots; k++)
            if (x->n > 0 && x->slots[k] == NULL)
                return lathe_fail(host, LATHE_E_ARG, "tensor %d of the step: state slot %d is NULL",
                                  t, k);
        if (t % job.stride == 0)
            job.sample[job.n_samples++] = job.n_chunks;
        job.n_chunks += lathe_elementwise_chunks(x);
    }
    if (job.n_chunks > 0)
        host->parallel_for(job.n_chunks, 1, lathe_elementwise_body, &job);
    return LATHE_OK;
}

#endif

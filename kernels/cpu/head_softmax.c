/* The softmax of the vocabulary head: online statistics and the gradient of a block of logits. */
#include "head_softmax.h"

#include <math.h>

#include "vecmath.h"

#define LANES 32

CPU_INLINE float capped(float l, float cap, int has_cap)
{
    return has_cap ? cap * cpu_tanh(l / cap) : l;
}

CPU_INLINE float row_max(const void *l, int64_t n, float cap, int has_cap, int32_t dtype)
{
    float lanes[LANES];
    for (int64_t j = 0; j < LANES; j++)
        lanes[j] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int64_t j = 0; j < LANES; j++) {
            const float v = ld(l, i + j, dtype);
            lanes[j] = v > lanes[j] ? v : lanes[j];
        }
    for (; i < n; i++) {
        const float v = ld(l, i, dtype);
        lanes[0] = v > lanes[0] ? v : lanes[0];
    }
    float m = lanes[0];
    for (int64_t j = 1; j < LANES; j++)
        m = lanes[j] > m ? lanes[j] : m;
    return capped(m, cap, has_cap); /* the cap is increasing */
}

CPU_INLINE void observe_row(const void *l, int64_t n, float cap, int has_cap, int64_t target,
                            head_row *row, int32_t dtype)
{
    const float block_max = row_max(l, n, cap, has_cap, dtype);
    const float m = block_max > row->max ? block_max : row->max;
    const float shift = m > -INFINITY ? m : 0.0f; /* all -inf so far: exp gives 0, not NaN */
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += cpu_exp(capped(ld(l, i, dtype), cap, has_cap) - shift);
    row->sum = row->sum * exp((double)row->max - (double)shift) + (double)sum;
    row->max = m;
    if (target >= 0 && target < n)
        row->target = capped(ld(l, target, dtype), cap, has_cap);
}

CPU_INLINE void gradient_row(void *l, int64_t n, float cap, int has_cap, int64_t target, float lse,
                             float dlogp, int32_t dtype)
{
    float onto_target = 0.0f;
    if (target >= 0 && target < n) {
        const float s = capped(ld(l, target, dtype), cap, has_cap);
        const float slope = has_cap ? 1.0f - (s / cap) * (s / cap) : 1.0f;
        onto_target = dlogp * (1.0f - cpu_exp(s - lse)) * slope;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        const float s = capped(ld(l, i, dtype), cap, has_cap);
        const float slope = has_cap ? 1.0f - (s / cap) * (s / cap) : 1.0f;
        st(l, i, dtype, 0, -dlogp * cpu_exp(s - lse) * slope);
    }
    if (target >= 0 && target < n)
        st(l, target, dtype, 0, onto_target);
}

static void observe_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const head_block *b = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const void *l = at(b->logits, r * b->width, b->dtype);
        if (b->targets[r] < 0)
            continue;
        const int64_t target = b->targets[r] - b->first;
        if (b->softcap > 0.0f)
            CPU_BY_DTYPE(b->dtype, observe_row, l, b->width, b->softcap, 1, target, b->state + r);
        else
            CPU_BY_DTYPE(b->dtype, observe_row, l, b->width, 0.0f, 0, target, b->state + r);
    }
}

static void gradient_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const head_block *b = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        void *l = at_mut(b->logits, r * b->width, b->dtype);
        const int64_t target = b->targets[r] - b->first;
        if (b->targets[r] < 0 || b->dlogp[r] == 0.0f)
            memset(l, 0, (size_t)(b->width * lathe_dtype_bytes(b->dtype)));
        else if (b->softcap > 0.0f)
            CPU_BY_DTYPE(b->dtype, gradient_row, l, b->width, b->softcap, 1, target, b->lse[r],
                         b->dlogp[r]);
        else
            CPU_BY_DTYPE(b->dtype, gradient_row, l, b->width, 0.0f, 0, target, b->lse[r],
                         b->dlogp[r]);
    }
}

void cpu_head_observe(const lathe_host *host, head_block *block)
{
    host->parallel_for(block->rows, 4, observe_range, block);
}

void cpu_head_gradient(const lathe_host *host, head_block *block)
{
    host->parallel_for(block->rows, 4, gradient_range, block);
}

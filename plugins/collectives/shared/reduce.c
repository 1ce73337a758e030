/* Reductions of several ranks' elements in the order of ranks, in blocks of a fixed length. */
#include "shared/reduce.h"

enum { BLOCK = 512, GRAIN = 16384 };

typedef struct job {
    const void *const *x;
    void *out;
    int32_t n_ranks, reduce;
} job;

/* Defines the reduction of one type. Sums are made in sum_type, unsigned for integers, so that they
 * wrap around. In MAX and MIN a NaN is taken, and no comparison replaces one. The accumulator is a
 * block on the stack, because out may be one of the inputs. */
#define DEFINE(name, type, load, store, acc_type, sum_type)                                        \
    static void name##_fold(acc_type *acc, const type *x, int64_t n, int32_t reduce)               \
    {                                                                                              \
        if (reduce == LATHE_REDUCE_SUM)                                                            \
            for (int64_t i = 0; i < n; i++)                                                        \
                acc[i] = (acc_type)((sum_type)acc[i] + (sum_type)load(x[i]));                      \
        else if (reduce == LATHE_REDUCE_MAX)                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const acc_type v = load(x[i]);                                                     \
                acc[i] = v > acc[i] || v != v ? v : acc[i];                                        \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const acc_type v = load(x[i]);                                                     \
                acc[i] = v < acc[i] || v != v ? v : acc[i];                                        \
            }                                                                                      \
    }                                                                                              \
    static void name(void *arg, int64_t begin, int64_t end, int32_t worker)                        \
    {                                                                                              \
        const job *const j = arg;                                                                  \
        (void)worker;                                                                              \
        for (int64_t at = begin; at < end; at += BLOCK) {                                          \
            const int64_t n = end - at < BLOCK ? end - at : BLOCK;                                 \
            acc_type acc[BLOCK];                                                                   \
            const type *const first = (const type *)j->x[0] + at;                                  \
            type *const out = (type *)j->out + at;                                                 \
            for (int64_t i = 0; i < n; i++)                                                        \
                acc[i] = load(first[i]);                                                           \
            for (int32_t q = 1; q < j->n_ranks; q++)                                               \
                name##_fold(acc, (const type *)j->x[q] + at, n, j->reduce);                        \
            for (int64_t i = 0; i < n; i++)                                                        \
                out[i] = store(acc[i]);                                                            \
        }                                                                                          \
    }

#define SAME(x) (x)
DEFINE(reduce_f32, float, SAME, SAME, float, float)
DEFINE(reduce_f64, double, SAME, SAME, double, double)
DEFINE(reduce_bf16, uint16_t, lathe_bf16_to_f32, lathe_f32_to_bf16, float, float)
DEFINE(reduce_f16, uint16_t, lathe_f16_to_f32, lathe_f32_to_f16, float, float)
DEFINE(reduce_i32, int32_t, SAME, SAME, int32_t, uint32_t)
DEFINE(reduce_i64, int64_t, SAME, SAME, int64_t, uint64_t)
DEFINE(reduce_u8, uint8_t, SAME, SAME, uint8_t, uint32_t)

void lathe__reduce(const lathe_host *host, int32_t dtype, int32_t reduce, const void *const *x,
                   int32_t n_ranks, int64_t n, void *out)
{
    static const lathe_range_fn bodies[LATHE_N_DTYPES] = {
        [LATHE_F32] = reduce_f32, [LATHE_F64] = reduce_f64, [LATHE_BF16] = reduce_bf16,
        [LATHE_F16] = reduce_f16, [LATHE_I32] = reduce_i32, [LATHE_I64] = reduce_i64,
        [LATHE_U8] = reduce_u8};
    job j = {x, out, n_ranks, reduce};
    if (n > 0)
        host->parallel_for(n, GRAIN, bodies[dtype], &j);
}

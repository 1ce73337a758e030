/* KV_APPEND: copies x c[B*Tq,W] to positions kv_len[b]-Tq .. kv_len[b]-1 of row b: of cache[b],
 * cache c[B,P,W], or of the row's blocks of P positions, if kv_len is i32[B,1+n]. */
#include "base/cpu.h"
#include "base/element.h"
#include "base/memory.h"

typedef struct append {
    const lathe_desc *cache;
    const int32_t *kv_len;
    int64_t rows, stride; /* kv_len [rows, stride] */
    int64_t tq, positions;
    int32_t in_blocks;
} append;

static append append_of(const lathe_kernel *k, const lathe_kernel_args *a)
{
    append s = {.cache = &k->in[0], .kv_len = a->in[2], .stride = 1};
    s.in_blocks = k->in[2].rank == 2;
    s.rows = s.in_blocks ? k->in[2].dims[0] : s.cache->dims[0];
    s.stride = s.in_blocks ? k->in[2].dims[1] : 1;
    s.tq = lathe_desc_count(&k->in[1]) / (s.rows * s.cache->dims[2]);
    s.positions = s.cache->dims[1] * (s.in_blocks ? s.stride - 1 : 1);
    return s;
}

static lathe_status check(const lathe_kernel *k, const append *s)
{
    for (int64_t i = 0; i < s->rows; i++) {
        const int32_t *len = s->kv_len + i * s->stride;
        if (len[0] < s->tq || len[0] > s->positions)
            return lathe_fail(k->host, LATHE_E_ARG,
                              "kv_append: kv_len[%lld] is %d, expected %lld to %lld", (long long)i,
                              (int)len[0], (long long)s->tq, (long long)s->positions);
        for (int64_t t = len[0] - s->tq; s->in_blocks && t < len[0]; t++) {
            const int32_t block = len[1 + t / s->cache->dims[1]];
            if (block < 0 || block >= s->cache->dims[0])
                return lathe_fail(k->host, LATHE_E_ARG,
                                  "kv_append: row %lld has the block %d, expected 0 to %lld",
                                  (long long)i, (int)block, (long long)s->cache->dims[0] - 1);
        }
    }
    return LATHE_OK;
}

/* Position t of row i, among all positions of the cache. */
static int64_t position(const append *s, int64_t i, int64_t t)
{
    const int64_t p = s->cache->dims[1];
    return s->in_blocks ? s->kv_len[i * s->stride + 1 + t / p] * p + t % p : i * p + t;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const append s = append_of(k, a);
    const int64_t w = s.cache->dims[2], bytes = w * lathe_dtype_bytes(s.cache->dtype);
    LATHE_TRY(check(k, &s));
    if (a->out[0] != a->in[0])
        LATHE_TRY(cpu_memory_copy(k->device, NULL, a->out[0], a->in[0], lathe_desc_bytes(s.cache),
                                  LATHE_COPY_ON_DEVICE));
    for (int64_t i = 0; i < s.rows; i++)
        for (int64_t t = 0; t < s.tq; t++)
            memcpy((char *)a->out[0] + position(&s, i, s.kv_len[i * s.stride] - s.tq + t) * bytes,
                   (const char *)a->in[1] + (i * s.tq + t) * bytes, (size_t)bytes);
    return LATHE_OK;
}

const kernel_op CPU_OP(KV_APPEND) = {NULL, run, NULL, 0};

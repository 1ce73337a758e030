/* KV_APPEND: copies x c[B*Tq,W] to rows kv_len[b]-Tq .. kv_len[b]-1 of cache[b], cache c[B,P,W]. */
#include "cpu.h"
#include "element.h"

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *cache = &k->in[0];
    const int64_t b = cache->dims[0], p = cache->dims[1], w = cache->dims[2];
    const int64_t tq = lathe_desc_count(&k->in[1]) / (b * w);
    const int32_t *kv_len = a->in[2];
    for (int64_t i = 0; i < b; i++)
        if (kv_len[i] < tq || kv_len[i] > p)
            return lathe_fail(k->host, LATHE_E_ARG,
                              "kv_append: kv_len[%lld] is %d, expected %lld to %lld", (long long)i,
                              (int)kv_len[i], (long long)tq, (long long)p);
    if (a->out[0] != a->in[0])
        LATHE_TRY(cpu_memory_copy(k->device, NULL, a->out[0], a->in[0], lathe_desc_bytes(cache),
                                  LATHE_COPY_ON_DEVICE));
    for (int64_t i = 0; i < b; i++)
        LATHE_TRY(cpu_memory_copy(k->device, NULL,
                                  at_mut(a->out[0], (i * p + kv_len[i] - tq) * w, cache->dtype),
                                  at(a->in[1], i * tq * w, cache->dtype),
                                  tq * w * lathe_dtype_bytes(cache->dtype), LATHE_COPY_ON_DEVICE));
    return LATHE_OK;
}

const kernel_op CPU_OP(KV_APPEND) = {NULL, run, NULL, 0};

/* SLICE: rows start .. start+count-1 of x. Its derivative is zero outside these rows. */
#include <string.h>

#include "base/cast.h"
#include "base/cpu.h"
#include "base/memory.h"

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *y = &k->out[0];
    const int64_t row = lathe_desc_count(y) / k->attrs.count;
    const char *x = (const char *)a->in[0] + k->attrs.start * row * lathe_dtype_bytes(y->dtype);
    if (a->accumulate & 1u)
        cpu_cast(k->host, a->out[0], y->dtype, x, y->dtype, lathe_desc_count(y), 1);
    else
        return cpu_memory_copy(k->device, NULL, a->out[0], x, lathe_desc_bytes(y),
                               LATHE_COPY_ON_DEVICE);
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *dy = &k->in[0];
    const int64_t bytes = lathe_desc_bytes(dy), total = lathe_desc_bytes(&k->out[0]);
    const int64_t before = k->attrs.start * (bytes / k->attrs.count);
    char *dx = a->out[0];
    if (a->accumulate & 1u) {
        cpu_cast(k->host, dx + before, dy->dtype, a->in[0], dy->dtype, lathe_desc_count(dy), 1);
        return LATHE_OK;
    }
    memset(dx, 0, (size_t)before);
    memset(dx + before + bytes, 0, (size_t)(total - before - bytes));
    return cpu_memory_copy(k->device, NULL, dx + before, a->in[0], bytes, LATHE_COPY_ON_DEVICE);
}

const kernel_op CPU_OP(SLICE) = {NULL, run, NULL, 1};
const kernel_op CPU_OP(SLICE_BWD) = {NULL, run_bwd, NULL, 1};

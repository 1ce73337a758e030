/* SLICE: rows start .. start+count-1 of x. Its derivative is zero outside these rows.
 *
 * Uses device copies, or a map (map.cuh) if the result is added to. Moves only the bytes of the
 * slice and of the zeros. */
#include "base/cuda_memory.h"
#include "base/map.cuh"

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *y = &k->out[0];
    const int64_t row = lathe_desc_bytes(y) / k->attrs.count;
    const char *x = (const char *)a->in[0] + k->attrs.start * row;
    if (a->accumulate & 1u)
        return cuda_map_add(k, a, x, a->out[0], y->dtype, lathe_desc_count(y));
    return cuda_memory_copy(k->device, a->stream, a->out[0], x, lathe_desc_bytes(y),
                            LATHE_COPY_ON_DEVICE);
}

static lathe_status clear(const lathe_kernel *k, const lathe_kernel_args *a, char *p, int64_t bytes)
{
    if (bytes == 0)
        return LATHE_OK;
    return cuda_status(k->host, cudaMemsetAsync(p, 0, (size_t)bytes, cuda_stream(a->stream)),
                       kernel_op_name(k));
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *dy = &k->in[0];
    const int64_t bytes = lathe_desc_bytes(dy), total = lathe_desc_bytes(&k->out[0]);
    const int64_t before = k->attrs.start * (bytes / k->attrs.count);
    char *dx = (char *)a->out[0];
    if (a->accumulate & 1u)
        return cuda_map_add(k, a, a->in[0], dx + before, dy->dtype, lathe_desc_count(dy));
    LATHE_TRY(clear(k, a, dx, before));
    LATHE_TRY(clear(k, a, dx + before + bytes, total - before - bytes));
    return cuda_memory_copy(k->device, a->stream, dx + before, a->in[0], bytes,
                            LATHE_COPY_ON_DEVICE);
}

const kernel_op CUDA_OP(SLICE) = {nullptr, run, nullptr, 1};
const kernel_op CUDA_OP(SLICE_BWD) = {nullptr, run_bwd, nullptr, 1};

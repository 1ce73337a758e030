/* Entry points of the CUDA kernels of reference_cuda, which the host code calls. */
#ifndef LATHE_REFERENCE_CUDA_H
#define LATHE_REFERENCE_CUDA_H

#include <cuda_runtime_api.h>

#include "lathe/attention.h"
#include "lathe/host.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { REFERENCE_TILE = 64, REFERENCE_MAX_DIM = 256 };

/** These functions queue kernels and do not wait. Problem and arguments have been checked. */
lathe_status reference_cuda_run_forward(const lathe_host *host, const lathe_attention_problem *p,
                                        const lathe_attention_args *a);
/** delta: scratch, f32 [B,H,Tq]. */
lathe_status reference_cuda_run_backward(const lathe_host *host, const lathe_attention_problem *p,
                                         const lathe_attention_args *a, float *delta);

LATHE_HD static inline int64_t reference_tiles(int64_t n)
{
    return (n + REFERENCE_TILE - 1) / REFERENCE_TILE;
}

#ifdef __cplusplus
}

/** The size of a head of v and o. */
LATHE_HD static inline int32_t reference_value_dim(const lathe_attention_problem &p)
{
    return p.value_dim > 0 ? p.value_dim : p.head_dim;
}
#endif

#endif

/* The reference_cuda attention backend: the problems it supports, checks of arguments, the plugin's
 * table. */
#include "reference_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "lathe/kit/attention_kit.h"

typedef struct reference_cuda {
    const lathe_host *host;
} reference_cuda;

/* 10 * major + minor of the compute capability in "sm_90"; 0: not a CUDA device. */
static long arch_of(const lathe_device_info *device)
{
    return device && strncmp(device->isa, "sm_", 3) == 0 ? strtol(device->isa + 3, NULL, 10) : 0;
}

static int32_t fits(int64_t n, int64_t max)
{
    return n >= 0 && n <= max;
}

static const char *refusal(const lathe_attention_problem *p)
{
    const long arch = arch_of(p->device);
    const int64_t heads = p->batch * p->n_heads;
    if (arch == 0 || p->device->host_memory == LATHE_MEMORY_HOST)
        return "runs on CUDA devices only";
    if (arch < 80)
        return "this build has code from compute capability 8.0 on";
    if (p->head_dim > REFERENCE_MAX_DIM || p->value_dim > REFERENCE_MAX_DIM)
        return "head size is not in 1 .. 256";
    if (!fits(p->t_q, INT32_MAX / 2) || !fits(p->t_k, INT32_MAX / 2) || !fits(p->batch, INT32_MAX))
        return "a row holds more than 2^30 tokens, or dims are negative";
    /* One block per tile and head; the kernel for delta has fewer blocks. */
    if (!fits(heads, INT32_MAX) || !fits(heads * reference_tiles(p->t_q), INT32_MAX) ||
        !fits(heads * reference_tiles(p->t_k), INT32_MAX))
        return "more than 2^31 tiles of 64 tokens";
    return lathe_attention_refusal_in_blocks(p);
}

static int32_t reference_cuda_score(void *self, const lathe_attention_problem *p, char *why,
                                    int64_t why_bytes)
{
    (void)self;
    return lathe_attention_scored(refusal(p), "plain CUDA cores, f32 arithmetic",
                                  LATHE_SCORE_PORTABLE, why, why_bytes);
}

static int64_t reference_cuda_forward_scratch(void *self, const lathe_attention_problem *p)
{
    (void)self;
    (void)p;
    return 0;
}

/* delta, f32 [B,H,Tq] */
static int64_t reference_cuda_backward_scratch(void *self, const lathe_attention_problem *p)
{
    (void)self;
    return p->batch * p->n_heads * p->t_q * (int64_t)sizeof(float);
}

/* The plugin has its own CUDA runtime, so each call selects the same GPU as the device plugin. */
static lathe_status follow(const lathe_host *host, const lathe_attention_problem *p)
{
    const int32_t index = p->device ? p->device->index : 0;
    const cudaError_t error = cudaSetDevice(index);
    if (error != cudaSuccess)
        return lathe_fail(host, LATHE_E_DEVICE, "attention: GPU %d: %s", index,
                          cudaGetErrorString(error));
    return LATHE_OK;
}

static lathe_status reference_cuda_forward(void *self, const lathe_attention_problem *p,
                                           const lathe_attention_args *a)
{
    const lathe_host *const host = lathe_attention_host(self);
    LATHE_TRY(lathe_attention_check(host, p, a, 0));
    LATHE_TRY(follow(host, p));
    return reference_cuda_run_forward(host, p, a);
}

static lathe_status reference_cuda_backward(void *self, const lathe_attention_problem *p,
                                            const lathe_attention_args *a)
{
    const lathe_host *const host = lathe_attention_host(self);
    LATHE_TRY(lathe_attention_check_backward(host, p, a, reference_cuda_backward_scratch(self, p)));
    LATHE_TRY(follow(host, p));
    return reference_cuda_run_backward(host, p, a, (float *)a->scratch);
}

LATHE_INSTANCE_PLAIN(reference_cuda)

LATHE_ATTENTION_ENTRY(
    reference_cuda, .family = "cuda", .version = "1.0.0",
    .summary = "tiled attention in f32 arithmetic on any GPU from 8.0 on",
    .source = "arXiv:2205.14135 and arXiv:2307.08691, algorithms 1 and 2; kernels ours");

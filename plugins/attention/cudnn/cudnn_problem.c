/* Decides which problems the cudnn backend supports: those that its graphs express and that cuDNN
 * documents for its engines. Further limits, such as head sizes above 128 in the backward, are
 * found by cuDNN when it makes the plan. */
#include "cudnn_problem.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_DIM = 256,
    MULTIPLE = 8,         /* for head sizes and strides: 16 bytes */
    MAX_TOKENS = 1 << 24, /* in a row: masks compare indices as f32 */
    MAX_ROWS = 1 << 22    /* batch rows, and heads of all rows together */
};

int64_t cudnn_problem_arch(const lathe_device_info *device)
{
    return device && strncmp(device->isa, "sm_", 3) == 0 ? strtol(device->isa + 3, NULL, 10) : 0;
}

static int32_t in_range(int64_t n, int64_t least, int64_t most)
{
    return n >= least && n <= most;
}

static const char *refused_dims(const lathe_attention_problem *p)
{
    if (p->value_dim > 0 && p->value_dim != p->head_dim)
        return "values with heads of another size than keys are not served";
    if (!in_range(p->head_dim, 1, MAX_DIM) || p->head_dim % MULTIPLE != 0)
        return "head size is not a multiple of 8 up to 256";
    if (p->n_heads < 1 || p->n_kv_heads < 1 || p->n_heads % p->n_kv_heads != 0)
        return "key heads do not divide query heads";
    if (!in_range(p->t_q, 2, MAX_TOKENS) || !in_range(p->t_k, 2, MAX_TOKENS))
        return "a row does not hold 2 .. 2^24 tokens";
    if (!in_range(p->batch, 1, MAX_ROWS) || !in_range(p->batch * p->n_heads, 1, MAX_ROWS))
        return "heads over all batch rows are not 1 .. 2^22";
    return NULL;
}

/* Rows of every tensor begin at multiples of 16 bytes. */
static int32_t has_aligned_rows(const lathe_attention_problem *p)
{
    const int64_t all[] = {p->q_stride,  p->k_stride,  p->v_stride, p->o_stride,
                           p->dq_stride, p->dk_stride, p->dv_stride};
    for (int i = 0; i < (p->need_backward ? 7 : 4); i++)
        if (all[i] % MULTIPLE != 0)
            return 0;
    return 1;
}

const char *cudnn_problem_refusal(const lathe_attention_problem *p)
{
    if (p->dtype != LATHE_BF16 && p->dtype != LATHE_F16)
        return "dtype is not bf16 or f16";
    if (p->device == NULL || p->device->host_memory == LATHE_MEMORY_HOST ||
        cudnn_problem_arch(p->device) == 0)
        return "runs on CUDA devices only";
    if (cudnn_problem_arch(p->device) < 80)
        return "fused attention begins at compute capability 8.0";
    if (p->cached)
        return "keys of a cache, with lengths of their own, are not served";
    if (p->bounded)
        return "a last key per query, of two-way or prefix attention, is not served";
    if (p->softcap > 0.0f)
        return "soft-cap is not served";
    if (p->alibi)
        return "slopes of ALiBi are not served";
    if (p->sinks)
        return "attention sinks are not served";
    const char *no = refused_dims(p);
    if (no)
        return no;
    if (p->t_q != p->t_k && (p->causal || p->window > 0 || p->packed))
        return "masks are served where queries and keys are as many";
    if (!has_aligned_rows(p))
        return "a distance between tokens is not a multiple of 8 elements";
    return NULL;
}

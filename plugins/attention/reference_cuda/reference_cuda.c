/* The reference_cuda attention backend: what it takes, checks of arguments, the plugin's table. */
#include "reference_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/plugin.h"

typedef struct attention_cuda {
    const lathe_host *host;
} attention_cuda;

/* 10 * major + minor of the compute capability in "sm_90"; 0: it is no CUDA device. */
static long arch_of(const lathe_device_info *device)
{
    return device && strncmp(device->isa, "sm_", 3) == 0 ? strtol(device->isa + 3, NULL, 10) : 0;
}

static int32_t fits(int64_t n, int64_t most)
{
    return n >= 0 && n <= most;
}

static const char *refusal(const lathe_attention_problem *p)
{
    if (p->dtype != LATHE_F32 && p->dtype != LATHE_BF16 && p->dtype != LATHE_F16)
        return "dtype is not f32, bf16 or f16";
    if (!p->device || p->device->host_memory || arch_of(p->device) == 0)
        return "runs on CUDA devices only";
    if (arch_of(p->device) < 80)
        return "this build has code from compute capability 8.0 on";
    if (p->cached && p->need_backward)
        return "no backward through a cache";
    if (p->head_dim < 1 || p->head_dim > REFERENCE_MOST_DIM)
        return "head size is not in 1 .. 256";
    if (p->n_heads < 1 || p->n_kv_heads < 1 || p->n_heads % p->n_kv_heads != 0)
        return "key heads do not divide query heads";
    if (!fits(p->t_q, INT32_MAX / 2) || !fits(p->t_k, INT32_MAX / 2) || !fits(p->batch, INT32_MAX))
        return "a row holds more than 2^30 tokens, or dims are negative";
    /* The grid's blocks: a tile of one head each; delta's are fewer. */
    const int64_t heads = p->batch * p->n_heads;
    if (!fits(heads, INT32_MAX) || !fits(heads * reference_tiles(p->t_q), INT32_MAX) ||
        !fits(heads * reference_tiles(p->t_k), INT32_MAX))
        return "more than 2^31 tiles of 64 tokens";
    return NULL;
}

static int32_t score(void *self, const lathe_attention_problem *p, char *why, int64_t why_bytes)
{
    (void)self;
    const char *no = refusal(p);
    if (why && why_bytes > 0)
        (void)snprintf(why, (size_t)why_bytes, "%s", no ? no : "plain CUDA cores, f32 arithmetic");
    return no ? LATHE_SCORE_NO : LATHE_SCORE_PORTABLE;
}

static int64_t forward_scratch(void *self, const lathe_attention_problem *p)
{
    (void)self;
    (void)p;
    return 0;
}

/* delta, f32 [B,H,Tq] */
static int64_t backward_scratch(void *self, const lathe_attention_problem *p)
{
    (void)self;
    return p->batch * p->n_heads * p->t_q * (int64_t)sizeof(float);
}

static lathe_status check(const lathe_host *host, const lathe_attention_problem *p,
                          const lathe_attention_args *a)
{
    if (!a->q || !a->k || !a->v || !a->o || !a->lse)
        return lathe_fail(host, LATHE_E_ARG, "attention: q, k, v, o or lse is missing");
    if ((p->packed != 0) != (a->doc_start != NULL))
        return lathe_fail(host, LATHE_E_ARG, "attention: packed is %d, doc_start is %s", p->packed,
                          a->doc_start ? "given" : "missing");
    if ((p->cached != 0) != (a->kv_len != NULL))
        return lathe_fail(host, LATHE_E_ARG, "attention: cached is %d, kv_len is %s", p->cached,
                          a->kv_len ? "given" : "missing");
    return LATHE_OK;
}

/* This plugin holds a runtime of its own: it follows the device's choice of GPU on every call. */
static lathe_status follow(const lathe_host *host, const lathe_attention_problem *p)
{
    const int32_t index = p->device ? p->device->index : 0;
    const cudaError_t error = cudaSetDevice(index);
    if (error != cudaSuccess)
        return lathe_fail(host, LATHE_E_DEVICE, "attention: GPU %d: %s", index,
                          cudaGetErrorString(error));
    return LATHE_OK;
}

static lathe_status forward(void *self, const lathe_attention_problem *p,
                            const lathe_attention_args *a)
{
    const lathe_host *host = ((attention_cuda *)self)->host;
    LATHE_TRY(check(host, p, a));
    LATHE_TRY(follow(host, p));
    return reference_cuda_forward(host, p, a);
}

static lathe_status backward(void *self, const lathe_attention_problem *p,
                             const lathe_attention_args *a)
{
    const lathe_host *host = ((attention_cuda *)self)->host;
    LATHE_TRY(check(host, p, a));
    if (p->cached || !a->d_o)
        return lathe_fail(host, LATHE_E_ARG, "attention: backward needs d_o and no cache");
    if (!a->scratch && backward_scratch(self, p) > 0)
        return lathe_fail(host, LATHE_E_ARG, "attention: scratch is missing");
    LATHE_TRY(follow(host, p));
    return reference_cuda_backward(host, p, a, (float *)a->scratch);
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values;
    (void)n_values;
    attention_cuda *s = host->alloc((int64_t)sizeof *s);
    if (!s)
        return lathe_fail(host, LATHE_E_NOMEM,
                          "attention reference_cuda: no memory for the instance");
    s->host = host;
    *out_self = s;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self)
        ((attention_cuda *)self)->host->free(self);
}

static const lathe_attention_v1 table = {
    .size = (uint32_t)sizeof(lathe_attention_v1),
    .revision = LATHE_ATTENTION_REVISION,
    .score = score,
    .forward_scratch = forward_scratch,
    .backward_scratch = backward_scratch,
    .forward = forward,
    .backward = backward,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ATTENTION,
    .revision = LATHE_ATTENTION_REVISION,
    .name = "reference_cuda",
    .family = "cuda",
    .version = "1.0.0",
    .summary = "tiled attention in f32 arithmetic on any GPU from 8.0 on",
    .source = "arXiv:2205.14135 and arXiv:2307.08691, algorithms 1 and 2; kernels ours",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
    .destroy = destroy,
};

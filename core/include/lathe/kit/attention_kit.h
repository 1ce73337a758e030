/* Helpers for attention plugins: argument checks, reasons to refuse a problem, and the macro that
 * defines the plugin's table and entry.
 *
 * The first member of an instance is its host (lathe/kit/instance.h). A plugin provides score(),
 * forward_scratch(), backward_scratch(), forward() and backward(); forward() and backward() call
 * the checks below first.
 */
#ifndef LATHE_KIT_ATTENTION_KIT_H
#define LATHE_KIT_ATTENTION_KIT_H

#include <stdint.h>
#include <stdio.h>

#include "instance.h"
#include "lathe/attention.h"

/** The host of an instance, which is its first member. */
static inline const lathe_host *lathe_attention_host(const void *self)
{
    return *(const lathe_host *const *)self;
}

/** The length of row b, and the index of its key j among all tokens of k and v, whether the keys
 *  are in blocks or not. The host must be able to read kv_len. */
static inline int64_t lathe_attention_length(const lathe_attention_problem *p,
                                             const int32_t *kv_len, int64_t b)
{
    return kv_len == NULL ? p->t_k : kv_len[p->block_tokens > 0 ? b * p->kv_stride : b];
}

static inline int64_t lathe_attention_key(const lathe_attention_problem *p, const int32_t *kv_len,
                                          int64_t b, int64_t j)
{
    if (p->block_tokens < 1)
        return b * p->t_k + j;
    return kv_len[b * p->kv_stride + 1 + j / p->block_tokens] * p->block_tokens +
           j % p->block_tokens;
}

/** The size of a head of v and o. */
static inline int32_t lathe_attention_value_dim(const lathe_attention_problem *p)
{
    return p->value_dim > 0 ? p->value_dim : p->head_dim;
}

/** The reason why no backend supports the problem: an unsupported dtype, dims out of range, or a
 *  backward through a cache. NULL: the problem is valid. */
static inline const char *lathe_attention_refusal_in_blocks(const lathe_attention_problem *p)
{
    if (p->dtype != LATHE_F32 && p->dtype != LATHE_BF16 && p->dtype != LATHE_F16)
        return "dtype is not f32, bf16 or f16";
    if (p->cached && p->need_backward)
        return "no backward through a cache";
    if (p->batch < 0 || p->t_q < 0 || p->t_k < 0 || p->t_k > INT32_MAX || p->head_dim < 1 ||
        p->value_dim < 0)
        return "dims are out of range";
    if (p->n_heads < 1 || p->n_kv_heads < 1 || p->n_heads % p->n_kv_heads != 0)
        return "key heads do not divide query heads";
    return NULL;
}

/** Why a backend that cannot read keys in blocks refuses a problem; NULL: it can compute it. */
static inline const char *lathe_attention_refusal(const lathe_attention_problem *p)
{
    return p->block_tokens > 0 ? "keys in blocks" : lathe_attention_refusal_in_blocks(p);
}

/** Like lathe_attention_refusal_in_blocks, for a backend that computes in host memory: also refuses
 * a device with its own memory. Such a backend must read keys in blocks. */
static inline const char *lathe_attention_host_refusal(const lathe_attention_problem *p)
{
    return p->device != NULL && p->device->host_memory != LATHE_MEMORY_HOST
               ? "runs on the CPU only"
               : lathe_attention_refusal_in_blocks(p);
}

/** The end of score(). If there is a refusal `no`: writes it into `why` and returns
 *  LATHE_SCORE_NO. If `no` is NULL: writes `yes`, the backend's own reason, and returns
 *  `fitness`. */
static inline int32_t lathe_attention_scored(const char *no, const char *yes, int32_t fitness,
                                             char *why, int64_t why_bytes)
{
    if (why != NULL && why_bytes > 0)
        (void)snprintf(why, (size_t)why_bytes, "%s", no != NULL ? no : yes);
    return no != NULL ? LATHE_SCORE_NO : fitness;
}

/** Checks the arguments of a forward call. scratch_bytes: from *_scratch(). If the host can read
 *  kv_len, each length must fit the cache. LATHE_E_ARG: the message says what is wrong. */
static inline lathe_status lathe_attention_check(const lathe_host *host,
                                                 const lathe_attention_problem *p,
                                                 const lathe_attention_args *a,
                                                 int64_t scratch_bytes)
{
    if (a->q == NULL || a->k == NULL || a->v == NULL || a->o == NULL || a->lse == NULL)
        return lathe_fail(host, LATHE_E_ARG, "attention: q, k, v, o or lse is missing");
    if (scratch_bytes > 0 && (a->scratch == NULL || (uintptr_t)a->scratch % 64 != 0))
        return lathe_fail(host, LATHE_E_ARG,
                          "attention: scratch is missing or not 64-byte aligned");
    if ((p->packed != 0) != (a->doc_start != NULL))
        return lathe_fail(host, LATHE_E_ARG, "attention: packed is %d, doc_start is %s", p->packed,
                          a->doc_start != NULL ? "given" : "missing");
    if ((p->bounded != 0) != (a->key_end != NULL))
        return lathe_fail(host, LATHE_E_ARG, "attention: bounded is %d, key_end is %s", p->bounded,
                          a->key_end != NULL ? "given" : "missing");
    if ((p->alibi != 0) != (a->slopes != NULL))
        return lathe_fail(host, LATHE_E_ARG, "attention: alibi is %d, slopes are %s", p->alibi,
                          a->slopes != NULL ? "given" : "missing");
    if ((p->sinks != 0) != (a->sinks != NULL))
        return lathe_fail(host, LATHE_E_ARG, "attention: sinks is %d, sinks are %s", p->sinks,
                          a->sinks != NULL ? "given" : "missing");
    if ((p->cached != 0) != (a->kv_len != NULL))
        return lathe_fail(host, LATHE_E_ARG, "attention: cached is %d, kv_len is %s", p->cached,
                          a->kv_len != NULL ? "given" : "missing");
    const int is_readable =
        p->cached && (p->device == NULL || p->device->host_memory == LATHE_MEMORY_HOST);
    for (int64_t b = 0; is_readable && b < p->batch; b++)
        if (lathe_attention_length(p, a->kv_len, b) < 0 ||
            lathe_attention_length(p, a->kv_len, b) > p->t_k)
            return lathe_fail(host, LATHE_E_ARG,
                              "attention: the length of row %lld is %lld, expected 0 .. %lld",
                              (long long)b, (long long)lathe_attention_length(p, a->kv_len, b),
                              (long long)p->t_k);
    return LATHE_OK;
}

/** Checks the arguments of a backward call: as for forward, and d_o must be given without a
 *  cache. */
static inline lathe_status lathe_attention_check_backward(const lathe_host *host,
                                                          const lathe_attention_problem *p,
                                                          const lathe_attention_args *a,
                                                          int64_t scratch_bytes)
{
    LATHE_TRY(lathe_attention_check(host, p, a, scratch_bytes));
    if (p->cached || a->d_o == NULL)
        return lathe_fail(host, LATHE_E_ARG, "attention: backward needs d_o and no cache");
    return LATHE_OK;
}

/* Defines the table of a plugin from the functions type##_score, _forward_scratch,
 * _backward_scratch, _forward and _backward, and the plugin's entry. ...: .family, .version,
 * .summary, .source, and LATHE_PLUGIN_FIELDS if it has keys. */
#define LATHE_ATTENTION_ENTRY(type, ...)                                                           \
    static const lathe_attention_v1 type##_table = {                                               \
        .size = (uint32_t)sizeof type##_table,                                                     \
        .revision = LATHE_ATTENTION_REVISION,                                                      \
        .score = type##_score,                                                                     \
        .forward_scratch = type##_forward_scratch,                                                 \
        .backward_scratch = type##_backward_scratch,                                               \
        .forward = type##_forward,                                                                 \
        .backward = type##_backward,                                                               \
    };                                                                                             \
    const lathe_plugin LATHE_PLUGIN_ENTRY = {                                                      \
        LATHE_PLUGIN_LIFE_PLAIN(type), .kind = LATHE_KIND_ATTENTION,                               \
        .revision = LATHE_ATTENTION_REVISION, .license = "Apache-2.0", __VA_ARGS__}

#endif

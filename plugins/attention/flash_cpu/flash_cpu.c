/* The flash_cpu attention backend: checks, choice of the instruction set, and the plugin's tables.
 *
 * The kernels (flash_kernels.h) are compiled once per instruction set. An instance holds the two
 * variants it uses: one that multiplies f32, for f32 and f16 tensors and for bf16 where the machine
 * has no bf16 products, and one that multiplies bf16.
 */
#include <stdio.h>
#include <string.h>

#include "flash.h"
#include "lathe/plugin.h"

typedef struct attention_flash {
    const lathe_host *host;
    const flash_variant *f32, *bf16;
} attention_flash;

/* What the processor has and the operating system keeps: 0 none, 1 avx2, 2 avx512, 3 + bf16. The
 * compiler's probe reads CPUID and XGETBV. */
static int32_t machine_level(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("x86-64-v3"))
        return 0;
    if (!__builtin_cpu_supports("x86-64-v4"))
        return 1;
    return __builtin_cpu_supports("avx512bf16") ? 3 : 2;
#else
    return 0;
#endif
}

static void choose(attention_flash *s, int32_t level)
{
    s->f32 = s->bf16 = &flash_generic;
#if defined(__x86_64__)
    if (level >= 1)
        s->f32 = s->bf16 = &flash_avx2;
    if (level >= 2)
        s->f32 = s->bf16 = &flash_avx512;
    if (level >= 3)
        s->bf16 = &flash_avx512_bf16;
#else
    (void)level;
#endif
}

static const char *const level_names[4] = {"generic", "avx2", "avx512", "avx512_bf16"};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    const int32_t have = machine_level();
    int32_t want = have;
    for (int32_t i = 0; n_values > 0 && values[0].is_set && i < 4; i++)
        if (strcmp(values[0].s, level_names[i]) == 0)
            want = i;
    if (want > have)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "attention flash_cpu: isa \"%s\" is asked for, this machine has \"%s\"",
                          level_names[want], level_names[have]);
    attention_flash *s = host->alloc((int64_t)sizeof *s);
    if (!s)
        return lathe_fail(host, LATHE_E_NOMEM, "attention flash_cpu: no memory for the instance");
    s->host = host;
    choose(s, want);
    *out_self = s;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self)
        ((attention_flash *)self)->host->free(self);
}

static const flash_variant *variant(const attention_flash *s, const lathe_attention_problem *p)
{
    return p->dtype == LATHE_BF16 ? s->bf16 : s->f32;
}

static int32_t workers(const attention_flash *s, const lathe_attention_problem *p)
{
    const int32_t n = s->host->n_threads();
    return p->n_threads > n ? p->n_threads : n;
}

static int64_t forward_bytes(void *self, const lathe_attention_problem *p)
{
    return variant(self, p)->forward_scratch(p, workers(self, p));
}

static int64_t backward_bytes(void *self, const lathe_attention_problem *p)
{
    return variant(self, p)->backward_scratch(p, workers(self, p));
}

/* Pointers, and the lengths of cached rows, which must fit the cache. */
static lathe_status check(const lathe_host *host, const lathe_attention_problem *p,
                          const lathe_attention_args *a, int64_t scratch_bytes)
{
    if (!a->q || !a->k || !a->v || !a->o || !a->lse)
        return lathe_fail(host, LATHE_E_ARG, "attention: q, k, v, o or lse is missing");
    if (scratch_bytes > 0 && (!a->scratch || (uintptr_t)a->scratch % 64 != 0))
        return lathe_fail(host, LATHE_E_ARG,
                          "attention: scratch is missing or not 64-byte aligned");
    if ((p->packed != 0) != (a->doc_start != NULL))
        return lathe_fail(host, LATHE_E_ARG, "attention: packed is %d, doc_start is %s", p->packed,
                          a->doc_start ? "given" : "missing");
    if ((p->cached != 0) != (a->kv_len != NULL))
        return lathe_fail(host, LATHE_E_ARG, "attention: cached is %d, kv_len is %s", p->cached,
                          a->kv_len ? "given" : "missing");
    for (int64_t b = 0; p->cached && b < p->batch; b++)
        if (a->kv_len[b] < 0 || a->kv_len[b] > p->t_k)
            return lathe_fail(host, LATHE_E_ARG,
                              "attention: kv_len[%lld] is %d, expected 0 .. %lld", (long long)b,
                              a->kv_len[b], (long long)p->t_k);
    return LATHE_OK;
}

static lathe_status run_forward(void *self, const lathe_attention_problem *p,
                                const lathe_attention_args *a)
{
    const attention_flash *s = self;
    const flash_call call = {s->host, p, a, workers(s, p)};
    LATHE_TRY(check(s->host, p, a, forward_bytes(self, p)));
    variant(s, p)->forward(&call);
    return LATHE_OK;
}

static lathe_status run_backward(void *self, const lathe_attention_problem *p,
                                 const lathe_attention_args *a)
{
    const attention_flash *s = self;
    const flash_call call = {s->host, p, a, workers(s, p)};
    LATHE_TRY(check(s->host, p, a, backward_bytes(self, p)));
    if (p->cached || !a->d_o)
        return lathe_fail(s->host, LATHE_E_ARG, "attention: backward needs d_o and no cache");
    variant(s, p)->backward(&call);
    return LATHE_OK;
}

static const char *refusal(const lathe_attention_problem *p)
{
    if (p->dtype != LATHE_F32 && p->dtype != LATHE_BF16 && p->dtype != LATHE_F16)
        return "dtype is not f32, bf16 or f16";
    if (p->device && !p->device->host_memory)
        return "runs on the CPU only";
    if (p->cached && p->need_backward)
        return "no backward through a cache";
    if (p->batch < 0 || p->t_q < 0 || p->t_k < 0 || p->t_k > INT32_MAX || p->head_dim < 1 ||
        p->n_heads < 1 || p->n_kv_heads < 1 || p->n_heads % p->n_kv_heads != 0)
        return "dims are out of range, or key heads do not divide query heads";
    return NULL;
}

static int32_t score(void *self, const lathe_attention_problem *p, char *why, int64_t why_bytes)
{
    const char *no = refusal(p);
    if (why && why_bytes > 0)
        (void)snprintf(why, (size_t)why_bytes, "%s%s", no ? "" : "tiled, kernels for ",
                       no     ? no
                       : self ? variant(self, p)->name
                              : level_names[machine_level()]);
    return no ? LATHE_SCORE_NO : LATHE_SCORE_FAMILY;
}

static const lathe_attention_v1 table = {
    .size = (uint32_t)sizeof(lathe_attention_v1),
    .revision = LATHE_ATTENTION_REVISION,
    .score = score,
    .forward_scratch = forward_bytes,
    .backward_scratch = backward_bytes,
    .forward = run_forward,
    .backward = run_backward,
};

static const lathe_field fields[] = {
    LATHE_FIELD_STRING("isa", "\"auto\"", "auto|generic|avx2|avx512|avx512_bf16",
                       "instruction set of the kernels; auto: the best this machine has"),
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ATTENTION,
    .revision = LATHE_ATTENTION_REVISION,
    .n_fields = (int32_t)(sizeof fields / sizeof fields[0]),
    .name = "flash_cpu",
    .family = "cpu",
    .version = "1.0.0",
    .summary = "tiled attention for CPUs, memory linear in the sequence",
    .source = "arXiv:2205.14135 and arXiv:2307.08691, algorithms 1 and 2; kernels ours",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

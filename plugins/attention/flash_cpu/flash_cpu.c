/* The flash_cpu attention backend: checks, choice of the instruction set, and the plugin's tables.
 *
 * The kernels (flash_kernels.h) are compiled once per instruction set. An instance has the two
 * variants that it uses: one that multiplies f32, for f32 and f16 tensors and for bf16 on machines
 * without bf16 products, and one that multiplies bf16.
 */
#include <string.h>

#include "flash.h"
#include "lathe/kit/attention_kit.h"

typedef struct flash_cpu {
    const lathe_host *host;
    const flash_variant *f32, *bf16;
} flash_cpu;

/* The instruction set that the processor has and the operating system saves: 0 none, 1 avx2, 2
 * avx512, 3 avx512 with bf16. The compiler's function reads CPUID and XGETBV. */
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

static void choose(flash_cpu *s, int32_t level)
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

static const lathe_field fields[] = {
    LATHE_FIELD_STRING(
        "isa", "\"auto\"", "auto|generic|avx2|avx512|avx512_bf16",
        "instruction set of the kernels; auto: the best one that this machine supports"),
};

static lathe_status read_values(const lathe_host *host, flash_cpu *s, const lathe_value *values)
{
    const int32_t have = machine_level();
    int32_t want = have;
    for (int32_t i = 0; values[0].is_set && i < 4; i++)
        if (strcmp(values[0].s, level_names[i]) == 0)
            want = i;
    if (want > have)
        return lathe_fail_at(host, LATHE_E_UNSUPPORTED, "isa",
                             "isa \"%s\" was requested, but this machine has \"%s\"",
                             level_names[want], level_names[have]);
    choose(s, want);
    return LATHE_OK;
}

static const flash_variant *variant(const flash_cpu *s, const lathe_attention_problem *p)
{
    return p->dtype == LATHE_BF16 ? s->bf16 : s->f32;
}

static int32_t workers(const flash_cpu *s, const lathe_attention_problem *p)
{
    const int32_t n = s->host->n_threads();
    return p->n_threads > n ? p->n_threads : n;
}

static int64_t flash_cpu_forward_scratch(void *self, const lathe_attention_problem *p)
{
    return variant(self, p)->forward_scratch(p, workers(self, p));
}

static int64_t flash_cpu_backward_scratch(void *self, const lathe_attention_problem *p)
{
    return variant(self, p)->backward_scratch(p, workers(self, p));
}

static lathe_status flash_cpu_forward(void *self, const lathe_attention_problem *p,
                                      const lathe_attention_args *a)
{
    const flash_cpu *const s = self;
    const flash_call call = {s->host, p, a, workers(s, p)};
    LATHE_TRY(lathe_attention_check(s->host, p, a, flash_cpu_forward_scratch(self, p)));
    variant(s, p)->forward(&call);
    return LATHE_OK;
}

static lathe_status flash_cpu_backward(void *self, const lathe_attention_problem *p,
                                       const lathe_attention_args *a)
{
    const flash_cpu *const s = self;
    const flash_call call = {s->host, p, a, workers(s, p)};
    LATHE_TRY(lathe_attention_check_backward(s->host, p, a, flash_cpu_backward_scratch(self, p)));
    variant(s, p)->backward(&call);
    return LATHE_OK;
}

static int32_t flash_cpu_score(void *self, const lathe_attention_problem *p, char *why,
                               int64_t why_bytes)
{
    char yes[64];
    (void)snprintf(yes, sizeof yes, "tiled, kernels for %s",
                   self != NULL ? variant(self, p)->name : level_names[machine_level()]);
    return lathe_attention_scored(lathe_attention_host_refusal(p), yes, LATHE_SCORE_FAMILY, why,
                                  why_bytes);
}

LATHE_INSTANCE(flash_cpu, read_values)

LATHE_ATTENTION_ENTRY(
    flash_cpu, LATHE_PLUGIN_FIELDS, .family = "cpu", .version = "1.0.0",
    .summary = "tiled attention for CPUs, memory linear in the sequence",
    .source = "arXiv:2205.14135 and arXiv:2307.08691, algorithms 1 and 2; kernels ours");

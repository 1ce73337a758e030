/* Chooses the precision of runs that only generate or evaluate. */
#include "run/decide/fastest_precision.h"

#include <string.h>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "exec/program/precision.h"
#include "exec/store/memory_kind.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/safetensors.h"

/* Weights in a model's folder. Codes and scales of quantized weights count as neither kind of
 * matrix. */
typedef struct weights {
    int64_t n;       /* elements */
    int32_t n_bf16;  /* matrices in bf16 */
    int32_t n_other; /* matrices in something else */
} weights;

static int is_weight(const char *name)
{
    const size_t n = strlen(name), m = strlen(".weight");
    return n >= m && strcmp(name + n - m, ".weight") == 0;
}

static lathe_status count_weights(const char *folder, weights *out)
{
    lathe_safetensors *set = NULL;
    *out = (weights){0};
    LATHE_TRY(lathe_model_weights(folder, &set));
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        const lathe_desc *d = &t->desc;
        out->n += lathe_desc_count(d);
        if (d->rank >= 2 && lathe_convert_takes(d->dtype) && d->dims[1] > 1 && is_weight(t->name))
            *(d->dtype == LATHE_BF16 ? &out->n_bf16 : &out->n_other) += 1;
    }
    lathe_safetensors_close(set);
    return LATHE_OK;
}

/* Whether n weights in fp32 fit in the memory of the machine, of which a quarter is left for what
 * else a run needs. Memory that is free at the moment does not count: the choice, and with it the
 * bits of the results, would depend on what else runs. limit: train.memory_limit, or 0. */
static int fits_in_fp32(const lathe_device_info *device, int64_t limit, int64_t n)
{
    lathe_host_memory process;
    int64_t bytes = device->memory_bytes > 0 ? device->memory_bytes / 4 * 3 : INT64_MAX;
    if (limit > 0)
        return 4 * n <= limit;
    if (lathe_memory_kind_of(device)->is_of_host) {
        lathe_host_limits_read("", &process);
        bytes = process.available < bytes ? process.available : bytes;
    }
    return 4 * n <= bytes;
}

static void choose(lathe_settings *set, int32_t dtype, const char *why)
{
    set->precision = dtype;
    lathe_log(LATHE_LOG_DEBUG, "computes in %s: %s (--train.precision sets another)",
              lathe_precision_name(dtype), why);
}

/* Whether a product of many rows is faster in bf16 than in fp32. CPUs take bf16 everywhere, but
 * those of this table widen it first. */
static int multiplies_bf16_faster(const lathe_device_info *info)
{
    static const char *const widening[] = {"avx2", "avx512"};
    for (size_t i = 0; i < sizeof widening / sizeof widening[0]; i++)
        if (strcmp(info->isa, widening[i]) == 0)
            return 0;
    return (info->compute_dtypes & 1u << LATHE_BF16) != 0;
}

/* Chooses between bf16 and fp32, which both store the weights exactly, by what the device can do:
 *
 *                        bf16 products in hardware     others
 *   generation           bf16                          bf16
 *   evaluation           bf16                          fp32
 *
 * A generated token reads all weights once, so half the bytes take about half the time on every
 * machine: 0.47 of fp32 with AVX-512 and bf16 instructions, 0.52 with AVX-512, 0.74 with AVX2. The
 * many tokens of an evaluation are bound by arithmetic: 0.23, 1.77 and 1.78 (4096 x 2048 weights,
 * two threads of a Zen 5, 1 and 64 tokens, medians of three). */
static void choose_bf16_or_fp32(lathe_run *run, int64_t n)
{
    const lathe_device_info *info = &run->machine.info;
    if (lathe_precision_on(info, LATHE_BF16) != LATHE_BF16)
        choose(&run->set, LATHE_F32, "the device has no bf16");
    else if (!fits_in_fp32(info, run->set.memory_limit, n))
        choose(&run->set, LATHE_BF16, "the weights do not fit the memory in fp32");
    else if (multiplies_bf16_faster(info))
        choose(&run->set, LATHE_BF16, "the device multiplies bf16 faster");
    else if (lathe__run_infers(run))
        choose(&run->set, LATHE_BF16, "a token reads half the bytes");
    else
        choose(&run->set, LATHE_F32, "the device multiplies fp32 faster");
}

lathe_status lathe__fastest_precision(lathe_run *run)
{
    weights w;
    const lathe_value *given = lathe_config_get(run->config, "train", "precision");
    const int never_trains = lathe__run_infers(run) || lathe__run_evaluates(run);
    if (!never_trains || (given && given->is_explicit))
        return LATHE_OK;
    if (lathe_config_path(run->config)[0] != '\0') { /* a run, which trains in bf16 */
        if (lathe__run_infers(run))
            choose_bf16_or_fp32(run, 0);
        return LATHE_OK;
    }
    if (run->set.model_path == NULL)
        return LATHE_OK;
    LATHE_TRY(count_weights(run->set.model_path, &w));
    if (lathe__run_only_reads_weights(run)) { /* whichever stores the weights exactly */
        run->set.precision = w.n_other > 0 || w.n_bf16 == 0 ? LATHE_F32 : LATHE_BF16;
        return LATHE_OK;
    }
    if (w.n_other > 0 || w.n_bf16 == 0) {
        choose(&run->set, LATHE_F32, "bf16 would round the model's weights");
        return LATHE_OK;
    }
    choose_bf16_or_fp32(run, w.n);
    return LATHE_OK;
}

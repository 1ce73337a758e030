/* Chooses the precision of runs that only generate or evaluate. */
#include "run/fastest_precision.h"

#include <string.h>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "exec/product_time.h"
#include "gguf/model_files.h"
#include "io/convert.h"
#include "io/safetensors.h"

/* Size of the measured product: its weights are too large for the caches of most machines, but can
 * be written and read in about ten milliseconds. */
enum { MEASURED_ROWS = 4096, MEASURED_COLS = 2048, MOST_TOKENS = 64 };
#define WIDE_MUST_WIN 1.15

/* Weights in a model's folder; codes and scales of quantized weights count neither as narrow nor as
 * others. */
typedef struct weights {
    int64_t n;        /* elements */
    int32_t n_narrow; /* matrices in bf16 */
    int32_t n_others; /* matrices in something else */
} weights;

static int is_weight(const char *name)
{
    const size_t n = strlen(name), m = strlen(".weight");
    return n >= m && strcmp(name + n - m, ".weight") == 0;
}

static lathe_status look_at_folder(const char *folder, weights *out)
{
    lathe_safetensors *set = NULL;
    *out = (weights){0};
    LATHE_TRY(lathe_model_weights(folder, &set));
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        const lathe_desc *d = &t->desc;
        out->n += lathe_desc_count(d);
        if (d->rank >= 2 && lathe_convert_takes(d->dtype) && d->dims[1] > 1 && is_weight(t->name))
            *(d->dtype == LATHE_BF16 ? &out->n_narrow : &out->n_others) += 1;
    }
    lathe_safetensors_close(set);
    return LATHE_OK;
}

/* Whether n weights in fp32 fit in the available memory. limit: train.memory_limit, or 0. */
static int fits_wide(const lathe_device_info *device, int64_t limit, int64_t n)
{
    lathe_host_memory memory;
    if (limit > 0)
        return 4 * n <= limit;
    if (!device->host_memory)
        return device->memory_free_bytes == 0 || 4 * n <= device->memory_free_bytes;
    lathe_host_memory_read("", &memory);
    return memory.available == INT64_MAX || 4 * n <= memory.available - LATHE_HOST_RESERVE;
}

int lathe__narrow_is_faster(double wide_seconds, double narrow_seconds)
{
    if (wide_seconds <= 0.0 || narrow_seconds <= 0.0)
        return 1;
    return narrow_seconds <= WIDE_MUST_WIN * wide_seconds;
}

/* Measures fp32 and bf16, and logs the result. */
static lathe_status choose_by_time(lathe_run *run, const char *why)
{
    const int64_t batch = (int64_t)run->set.micro_batch_size * run->set.seq_len;
    const int64_t tokens = run->open.mode == LATHE_OPEN_INFER ? 1
                           : batch < MOST_TOKENS              ? batch
                                                              : MOST_TOKENS;
    const lathe_product_shape shape = {tokens, MEASURED_ROWS, MEASURED_COLS};
    double wide = 0.0, narrow = 0.0;
    LATHE_TRY(lathe_product_time(&run->machine, LATHE_F32, 0, &shape, INT64_MAX, &wide));
    LATHE_TRY(lathe_product_time(&run->machine, LATHE_BF16, 0, &shape, INT64_MAX, &narrow));
    const int is_narrow = lathe__narrow_is_faster(wide, narrow);
    run->set.precision = is_narrow ? LATHE_BF16 : LATHE_F32;
    lathe_log(LATHE_LOG_INFO,
              "computes in %s: %s, and %s is %s here (the product of %d x %d weights with %lld "
              "token%s takes %.2f ms in bf16 and %.2f ms in fp32; --train.precision sets another)",
              lathe_precision_name(run->set.precision), why, is_narrow ? "bf16" : "fp32",
              is_narrow && narrow >= wide ? "about as fast" : "faster", MEASURED_ROWS,
              MEASURED_COLS, (long long)tokens, tokens == 1 ? "" : "s", narrow * 1e3, wide * 1e3);
    return LATHE_OK;
}

static void choose(lathe_settings *set, int32_t dtype, const char *why)
{
    set->precision = dtype;
    lathe_log(LATHE_LOG_INFO, "computes in %s: %s (--train.precision sets another)",
              lathe_precision_name(dtype), why);
}

/* Chooses between bf16 and fp32, which both store the weights exactly. */
static lathe_status choose_of_two(lathe_run *run, const char *why, int64_t n)
{
    const lathe_device_info *info = &run->machine.info;
    if (lathe_precision_on(info, LATHE_BF16) != LATHE_BF16) {
        choose(&run->set, LATHE_F32, "the device has no bf16");
    } else if (!fits_wide(&run->machine.info, run->set.memory_limit, n)) {
        choose(&run->set, LATHE_BF16, "the weights do not fit the memory in fp32");
    } else if (info->host_memory) {
        return choose_by_time(run, why);
    } else {
        choose(&run->set, info->compute_dtypes & 1u << LATHE_BF16 ? LATHE_BF16 : LATHE_F32,
               "what the device computes at full rate");
    }
    return LATHE_OK;
}

lathe_status lathe__fastest_precision(lathe_run *run)
{
    weights w;
    const lathe_value *given = lathe_config_get(run->config, "train", "precision");
    const int only_reads =
        run->open.mode == LATHE_OPEN_INFER || run->open.mode == LATHE_OPEN_EVALUATE;
    if (!only_reads || (given && given->is_explicit))
        return LATHE_OK;
    if (lathe_config_path(run->config)[0] != '\0') /* a run, which trains in bf16 */
        return run->open.mode == LATHE_OPEN_INFER ? choose_of_two(run, "the run trains in bf16", 0)
                                                  : LATHE_OK;
    if (!run->set.model_path)
        return LATHE_OK;
    LATHE_TRY(look_at_folder(run->set.model_path, &w));
    if (run->open.computes_nothing) { /* whichever stores the weights exactly */
        run->set.precision = w.n_others > 0 || w.n_narrow == 0 ? LATHE_F32 : LATHE_BF16;
        return LATHE_OK;
    }
    if (w.n_others > 0 || w.n_narrow == 0) {
        choose(&run->set, LATHE_F32, "bf16 would round the model's weights");
        return LATHE_OK;
    }
    return choose_of_two(run, "the model's weights are bf16", w.n);
}

/* Writes and reads the counters of a training run as JSON. Doubles are stored as the hexadecimal
 * form of their bits, which is exact for infinities too. */
#include "checkpoint/state/state_counters.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void put_double(lathe_buffer *b, int32_t follows, double x)
{
    lathe_buffer_printf(b, "%s\"%016" PRIx64 "\"", follows ? ", " : "", bits_of(x));
}

/* Writes the losses of loss_spike.h, oldest first. */
static void put_losses(lathe_buffer *b, const lathe_loss_spike *spike, int32_t window)
{
    const int32_t n = lathe_loss_spike_count(spike, window);
    lathe_buffer_printf(b, "  \"loss_spikes\": {\"seen\": %lld, \"losses\": [",
                        (long long)spike->n_spikes);
    for (int32_t i = 0; i < n; i++)
        put_double(b, i > 0, lathe_loss_spike_get(spike, n, i));
    lathe_buffer_puts(b, "]},\n");
}

void lathe__state_counters_put(const lathe_saved_state *saved, lathe_buffer *b)
{
    const lathe_counters *at = saved->at;
    lathe_buffer_printf(
        b,
        "  \"step\": %lld,\n  \"micro\": %lld,\n  \"tokens\": %lld,\n  \"seed\": \"%" PRIx64
        "\",\n",
        (long long)at->step, (long long)at->micro, (long long)at->tokens, saved->seed);
    if (at->evaluation_due)
        lathe_buffer_puts(b, "  \"evaluation_due\": 1,\n");
    lathe_buffer_printf(b,
                        "  \"cursor\": {\"seed\": %lld, \"epoch\": %lld, \"index\": %lld, "
                        "\"rows_per_epoch\": %lld, \"identity\": %lld},\n",
                        (long long)at->cursor.seed, (long long)at->cursor.epoch,
                        (long long)at->cursor.index, (long long)at->cursor.rows_per_epoch,
                        (long long)at->cursor.identity);
    lathe_buffer_printf(b,
                        "  \"early_stopping\": {\"best\": \"%016" PRIx64
                        "\", \"evaluations\": %lld, \"since\": %lld},\n",
                        bits_of(at->early.best), (long long)at->early.n_evaluations,
                        (long long)at->early.n_since);
    lathe_buffer_puts(b, "  \"scheduler_state\": [");
    for (int i = 0; i < LATHE_MAX_SCHEDULER_STATE; i++)
        put_double(b, i > 0, at->scheduler_state[i]);
    lathe_buffer_puts(b, "],\n");
    lathe_buffer_printf(b, "  \"skipped\": %lld,\n  \"skipped_in_row\": %lld,\n",
                        (long long)at->skipped, (long long)at->skipped_in_row);
    lathe_buffer_puts(b, "  \"scaler\": {\"scale\": ");
    put_double(b, 0, (double)at->scaler.scale);
    lathe_buffer_printf(b, ", \"n_good\": %d},\n", at->scaler.n_good);
    put_losses(b, &at->spike, saved->spike_window);
    lathe_buffer_printf(b, "  \"weight_average\": {\"kind\": \"%s\", \"n\": %lld},\n",
                        lathe_average_name(saved->store, &saved->parts->optimizer, saved->average),
                        (long long)at->averaged);
}

void lathe__state_sums_put(const lathe_accumulated *sum, lathe_buffer *b)
{
    lathe_buffer_printf(b, "  \"accumulated\": {\"backwards\": %d, \"tokens\": %lld, \"sums\": [",
                        sum->backwards, (long long)sum->tokens);
    put_double(b, 0, sum->loss_sum);
    put_double(b, 1, sum->count);
    for (int i = 0; i < LATHE_MAX_STAGE_METRICS; i++)
        put_double(b, 1, sum->metric_sums[i]);
    lathe_buffer_puts(b, "]}\n");
}

lathe_status lathe__state_integer(const json_t *object, const char *path, const char *key,
                                  int64_t *out)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_integer(v))
        return lathe_error(LATHE_E_CORRUPT, "%s: '%s' is no integer", path, key);
    *out = (int64_t)json_integer_value(v);
    return LATHE_OK;
}

static lathe_status bits(const json_t *v, const char *path, const char *key, double *out)
{
    const char *text = json_string_value(v);
    uint64_t word;
    if (text == NULL || strlen(text) != 16 || sscanf(text, "%" SCNx64, &word) != 1)
        return lathe_error(LATHE_E_CORRUPT, "%s: '%s' holds a bad number", path, key);
    *out = double_of(word);
    return LATHE_OK;
}

static lathe_status read_early(const json_t *root, const char *path, lathe_early_stop *out)
{
    const json_t *early = json_object_get(root, "early_stopping");
    if (early == NULL) /* written before there was any */
        return LATHE_OK;
    LATHE_TRY(bits(json_object_get(early, "best"), path, "early_stopping", &out->best));
    LATHE_TRY(lathe__state_integer(early, path, "evaluations", &out->n_evaluations));
    return lathe__state_integer(early, path, "since", &out->n_since);
}

lathe_status lathe__state_count(const json_t *object, const char *path, const char *key,
                                int64_t max, int64_t *out)
{
    LATHE_TRY(lathe__state_integer(object, path, key, out));
    if (*out < 0 || *out > max)
        return lathe_error(LATHE_E_CORRUPT, "%s: '%s' is %lld, expected 0 to %lld", path, key,
                           (long long)*out, (long long)max);
    return LATHE_OK;
}

static lathe_status read_losses(const json_t *root, const char *path, lathe_loss_spike *out)
{
    const json_t *spikes = json_object_get(root, "loss_spikes"),
                 *losses = json_object_get(spikes, "losses");
    const size_t n = json_array_size(losses);
    if (spikes == NULL) /* written before there was any */
        return LATHE_OK;
    LATHE_TRY(lathe__state_count(spikes, path, "seen", INT64_MAX, &out->n_spikes));
    if (!json_is_array(losses) || n > LATHE_MAX_SPIKE_WINDOW)
        return lathe_error(LATHE_E_CORRUPT, "%s: 'losses' must be a list of at most %d", path,
                           LATHE_MAX_SPIKE_WINDOW);
    for (size_t i = 0; i < n; i++) {
        double loss = 0.0;
        LATHE_TRY(bits(json_array_get(losses, i), path, "losses", &loss));
        if (!isfinite(loss))
            return lathe_error(LATHE_E_CORRUPT, "%s: 'losses' holds %g", path, loss);
        lathe_loss_spike_accept(out, loss);
    }
    return LATHE_OK;
}

lathe_status lathe__state_sums_read(const json_t *root, const char *path, lathe_counters *at,
                                    lathe_accumulated *sum)
{
    const json_t *scaler = json_object_get(root, "scaler"),
                 *accumulated = json_object_get(root, "accumulated"),
                 *sums = json_object_get(accumulated, "sums");
    double x[2 + LATHE_MAX_STAGE_METRICS] = {0.0}, scale = 0.0;
    int64_t n_good = 0, backwards = 0;
    LATHE_TRY(lathe__state_count(root, path, "skipped", at->step, &at->skipped));
    LATHE_TRY(lathe__state_count(root, path, "skipped_in_row", at->skipped, &at->skipped_in_row));
    LATHE_TRY(bits(json_object_get(scaler, "scale"), path, "scale", &scale));
    LATHE_TRY(lathe__state_count(scaler, path, "n_good", INT32_MAX, &n_good));
    if (!(scale > 0.0 && scale <= (double)FLT_MAX))
        return lathe_error(LATHE_E_CORRUPT, "%s: 'scale' is %g, expected a positive number", path,
                           scale);
    at->scaler = (lathe_scaler){(float)scale, (int32_t)n_good};
    LATHE_TRY(read_losses(root, path, &at->spike));
    LATHE_TRY(lathe__state_count(accumulated, path, "backwards", INT32_MAX, &backwards));
    LATHE_TRY(lathe__state_count(accumulated, path, "tokens", INT64_MAX, &sum->tokens));
    if (json_array_size(sums) != sizeof x / sizeof x[0])
        return lathe_error(LATHE_E_CORRUPT, "%s: 'sums' wants %zu entries", path,
                           sizeof x / sizeof x[0]);
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        LATHE_TRY(bits(json_array_get(sums, i), path, "sums", &x[i]));
    sum->backwards = (int32_t)backwards;
    sum->loss_sum = x[0];
    sum->count = x[1];
    memcpy(sum->metric_sums, x + 2, sizeof sum->metric_sums);
    return LATHE_OK;
}

void lathe__state_loads_put(const lathe_expert_loads *loads, lathe_buffer *b)
{
    if (loads->n == 0)
        return;
    lathe_buffer_puts(b, "  \"expert_loads\": [");
    for (int64_t i = 0; i < loads->n; i++)
        put_double(b, i > 0, loads->counts[i]);
    lathe_buffer_puts(b, "],\n");
}

lathe_status lathe__state_loads_check(const json_t *root, const char *path,
                                      const lathe_expert_loads *loads)
{
    const json_t *list = json_object_get(root, "expert_loads");
    if ((int64_t)json_array_size(list) != loads->n)
        return lathe_error(LATHE_E_CONFIG,
                           "%s was written in the middle of a step with the loads of %lld experts, "
                           "and the run counts those of %lld: finish the step with the same "
                           "moe.bias_rate",
                           path, (long long)json_array_size(list), (long long)loads->n);
    return LATHE_OK;
}

lathe_status lathe__state_loads_read(const json_t *root, const char *path,
                                     const lathe_expert_loads *loads, double *out)
{
    const json_t *list = json_object_get(root, "expert_loads");
    LATHE_TRY(lathe__state_loads_check(root, path, loads));
    for (int64_t i = 0; i < loads->n; i++) {
        LATHE_TRY(bits(json_array_get(list, (size_t)i), path, "expert_loads", &out[i]));
        if (!(out[i] >= 0.0 && isfinite(out[i])))
            return lathe_error(LATHE_E_CORRUPT, "%s: 'expert_loads' holds %g", path, out[i]);
    }
    return LATHE_OK;
}

lathe_status lathe__state_counters_read(const json_t *root, const char *path, lathe_counters *out)
{
    const json_t *cursor = json_object_get(root, "cursor"),
                 *state = json_object_get(root, "scheduler_state");
    memset(out, 0, sizeof *out);
    LATHE_TRY(lathe__state_integer(root, path, "step", &out->step));
    LATHE_TRY(lathe__state_integer(root, path, "micro", &out->micro));
    LATHE_TRY(lathe__state_integer(root, path, "tokens", &out->tokens));
    if (json_object_get(root, "evaluation_due"))
        LATHE_TRY(lathe__state_count(root, path, "evaluation_due", 1, &out->evaluation_due));
    LATHE_TRY(lathe__state_integer(cursor, path, "seed", &out->cursor.seed));
    LATHE_TRY(lathe__state_integer(cursor, path, "epoch", &out->cursor.epoch));
    LATHE_TRY(lathe__state_integer(cursor, path, "index", &out->cursor.index));
    LATHE_TRY(lathe__state_integer(cursor, path, "rows_per_epoch", &out->cursor.rows_per_epoch));
    LATHE_TRY(lathe__state_integer(cursor, path, "identity", &out->cursor.identity));
    LATHE_TRY(read_early(root, path, &out->early));
    if (json_array_size(state) != LATHE_MAX_SCHEDULER_STATE)
        return lathe_error(LATHE_E_CORRUPT, "%s: 'scheduler_state' must have %d entries", path,
                           LATHE_MAX_SCHEDULER_STATE);
    for (size_t i = 0; i < LATHE_MAX_SCHEDULER_STATE; i++) {
        LATHE_TRY(
            bits(json_array_get(state, i), path, "scheduler_state", &out->scheduler_state[i]));
    }
    return LATHE_OK;
}

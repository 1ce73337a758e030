/* Chooses the sampling settings of a run, and logs them. */
#include "run/parts/sampling_settings.h"

#include <string.h>

#include "base/api_struct.h"
#include "base/error.h"
#include "base/log.h"
#include "base/model_path.h"
#include "generate/generator.h"
#include "run/parts/named_adapters.h"
#include "run/state/api_sizes.h"

/* Whether the run file or an override sets a key of [generate]; otherwise the key has its
 * default. */
static int is_given(const lathe_config *config, const char *key)
{
    const lathe_value *value = lathe_config_get(config, "generate", key);
    return value && value->is_explicit;
}

/* Whether the model's file decides a key of [generate]. */
static int from_file(const lathe_run *run, const char *key)
{
    return run->generation.is_present && !is_given(run->config, key);
}

static double number(const lathe_run *run, const char *key, double setting, double of_file)
{
    return from_file(run, key) ? of_file : setting;
}

/* Without do_sample, transformers takes the most likely token; a temperature in the run file turns
 * sampling on. */
static double temperature(const lathe_run *run)
{
    return number(run, "temperature", run->set.temperature,
                  run->generation.do_sample ? run->generation.temperature : 0.0);
}

/* max_new_tokens has priority over max_length, as in transformers. */
static void set_lengths(const lathe_run *run, lathe_sampling *out)
{
    const lathe_generation_config *c = &run->generation;
    out->max_new_tokens = run->set.max_new_tokens;
    if (!from_file(run, "max_new_tokens"))
        return;
    if (c->max_new_tokens > 0)
        out->max_new_tokens = (int32_t)c->max_new_tokens;
    else if (c->max_length > 0)
        out->max_new_tokens = out->max_length = (int32_t)c->max_length;
}

static lathe_sampling defaults(const lathe_run *run)
{
    const lathe_generation_config *c = &run->generation;
    const lathe_settings *set = &run->set;
    lathe_sampling s = {
        .size = (uint32_t)sizeof s,
        .temperature = temperature(run),
        .top_p = number(run, "top_p", set->top_p, c->top_p),
        .top_k = from_file(run, "top_k") ? (int32_t)c->top_k : set->top_k,
        .min_p = number(run, "min_p", set->min_p, c->min_p),
        .repetition_penalty =
            number(run, "repetition_penalty", set->repetition_penalty, c->repetition_penalty),
        .stop_at_eos = 1,
        .seed = set->sample_seed};
    const lathe_value *stop = lathe_config_get(run->config, "generate", "stop");
    if (stop && stop->is_set && stop->n > 0) {
        s.stop = stop->strs;
        s.n_stop = (int32_t)stop->n;
    }
    if (run->data.n_stop_tokens > 0) {
        s.stop_tokens = run->data.stop_tokens;
        s.n_stop_tokens = run->data.n_stop_tokens;
    }
    set_lengths(run, &s);
    return s;
}

/* Refuses the values of the model's file that are used and cannot be: those that no setting
 * replaces and that the way of sampling reads. */
static lathe_status check_file(const lathe_run *run, const lathe_sampling *s)
{
    const lathe_generation_config *c = &run->generation;
    const int samples = s->temperature > 0.0;
    const struct {
        const char *key;
        int32_t bit, is_used;
    } keys[] = {
        {"temperature", LATHE_GENERATION_DO_SAMPLE, 1},
        {"temperature", LATHE_GENERATION_TEMPERATURE, c->do_sample},
        {"top_k", LATHE_GENERATION_TOP_K, samples},
        {"top_p", LATHE_GENERATION_TOP_P, samples},
        {"min_p", LATHE_GENERATION_MIN_P, samples},
        {"repetition_penalty", LATHE_GENERATION_REPETITION_PENALTY, 1},
        {"max_new_tokens", LATHE_GENERATION_MAX_NEW_TOKENS, 1},
        {"max_new_tokens", LATHE_GENERATION_MAX_LENGTH, c->max_new_tokens == 0},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].is_used && from_file(run, keys[i].key))
            LATHE_TRY(lathe_generation_config_use(c, keys[i].bit));
    return c->is_present ? lathe_generation_config_use(c, LATHE_GENERATION_EOS) : LATHE_OK;
}

lathe_status lathe_default_sampling(const lathe_run *run, lathe_sampling *out)
{
    const lathe_sampling s = defaults(run);
    LATHE_TRY(check_file(run, &s));
    LATHE_TRY(lathe_struct_check(out, "lathe_sampling", LATHE_LEAST_SAMPLING));
    lathe_struct_write(out, &s, (int64_t)sizeof s);
    return LATHE_OK;
}

/* ---- the log line ---- */

static void put_file_number(const lathe_run *run, const char *key, int32_t bit, double value,
                            lathe_buffer *b)
{
    if (from_file(run, key) && (run->generation.written >> bit & 1))
        lathe_buffer_printf(b, ", %s %g", key, value);
}

static void put_sampling(const lathe_run *run, const lathe_sampling *s, lathe_buffer *b)
{
    if (s->temperature > 0.0 && from_file(run, "temperature"))
        lathe_buffer_printf(b, ", temperature %g", s->temperature);
    else if (s->temperature == 0.0 && from_file(run, "temperature"))
        lathe_buffer_puts(b, ", the likeliest token each time (do_sample is not true)");
    if (s->temperature > 0.0) {
        if (from_file(run, "top_k"))
            lathe_buffer_printf(b, ", top_k %d", s->top_k);
        put_file_number(run, "top_p", LATHE_GENERATION_TOP_P, s->top_p, b);
        put_file_number(run, "min_p", LATHE_GENERATION_MIN_P, s->min_p, b);
    }
    put_file_number(run, "repetition_penalty", LATHE_GENERATION_REPETITION_PENALTY,
                    s->repetition_penalty, b);
}

void lathe__sampling_say(const lathe_run *run)
{
    const lathe_generation_config *c = &run->generation;
    lathe_buffer b = LATHE_BUFFER_INIT;
    if (!c->is_present)
        return;
    const lathe_sampling s = defaults(run);
    put_sampling(run, &s, &b);
    if (from_file(run, "max_new_tokens") && c->max_new_tokens > 0)
        lathe_buffer_printf(&b, ", max_new_tokens %d", s.max_new_tokens);
    else if (s.max_length > 0)
        lathe_buffer_printf(&b, ", max_length %d", s.max_length);
    for (int32_t i = 0; i < c->n_eos; i++)
        lathe_buffer_printf(&b, i ? " or %d" : ", stops at token %d", c->eos[i]);
    if (b.status == LATHE_OK && b.len > 2)
        lathe_log(LATHE_LOG_INFO, "from %s%s: %s", run->set.model_path,
                  lathe_path_is_gguf(run->set.model_path) ? "" : "/generation_config.json",
                  b.data + 2);
    lathe_buffer_fini(&b);
}

void lathe__drafts_say(const lathe_run *run)
{
    int64_t proposed = 0, accepted = 0;
    lathe_generator_drafts(run->generator, &proposed, &accepted);
    if (run->named) {
        proposed += run->named->n_drafted;
        accepted += run->named->n_accepted;
    }
    if (proposed > 0)
        lathe_log(
            LATHE_LOG_INFO, "%lld of the %lld tokens of the draft model were accepted (%.1f %%)",
            (long long)accepted, (long long)proposed, 100.0 * (double)accepted / (double)proposed);
}

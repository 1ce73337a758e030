/* Continues the prompts of a file. Results are written in the order of the prompts; those that are
 * ready before an earlier one wait in a window of WINDOW lines. */
#include "app/generate_prompts.h"

#include <stdlib.h>
#include <string.h>

#include "app/prompt_file.h"
#include "app/result_file.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "exec/exec.h"
#include "generate/generator.h"
#include "primitives/generate.h"
#include "primitives/sampling_settings.h"

#define WINDOW 1024 /* results that are given out and not yet written, at most */

/* A prompt that was given out. */
typedef struct result {
    char *line; /* NULL: not ready */
    int64_t bytes;
    int64_t prompt; /* number of its line in the file */
    int32_t sample;
    json_t *id;
} result;

typedef struct job {
    lathe_prompt_file prompts;
    lathe_result_file results;
    result window[WINDOW];      /* by index modulo WINDOW */
    int64_t n_given, n_written; /* in this call */
    int64_t n_tokens;
    int32_t n_samples, sample; /* sample: the next one of the present prompt */
    int32_t wants_logprobs, has_prompt;
    uint64_t seed;
} job;

/* The seed of a sample depends on its place in the file alone. */
static uint64_t seed_of(const job *j)
{
    const uint64_t key[3] = {j->seed, (uint64_t)j->prompts.line, (uint64_t)j->sample};
    return lathe_hash64(key, sizeof key);
}

/* The prompt of the line that was read. */
static lathe_prompt prompt_of(const job *j)
{
    return (lathe_prompt){.size = (uint32_t)sizeof(lathe_prompt),
                          .text = j->prompts.prompt,
                          .tokens = j->prompts.prompt ? NULL : j->prompts.ids.data,
                          .n_tokens = (int32_t)j->prompts.ids.n,
                          .seed = seed_of(j)};
}

static lathe_status next(void *arg, lathe_prompt *out, int32_t *out_given)
{
    job *j = arg;
    int32_t more = 1;
    *out_given = LATHE_PROMPT_LATER;
    if (j->n_given - j->n_written >= WINDOW)
        return LATHE_OK;
    *out_given = LATHE_PROMPT_NONE;
    if (!j->has_prompt || j->sample == j->n_samples) {
        LATHE_TRY(lathe_prompt_file_next(&j->prompts, &more));
        j->has_prompt = more;
        j->sample = 0;
    }
    if (!more)
        return LATHE_OK;
    result *r = &j->window[j->n_given % WINDOW];
    *r = (result){.prompt = j->prompts.line, .sample = j->sample, .id = json_incref(j->prompts.id)};
    *out = prompt_of(j);
    j->sample++;
    j->n_given++;
    *out_given = LATHE_PROMPT_GIVEN;
    return LATHE_OK;
}

static void put_logprobs(lathe_buffer *b, const lathe_generation *made)
{
    lathe_buffer_puts(b, ", \"ids\": [");
    for (int32_t i = 0; i < made->n_tokens; i++)
        lathe_buffer_printf(b, i ? ", %d" : "%d", made->tokens[i]);
    lathe_buffer_puts(b, "], \"logprobs\": [");
    for (int32_t i = 0; i < made->n_tokens; i++)
        lathe_buffer_printf(b, i ? ", %.9g" : "%.9g", (double)made->logprobs[i]);
    lathe_buffer_puts(b, "]");
}

static lathe_status make_line(const job *j, result *r, const lathe_generation *made)
{
    static const char *const reasons[] = {"length", "eos", "stop"};
    lathe_buffer b = LATHE_BUFFER_INIT;
    lathe_buffer_printf(&b, "{\"line\": %lld", (long long)r->prompt);
    if (j->n_samples > 1)
        lathe_buffer_printf(&b, ", \"sample\": %d", r->sample);
    char *id = r->id ? json_dumps(r->id, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (id)
        lathe_buffer_printf(&b, ", \"id\": %s", id);
    free(id);
    lathe_buffer_puts(&b, ", \"text\": ");
    lathe_buffer_json_bytes(&b, made->text, made->text_bytes);
    lathe_buffer_printf(&b, ", \"tokens\": %d, \"finish\": \"%s\"", made->n_tokens,
                        reasons[made->finish]);
    if (j->wants_logprobs)
        put_logprobs(&b, made);
    lathe_buffer_puts(&b, "}\n");
    if (b.status != LATHE_OK) {
        lathe_buffer_fini(&b);
        return lathe_error(LATHE_E_NOMEM, "no memory for a result");
    }
    r->line = b.data; /* the result owns the buffer's memory now */
    r->bytes = b.len;
    return LATHE_OK;
}

static void forget(result *r)
{
    free(r->line);
    json_decref(r->id);
    *r = (result){0};
}

static lathe_status done(void *arg, int64_t index, const lathe_generation *made)
{
    job *j = arg;
    LATHE_TRY(make_line(j, &j->window[index % WINDOW], made));
    j->n_tokens += made->n_tokens;
    for (; j->n_written < j->n_given && j->window[j->n_written % WINDOW].line; j->n_written++) {
        result *r = &j->window[j->n_written % WINDOW];
        LATHE_TRY(lathe_result_file_put(&j->results, r->line, r->bytes));
        forget(r);
    }
    return LATHE_OK;
}

/* What the results depend on. */
static json_t *settings_of(const lathe_run *run, const lathe_sampling *s, const job *j,
                           const char *prompts_hash)
{
    json_t *stop = json_array();
    for (int32_t i = 0; stop && i < s->n_stop; i++)
        json_array_append_new(stop, json_string(s->stop[i]));
    json_t *settings = json_pack(
        "{ss, ss, ss, ss, sI, sf, sf, si, sf, sf, si, si, sb, so, si, sb, sI}", "model",
        run->set.model_path ? run->set.model_path : "", "chat_template",
        run->data.chat ? lathe_chat_template_hash(run->data.chat) : "", "prompts", prompts_hash,
        "precision", lathe_precision_name(run->params.compute_dtype), "seed", (json_int_t)s->seed,
        "temperature", s->temperature, "top_p", s->top_p, "top_k", s->top_k, "min_p", s->min_p,
        "repetition_penalty", s->repetition_penalty, "max_new_tokens", s->max_new_tokens,
        "max_length", s->max_length, "stop_at_eos", s->stop_at_eos, "stop", stop, "samples",
        j->n_samples, "logprobs", j->wants_logprobs, "seq_len", (json_int_t)run->set.seq_len);
    if (settings && s->n_stop_tokens > 0) {
        json_t *ids = json_array();
        for (int32_t i = 0; ids && i < s->n_stop_tokens; i++)
            json_array_append_new(ids, json_integer(s->stop_tokens[i]));
        json_object_set_new(settings, "stop_tokens", ids);
    }
    if (settings && run->set.draft_path) {
        json_object_set_new(settings, "draft", json_string(run->set.draft_path));
        json_object_set_new(settings, "draft_tokens", json_integer(run->set.draft_tokens));
    }
    return settings;
}

/* Reads every line, so that a wrong one does not end the job after hours. */
static lathe_status check_prompts(lathe_run *run, job *j)
{
    int32_t more = 1;
    while (more) {
        LATHE_TRY(lathe_prompt_file_next(&j->prompts, &more));
        const lathe_prompt prompt = prompt_of(j);
        const lathe_status status =
            more ? lathe_generator_check(run->generator, &prompt) : LATHE_OK;
        if (status != LATHE_OK)
            return lathe_error_context(status, "%s:%lld", j->prompts.path,
                                       (long long)j->prompts.line);
    }
    return lathe_prompt_file_rewind(&j->prompts);
}

static lathe_status open_files(const lathe_args *args, lathe_run *run, const lathe_sampling *how,
                               job *j)
{
    const char *path = lathe_args_value(args, "--prompts");
    char hash[65];
    LATHE_TRY(lathe__run_chat_template(run));
    LATHE_TRY(lathe_prompt_file_open(path, run, &j->prompts));
    LATHE_TRY(check_prompts(run, j));
    LATHE_TRY(lathe_sha256_file(path, hash));
    json_t *settings = settings_of(run, how, j, hash);
    if (!settings)
        return lathe_error(LATHE_E_NOMEM, "no memory for the settings");
    const lathe_status status =
        lathe_result_file_open(lathe_args_value(args, "--output"), path, settings, &j->results);
    json_decref(settings);
    LATHE_TRY(status);
    const int64_t have = j->results.n_lines;
    if (have > 0)
        lathe_log(LATHE_LOG_INFO, "%s has %lld results; goes on after them", j->results.path,
                  (long long)have);
    LATHE_TRY(lathe_prompt_file_skip(&j->prompts, have / j->n_samples));
    if (have % j->n_samples != 0) { /* the first samples of the next prompt are there */
        LATHE_TRY(lathe_prompt_file_next(&j->prompts, &j->has_prompt));
        j->sample = (int32_t)(have % j->n_samples);
    }
    return LATHE_OK;
}

static lathe_status run_job(lathe_run *run, const lathe_sampling *sampling, job *j)
{
    const lathe_prompt_stream stream = {j, next, done, 1};
    int64_t failed = -1;
    const double begun = lathe_now();
    const lathe_status status = lathe_generator_stream(run->generator, sampling, &stream, &failed);
    if (status != LATHE_OK && failed >= j->n_written && failed < j->n_given)
        return lathe_error_context(status, "%s:%lld", j->prompts.path,
                                   (long long)j->window[failed % WINDOW].prompt);
    LATHE_TRY(status);
    const double seconds = lathe_now() - begun;
    lathe_log(LATHE_LOG_INFO, "%lld results written to %s: %lld tokens in %.1f s (%.0f tokens/s)",
              (long long)j->n_written, j->results.path, (long long)j->n_tokens, seconds,
              (double)j->n_tokens / (seconds > 0.0 ? seconds : 1.0));
    lathe__drafts_say(run);
    return LATHE_OK;
}

lathe_status lathe_app_generate_prompts(const lathe_args *args, lathe_run *run,
                                        const lathe_sampling *how)
{
    int64_t samples = 1;
    LATHE_TRY(lathe_args_int(args, "--samples", 1, 1000000, 1, &samples));
    job *j = calloc(1, sizeof *j);
    if (!j)
        return lathe_error(LATHE_E_NOMEM, "no memory for the prompts");
    j->results.fd = -1;
    j->n_samples = (int32_t)samples;
    j->seed = how->seed;
    j->wants_logprobs = lathe_args_value(args, "--logprobs") != NULL;
    lathe_sampling sampling;
    lathe_status status = lathe__generate_begin(run, how, run->set.generate_batch, &sampling);
    if (status == LATHE_OK)
        status = open_files(args, run, how, j);
    if (status == LATHE_OK)
        status = run_job(run, &sampling, j);
    for (int32_t i = 0; i < WINDOW; i++)
        forget(&j->window[i]);
    lathe_prompt_file_close(&j->prompts);
    lathe_result_file_close(&j->results);
    free(j);
    return status;
}

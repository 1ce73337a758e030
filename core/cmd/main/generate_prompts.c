/* Continues the prompts of a file. Results are written in the order of the prompts; those that are
 * ready before an earlier one wait in a window of WINDOW lines.
 *
 * Where the lines name several adapters, the file is read window by window, and each window once
 * for each adapter, so that prompts of one adapter are continued together. */
#include "cmd/main/generate_prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json/json_wide.h"
#include "base/log.h"
#include "cmd/main/prompt_file.h"
#include "cmd/main/result_file.h"
#include "exec/program/exec.h"
#include "exec/program/precision.h"
#include "generate/generator.h"
#include "run/api/generate.h"
#include "run/api/run_facts.h"
#include "run/parts/named_adapters.h"
#include "run/parts/run_parts.h"
#include "run/parts/sampling_settings.h"

#define WINDOW 1024 /* results that are given out and not yet written, at most */

/* A prompt that was given out. */
typedef struct result {
    char *line; /* NULL: not ready */
    int64_t bytes;
    int64_t prompt; /* number of its line in the file */
    int32_t sample, adapter;
    json_t *id;
} result;

typedef struct job {
    lathe_prompt_file prompts;
    lathe_result_file results;
    result window[WINDOW]; /* by number of the sample in this call, modulo WINDOW */
    int64_t at, n_written; /* samples of this call: the next one, and those written */
    int64_t given[WINDOW]; /* samples of the current stream, by index modulo WINDOW */
    int64_t n_given;       /* of the current stream */
    int64_t n_tokens;
    int32_t by_adapter, adapter; /* by_adapter: only samples of `adapter` are given, up to `end` */
    int64_t end;
    const lathe_named_adapters *named; /* of the run; NULL: none */
    char *is_named; /* [n + 1] of adapter + 1: whether the file, or the window, names it */
    int32_t n_samples, sample; /* sample: how many of the present prompt were taken */
    int32_t wants_logprobs, has_prompt;
    uint64_t seed;
} job;

/* The seed of a sample depends on its place in the file alone. */
static uint64_t seed_of(const job *j)
{
    const uint64_t key[3] = {j->seed, (uint64_t)j->prompts.line, (uint64_t)j->sample - 1};
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

/* Goes to the next sample. *out_more 0: the file has ended. */
static lathe_status go_on(job *j, int32_t *out_more)
{
    *out_more = 1;
    if (!j->has_prompt || j->sample == j->n_samples) {
        LATHE_TRY(lathe_prompt_file_next(&j->prompts, out_more));
        j->has_prompt = *out_more;
        j->sample = 0;
    }
    j->sample += *out_more;
    j->at += *out_more;
    return LATHE_OK;
}

static lathe_status next(void *arg, lathe_prompt *out, int32_t *out_given)
{
    job *j = arg;
    int32_t more = 1;
    *out_given = LATHE_PROMPT_LATER;
    if (!j->by_adapter && j->at - j->n_written >= WINDOW)
        return LATHE_OK;
    *out_given = LATHE_PROMPT_NONE;
    do {
        if (j->by_adapter && j->at == j->end)
            return LATHE_OK;
        LATHE_TRY(go_on(j, &more));
    } while (more && j->by_adapter && j->prompts.adapter != j->adapter);
    if (!more)
        return LATHE_OK;
    const int64_t sample = j->at - 1;
    j->given[j->n_given++ % WINDOW] = sample;
    j->window[sample % WINDOW] = (result){.prompt = j->prompts.line,
                                          .sample = j->sample - 1,
                                          .adapter = j->prompts.adapter,
                                          .id = json_incref(j->prompts.id)};
    *out = prompt_of(j);
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
    if (r->id) {
        lathe_buffer_puts(&b, ", \"id\": ");
        lathe_json_write_exact(r->id, &b);
    }
    if (j->named)
        lathe_buffer_printf(&b, ", \"adapter\": \"%s\"",
                            r->adapter < 0 ? LATHE_NAMED_BASE : j->named->list[r->adapter].name);
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
    LATHE_TRY(make_line(j, &j->window[j->given[index % WINDOW] % WINDOW], made));
    j->n_tokens += made->n_tokens;
    for (; j->window[j->n_written % WINDOW].line; j->n_written++) {
        result *r = &j->window[j->n_written % WINDOW];
        LATHE_TRY(lathe_result_file_put(&j->results, r->line, r->bytes));
        forget(r);
    }
    return LATHE_OK;
}

static const char *used_name(const lathe_named_adapters *named)
{
    return named->used < 0 ? LATHE_NAMED_BASE : named->list[named->used].name;
}

/* Returns the settings that the results depend on. A file of results is continued only with equal
 * settings. */
static json_t *settings_of(const lathe_run *run, const lathe_sampling *s, const job *j,
                           const char *prompts_hash)
{
    lathe_run_facts f;
    lathe_run_facts_get(run, &f);
    json_t *stop = json_array();
    for (int32_t i = 0; stop && i < s->n_stop; i++)
        json_array_append_new(stop, json_string(s->stop[i]));
    json_t *settings = json_pack(
        "{ss, ss, ss, ss, sI, sf, sf, si, sf, sf, si, si, sb, so, si, sb, sI}", "model",
        f.model_path, "chat_template", f.template_hash, "prompts", prompts_hash, "precision",
        lathe_precision_name(f.weight_dtype), "seed", (json_int_t)s->seed, "temperature",
        s->temperature, "top_p", s->top_p, "top_k", s->top_k, "min_p", s->min_p,
        "repetition_penalty", s->repetition_penalty, "max_new_tokens", s->max_new_tokens,
        "max_length", s->max_length, "stop_at_eos", s->stop_at_eos, "stop", stop, "samples",
        j->n_samples, "logprobs", j->wants_logprobs, "seq_len", (json_int_t)f.row_tokens);
    if (settings && s->n_stop_tokens > 0) {
        json_t *ids = json_array();
        for (int32_t i = 0; ids && i < s->n_stop_tokens; i++)
            json_array_append_new(ids, json_integer(s->stop_tokens[i]));
        json_object_set_new(settings, "stop_tokens", ids);
    }
    if (settings && f.draft_path) {
        json_object_set_new(settings, "draft", json_string(f.draft_path));
        json_object_set_new(settings, "draft_tokens", json_integer(f.draft_tokens));
    }
    for (int32_t i = 0; settings && j->named && i < j->named->n; i++) {
        char key[80];
        (void)snprintf(key, sizeof key, "adapter %s", j->named->list[i].name);
        json_object_set_new(settings, key, json_string(j->named->list[i].dir));
    }
    if (settings && j->named)
        json_object_set_new(settings, "use", json_string(used_name(j->named)));
    return settings;
}

/* Reads every line, so that a wrong one does not end the job after hours. Sets is_named. */
static lathe_status check_prompts(lathe_run *run, job *j)
{
    int32_t more = 1;
    while (more) {
        LATHE_TRY(lathe_prompt_file_next(&j->prompts, &more));
        const lathe_prompt prompt = prompt_of(j);
        const lathe_status status = more ? lathe__generate_check_prompt(run, &prompt) : LATHE_OK;
        if (status != LATHE_OK)
            return lathe_error_from(status, j->prompts.path, j->prompts.line, 0);
        if (more)
            j->is_named[j->prompts.adapter + 1] = 1;
    }
    return lathe_prompt_file_rewind(&j->prompts);
}

static lathe_status open_files(const lathe_args *args, lathe_session *session,
                               const lathe_sampling *how, job *j)
{
    lathe_run *const run = lathe_session_run(session);
    const char *path = lathe_args_value(args, "--prompts");
    char hash[65];
    LATHE_TRY(lathe__run_chat_template(run));
    LATHE_TRY(lathe_prompt_file_open(path, session, &j->prompts));
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
        lathe_log(LATHE_LOG_INFO, "%s has %lld result%s; goes on after %s", j->results.path,
                  (long long)have, have == 1 ? "" : "s", have == 1 ? "it" : "them");
    LATHE_TRY(lathe_prompt_file_skip(&j->prompts, have / j->n_samples));
    if (have % j->n_samples != 0) { /* the first samples of the next prompt are there */
        LATHE_TRY(lathe_prompt_file_next(&j->prompts, &j->has_prompt));
        j->sample = (int32_t)(have % j->n_samples);
    }
    return LATHE_OK;
}

/* Warns of samples that can only be equal. */
static void warn_of_equal(const lathe_sampling *how, int64_t samples)
{
    if (samples > 1 && (how->temperature <= 0.0 || how->top_k == 1))
        lathe_log(LATHE_LOG_WARN,
                  "--samples %lld: all samples of a prompt will be the same, because %s; to draw "
                  "different ones, set %s",
                  (long long)samples,
                  how->temperature <= 0.0 ? "the likeliest token is taken each time (temperature 0)"
                                          : "top_k is 1",
                  how->temperature <= 0.0 ? "--temperature 1" : "--top-k 0");
}

/* Continues the samples that `next` gives. */
static lathe_status run_stream(lathe_run *run, const lathe_sampling *sampling, job *j)
{
    const lathe_prompt_stream stream = {j, next, done, 1};
    int64_t failed = -1;
    j->n_given = 0;
    const lathe_status status = lathe__generate_stream(run, sampling, &stream, &failed);
    if (status != LATHE_OK && failed >= 0 && failed < j->n_given && j->n_given - failed <= WINDOW)
        return lathe_error_from(status, j->prompts.path,
                                j->window[j->given[failed % WINDOW] % WINDOW].prompt, 0);
    return status;
}

/* A place between two samples of the file. */
typedef struct place {
    int64_t start, line, at;
    int32_t has_prompt, sample;
} place;

static place place_of(const job *j)
{
    const lathe_prompt_file *f = &j->prompts;
    return (place){.start = j->has_prompt ? f->start : f->end,
                   .line = j->has_prompt ? f->line : f->line + 1,
                   .at = j->at,
                   .has_prompt = j->has_prompt,
                   .sample = j->sample};
}

static lathe_status go_back(job *j, const place *p)
{
    int32_t more;
    LATHE_TRY(lathe_prompt_file_seek(&j->prompts, p->start, p->line));
    if (p->has_prompt)
        LATHE_TRY(lathe_prompt_file_next(&j->prompts, &more));
    j->at = p->at;
    j->has_prompt = p->has_prompt;
    j->sample = p->sample;
    return LATHE_OK;
}

/* Finds the end of the next window, and which adapters its lines name. */
static lathe_status survey(job *j)
{
    int32_t more = 1;
    memset(j->is_named, 0, (size_t)j->named->n + 1);
    for (int64_t i = 0; i < WINDOW && more; i++) {
        LATHE_TRY(go_on(j, &more));
        if (more)
            j->is_named[j->prompts.adapter + 1] = 1;
    }
    j->end = j->at;
    return LATHE_OK;
}

/* Continues the samples of the next window, one adapter after the other. */
static lathe_status run_window(lathe_run *run, const lathe_sampling *sampling, job *j)
{
    const place begin = place_of(j);
    LATHE_TRY(survey(j));
    const place end = place_of(j);
    for (int32_t i = 0; i <= j->named->n; i++) {
        j->adapter = i - 1;
        if (!j->is_named[i])
            continue;
        LATHE_TRY(go_back(j, &begin));
        LATHE_TRY(lathe__generate_with_adapter(run, j->adapter));
        LATHE_TRY(run_stream(run, sampling, j));
    }
    return go_back(j, &end);
}

static lathe_status run_all(lathe_run *run, const lathe_sampling *sampling, job *j)
{
    int32_t n = 0;
    for (int32_t i = 0; j->named && i <= j->named->n; i++) {
        n += j->is_named[i];
        j->adapter = j->is_named[i] ? i - 1 : j->adapter;
    }
    j->by_adapter = n > 1;
    if (n == 1) {
        LATHE_TRY(lathe__generate_with_adapter(run, j->adapter));
    }
    if (n <= 1)
        return run_stream(run, sampling, j);
    do
        LATHE_TRY(run_window(run, sampling, j));
    while (j->has_prompt);
    return LATHE_OK;
}

static lathe_status run_job(lathe_run *run, const lathe_sampling *sampling, job *j)
{
    const double begun = lathe_now();
    LATHE_TRY(run_all(run, sampling, j));
    const double seconds = lathe_now() - begun;
    lathe_log(LATHE_LOG_INFO, "%lld result%s written to %s: %lld token%s in %.1f s (%.0f tokens/s)",
              (long long)j->n_written, j->n_written == 1 ? "" : "s", j->results.path,
              (long long)j->n_tokens, j->n_tokens == 1 ? "" : "s", seconds,
              (double)j->n_tokens / (seconds > 0.0 ? seconds : 1.0));
    lathe__drafts_say(run);
    return LATHE_OK;
}

lathe_status lathe_app_generate_prompts(const lathe_args *args, lathe_session *session,
                                        const lathe_sampling *how)
{
    lathe_run *const run = lathe_session_run(session);
    int64_t samples = 1;
    LATHE_TRY(lathe_args_int(args, "--samples", 1, 1000000, 1, &samples));
    job *j = calloc(1, sizeof *j);
    if (!j)
        return lathe_error(LATHE_E_NOMEM, "no memory for the prompts");
    j->results.fd = -1;
    j->named = lathe__run_named(run);
    j->is_named = calloc(j->named ? (size_t)j->named->n + 1 : 1, 1);
    if (!j->is_named) {
        free(j);
        return lathe_error(LATHE_E_NOMEM, "no memory for the prompts");
    }
    warn_of_equal(how, samples);
    j->n_samples = (int32_t)samples;
    j->seed = how->seed;
    j->wants_logprobs = lathe_args_value(args, "--logprobs") != NULL;
    lathe_sampling sampling;
    lathe_status status = lathe__generate_begin(run, how, 0, &sampling);
    if (status == LATHE_OK)
        status = open_files(args, session, how, j);
    if (status == LATHE_OK)
        status = run_job(run, &sampling, j);
    for (int32_t i = 0; i < WINDOW; i++)
        forget(&j->window[i]);
    lathe_prompt_file_close(&j->prompts);
    lathe_result_file_close(&j->results);
    free(j->is_named);
    free(j);
    return status;
}

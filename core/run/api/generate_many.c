/* lathe_generate_many: continues several prompts and keeps their results until the next call. */
#include <string.h>

#include "base/api_struct.h"
#include "base/error.h"
#include "generate/generator.h"
#include "run/api/generate.h"
#include "run/state/api_sizes.h"

static lathe_status keep_bytes(lathe_arena *arena, const void *from, int64_t bytes,
                               const void **out)
{
    char *copy = lathe_arena_alloc(arena, bytes + 1);
    if (copy == NULL)
        return LATHE_E_NOMEM;
    memcpy(copy, from, (size_t)bytes);
    *out = copy;
    return LATHE_OK;
}

/* Copies what a result borrows from the generator, so that it lasts until the next call. */
static lathe_status keep_result(lathe_arena *arena, lathe_generation *g)
{
    const void *tokens, *logprobs, *text, *prompt;
    LATHE_TRY(keep_bytes(arena, g->tokens, g->n_tokens * 4LL, &tokens));
    LATHE_TRY(keep_bytes(arena, g->logprobs, g->n_tokens * 4LL, &logprobs));
    LATHE_TRY(keep_bytes(arena, g->text, g->text_bytes, &text));
    LATHE_TRY(keep_bytes(arena, g->prompt_tokens, g->n_prompt_tokens * 4LL, &prompt));
    g->tokens = tokens;
    g->logprobs = logprobs;
    g->text = text;
    g->prompt_tokens = prompt;
    return LATHE_OK;
}

/* The stream of lathe_generate_many: arrays of the caller. */
typedef struct arrays {
    lathe_run *run;
    const lathe_prompt *prompts;
    lathe_generation *out;
    int32_t n, at;
    lathe__stop_check stop;
} arrays;

static lathe_status next_prompt(void *arg, lathe_prompt *out, int32_t *out_given)
{
    arrays *a = arg;
    const int has_ended = a->at == a->n || (a->stop.asks && a->stop.asks(a->stop.arg));
    *out_given = has_ended ? LATHE_PROMPT_NONE : LATHE_PROMPT_GIVEN;
    if (has_ended)
        return LATHE_OK;
    const char *given = (const char *)a->prompts + (int64_t)a->at++ * a->prompts->size;
    return lathe_struct_read(given, "lathe_prompt", LATHE_LEAST_PROMPT, out, (int64_t)sizeof *out);
}

static lathe_generation *result_of(const arrays *a, int64_t i)
{
    return (lathe_generation *)(void *)((char *)a->out + i * a->out->size);
}

static lathe_status keep(void *arg, int64_t index, const lathe_generation *made)
{
    const arrays *a = arg;
    lathe_generation copy = *made;
    LATHE_TRY(keep_result(lathe_generator_results(a->run->generator), &copy));
    lathe_struct_write(result_of(a, index), &copy, (int64_t)sizeof copy);
    return LATHE_OK;
}

lathe_status lathe__generate_many(lathe_run *run, const lathe_prompt *prompts, int32_t n,
                                  const lathe_sampling *how, lathe__stop_check stop,
                                  lathe_generation *out)
{
    arrays a = {.run = run, .prompts = prompts, .out = out, .n = n, .stop = stop};
    const lathe_prompt_stream stream = {&a, next_prompt, keep, 1};
    lathe_sampling sampling;
    int64_t failed = -1;
    if (n < 0 || (n > 0 && (prompts == NULL || out == NULL)))
        return lathe_error(LATHE_E_ARG, "lathe_generate_many needs n >= 0, prompts and results");
    for (int32_t i = 0; i < n; i++)
        LATHE_TRY(lathe_struct_check(result_of(&a, i), "lathe_generation", LATHE_LEAST_GENERATION));
    LATHE_TRY(lathe__generate_begin(run, how, n > 1 ? run->set.generate_batch : 1, &sampling));
    lathe_arena_fini(lathe_generator_results(run->generator));
    const lathe_status status = lathe_generator_stream(run->generator, &sampling, &stream, &failed);
    if (status != LATHE_OK && failed >= 0 && n > 1)
        return lathe_error_context(status, "prompt %lld", (long long)failed);
    return status;
}

lathe_status lathe_generate_many(lathe_run *run, const lathe_prompt *prompts, int32_t n,
                                 const lathe_sampling *how, lathe_generation *out)
{
    return lathe__generate_many(run, prompts, n, how, (lathe__stop_check){0}, out);
}

/* lathe_generate_many: continues several prompts and keeps their results until the next call. */
#include <string.h>

#include "base/api_struct.h"
#include "base/error.h"
#include "run/api_sizes.h"
#include "run/generate.h"
#include "run/run_state.h"

static lathe_status keep_bytes(lathe_arena *arena, const void *from, int64_t bytes,
                               const void **out)
{
    char *copy = lathe_arena_alloc(arena, bytes + 1);
    if (!copy)
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

static lathe_status generate_many(lathe_run *run, const lathe_prompt *prompts, int32_t n,
                                  lathe_sampling *sampling, lathe_generation *out)
{
    for (int32_t i = 0; i < n; i++) {
        const char *given = (const char *)prompts + (int64_t)i * prompts->size;
        char *result = (char *)out + (int64_t)i * out->size;
        lathe_prompt prompt;
        lathe_generation made;
        LATHE_TRY(lathe_struct_check(result, "lathe_generation", LATHE_LEAST_GENERATION));
        LATHE_TRY(lathe_struct_read(given, "lathe_prompt", LATHE_LEAST_PROMPT, &prompt,
                                    (int64_t)sizeof prompt));
        sampling->seed = prompt.seed;
        const lathe_status status = lathe__generate_one(run, &prompt, sampling, &made);
        if (status != LATHE_OK)
            return lathe_error_context(status, "prompt %d", i);
        LATHE_TRY(keep_result(lathe__generator_results(run), &made));
        lathe_struct_write(result, &made, (int64_t)sizeof made);
    }
    return LATHE_OK;
}

lathe_status lathe_generate_many(lathe_run *run, const lathe_prompt *prompts, int32_t n,
                                 const lathe_sampling *how, lathe_generation *out)
{
    lathe_sampling sampling;
    if (n < 0 || (n > 0 && (!prompts || !out)))
        return lathe_error(LATHE_E_ARG, "lathe_generate_many needs n >= 0, prompts and results");
    LATHE_TRY(lathe__generate_begin(run, how, &sampling));
    lathe_arena_fini(lathe__generator_results(run));
    return generate_many(run, prompts, n, &sampling, out);
}

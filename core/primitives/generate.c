/* lathe_generate: continues one prompt; and the checks before any generation. */
#include "primitives/generate.h"

#include "base/api_struct.h"
#include "base/error.h"
#include "generate/generator.h"
#include "primitives/api_sizes.h"

static lathe_status check_sampling(const lathe_sampling *s)
{
    for (int32_t i = 0; i < s->n_stop; i++)
        if (!s->stop || !s->stop[i] || !s->stop[i][0])
            return lathe_error(LATHE_E_ARG, "stop string %d is empty; expected a text", i);
    if (s->max_new_tokens < 1 || s->temperature < 0.0 || s->top_k < 0 || !(s->top_p > 0.0) ||
        !(s->min_p >= 0.0 && s->min_p <= 1.0) || !(s->repetition_penalty >= 0.0) ||
        s->max_length < 0 || s->n_stop < 0 || s->n_stop_tokens < 0 ||
        (s->n_stop_tokens > 0 && !s->stop_tokens))
        return lathe_error(LATHE_E_ARG,
                           "sampling needs max_new_tokens >= 1, temperature >= 0, top_k >= 0, "
                           "top_p > 0, min_p from 0 to 1, repetition_penalty >= 0, "
                           "max_length >= 0, n_stop >= 0, and stop_tokens for n_stop_tokens > 0");
    return LATHE_OK;
}

lathe_status lathe__generate_begin(lathe_run *run, const lathe_sampling *how, int32_t batch,
                                   lathe_sampling *out)
{
    LATHE_TRY(
        lathe_struct_read(how, "lathe_sampling", LATHE_LEAST_SAMPLING, out, (int64_t)sizeof *out));
    if (!run->open.placed || !run->data.tokenizer)
        return lathe_error(LATHE_E_STATE,
                           "cannot generate: the run has no weights in memory or no tokenizer");
    if (run->sum.pending)
        return lathe_error(LATHE_E_STATE, "the last training forward still waits for its backward");
    LATHE_TRY(check_sampling(out));
    return lathe__run_generator(run, batch);
}

lathe_status lathe__generate_check(lathe_run *run, const char *prompt)
{
    const lathe_prompt text = {.size = (uint32_t)sizeof text, .text = prompt};
    LATHE_TRY(lathe__run_generator(run, 1));
    return lathe_generator_check(run->generator, &text);
}

/* The stream of lathe_generate: one prompt. */
typedef struct one_prompt {
    lathe_prompt prompt;
    lathe_generation made;
    int32_t is_given;
} one_prompt;

static lathe_status next_prompt(void *arg, lathe_prompt *out, int32_t *out_given)
{
    one_prompt *one = arg;
    *out_given = one->is_given ? LATHE_PROMPT_NONE : LATHE_PROMPT_GIVEN;
    one->is_given = 1;
    *out = one->prompt;
    return LATHE_OK;
}

static lathe_status take_result(void *arg, int64_t index, const lathe_generation *made)
{
    (void)index;
    ((one_prompt *)arg)->made = *made; /* the slot keeps its arrays until it is used again */
    return LATHE_OK;
}

lathe_status lathe_generate(lathe_run *run, const char *prompt, const lathe_sampling *how,
                            lathe_generation *out)
{
    lathe_sampling sampling;
    int64_t failed;
    LATHE_TRY(lathe_struct_check(out, "lathe_generation", LATHE_LEAST_GENERATION));
    LATHE_TRY(lathe__generate_begin(run, how, 1, &sampling));
    one_prompt one = {
        .prompt = {.size = (uint32_t)sizeof one.prompt, .text = prompt, .seed = sampling.seed}};
    const lathe_prompt_stream stream = {&one, next_prompt, take_result, 0};
    LATHE_TRY(lathe_generator_stream(run->generator, &sampling, &stream, &failed));
    lathe_struct_write(out, &one.made, (int64_t)sizeof one.made);
    return LATHE_OK;
}

/* lathe_generate: continues one prompt; and the checks before any generation. */
#include "run/api/generate.h"

#include <float.h>
#include <math.h>

#include "base/api_struct.h"
#include "base/error.h"
#include "generate/generator.h"
#include "run/parts/named_adapters.h"
#include "run/parts/run_parts.h"
#include "run/state/api_sizes.h"

/* One number of lathe_sampling and the values that it may have; NaN is in no range. */
typedef struct number {
    const char *name;
    double value, min, max;
    int32_t above; /* 1: the minimum itself is excluded */
} number;

static lathe_status check_numbers(const lathe_sampling *s)
{
    const number numbers[] = {
        {"max_new_tokens", s->max_new_tokens, 1.0, INT32_MAX, 0},
        {"temperature", s->temperature, 0.0, DBL_MAX, 0},
        {"top_p", s->top_p, 0.0, 1.0, 1},
        {"top_k", s->top_k, 0.0, INT32_MAX, 0},
        {"min_p", s->min_p, 0.0, 1.0, 0},
        {"repetition_penalty", s->repetition_penalty, 0.0, DBL_MAX, 0},
        {"max_length", s->max_length, 0.0, INT32_MAX, 0},
        {"n_stop", s->n_stop, 0.0, INT32_MAX, 0},
        {"n_stop_tokens", s->n_stop_tokens, 0.0, INT32_MAX, 0},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const number *x = &numbers[i];
        if (x->value >= x->min && x->value <= x->max && !(x->above && x->value == x->min))
            continue;
        return lathe_error(LATHE_E_ARG,
                           x->max >= INT32_MAX ? "lathe_sampling.%s is %g; expected a finite "
                                                 "number %s %g"
                                               : "lathe_sampling.%s is %g; expected a number %s "
                                                 "%g, and at most %g",
                           x->name, isnan(x->value) ? (double)NAN : x->value,
                           x->above ? "above" : "of at least", x->min, x->max);
    }
    return LATHE_OK;
}

static lathe_status check_sampling(const lathe_sampling *s)
{
    LATHE_TRY(check_numbers(s));
    if (s->n_stop_tokens > 0 && s->stop_tokens == NULL)
        return lathe_error(LATHE_E_ARG,
                           "lathe_sampling.stop_tokens is NULL, and n_stop_tokens is %d",
                           s->n_stop_tokens);
    for (int32_t i = 0; i < s->n_stop; i++)
        if (!s->stop || !s->stop[i] || !s->stop[i][0])
            return lathe_error(LATHE_E_ARG, "stop string %d is empty; expected a text", i);
    return LATHE_OK;
}

lathe_status lathe__generate_begin(lathe_run *run, const lathe_sampling *how, int32_t batch,
                                   lathe_sampling *out)
{
    LATHE_TRY(
        lathe_struct_read(how, "lathe_sampling", LATHE_LEAST_SAMPLING, out, (int64_t)sizeof *out));
    if (!run->placed || !run->data.tokenizer)
        return lathe_error(LATHE_E_STATE,
                           "cannot generate: the run has no weights in memory or no tokenizer");
    if (run->sum.pending)
        return lathe_error(LATHE_E_STATE, "the last training forward still waits for its backward");
    LATHE_TRY(check_sampling(out));
    return lathe__run_generator(run, batch > 0 ? batch : run->set.generate_batch);
}

lathe_status lathe__generate_check_prompt(lathe_run *run, const lathe_prompt *prompt)
{
    return lathe_generator_check(run->generator, prompt);
}

lathe_status lathe__generate_stream(lathe_run *run, const lathe_sampling *how,
                                    const lathe_prompt_stream *stream, int64_t *out_failed)
{
    return lathe_generator_stream(run->generator, how, stream, out_failed);
}

lathe_status lathe__generate_with_adapter(lathe_run *run, int32_t index)
{
    lathe__named_adapters_use(run, index);
    return lathe__run_generator(run, run->set.generate_batch);
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

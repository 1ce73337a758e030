/* A stage that makes its own rollouts of six completions, learnt in two steps, and one fault of
 * iterate() or state_bytes(). For faulty_stage.c: names that begin with "rolls_". */
#ifndef LATHE_TEST_FAULT_ROLLS_H
#define LATHE_TEST_FAULT_ROLLS_H

#include <time.h>

#include "fault.h"
#include "lathe/stage.h"
#include "lathe/stage_run.h"

#define ROLLS (__builtin_strncmp(FAULT_NAME, "rolls_", 6) == 0 || IS(sound_stage_that_rolls))

enum { ROLL_PROMPTS = 3, ROLL_N = 6, ROLL_NEW = 8 };

typedef struct roll {
    int64_t full, at, kept;
    double mean;
    int32_t n_prompt[ROLL_N], length[ROLL_N];
    float advantage[ROLL_N];
    lathe_stage_prompt prompts[ROLL_PROMPTS]; /* cleared before iterate() returns */
    lathe_prompt asked[ROLL_N];
    lathe_generation made[ROLL_N];
    lathe_stage_completion done[ROLL_N];
    double rewards[ROLL_N];
} roll;

static int64_t roll_steps;
static void *roll_shared;
static const char *roll_record;

/* After the roll: tokens i32[ROLL_N, T]; of a batch: tokens, targets, doc_start i32[B, T], values
 * f32[B, T]. */
static int32_t *roll_tokens(roll *r)
{
    return (int32_t *)(void *)(r + 1);
}

static lathe_status roll_state_bytes(void *self, int32_t n_rows, int64_t row_tokens, int64_t *out)
{
    static int64_t asked;
    const instance *x = self;
    if (IS(rolls_state_crashes))
        crash();
    if (IS(rolls_state_hangs))
        hang();
    if (IS(rolls_refuses_rows_in_silence))
        return LATHE_E_CONFIG;
    if (IS(rolls_refuses_rows))
        return lathe_fail(x->host, LATHE_E_CONFIG, "not these rows");
    if (IS(rolls_says_nothing))
        return LATHE_OK;
    const int64_t bytes = (int64_t)sizeof(roll) + (ROLL_N + 4 * (int64_t)n_rows) * row_tokens * 4;
    *out = (bytes + 7) / 8 * 8;
    if (IS(rolls_state_of_odd_bytes))
        *out += 3;
    if (IS(rolls_negative_state))
        *out = -8;
    if (IS(rolls_state_grows))
        *out += 8 * asked++;
    if (IS(rolls_state_too_small))
        *out -= 8;
    if (IS(rolls_state_of_nothing))
        *out = 0;
    return LATHE_OK;
}

static uint64_t roll_seed(const instance *x, const roll *r, const lathe_run_api *api, void *run,
                          int32_t i)
{
    if (IS(rolls_counts_in_a_static))
        return (uint64_t)(roll_steps * 10 + i);
    if (IS(rolls_counts_in_the_instance))
        return (uint64_t)(x->calls * 10 + i);
    if (IS(rolls_draws_by_rand))
        return (uint64_t)rand();
    if (IS(rolls_draws_by_time)) {
        struct timespec now;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_nsec;
    }
    if (IS(rolls_draws_by_address))
        return (uint64_t)(uintptr_t)r;
    return api->random(run, (uint64_t)i);
}

static lathe_status roll_generate(instance *x, roll *r, const lathe_run_api *api, void *run)
{
    const lathe_sampling how = {.size = IS(rolls_sampling_without_size) ? 0 : sizeof how,
                                .max_new_tokens = IS(rolls_asks_for_no_tokens) ? 0 : ROLL_NEW,
                                .temperature = IS(rolls_temperature_is_nan)     ? (double)NAN
                                               : IS(rolls_negative_temperature) ? -1.0
                                                                                : 1.0,
                                .top_p = IS(rolls_top_p_of_two) ? 2.0 : 1.0,
                                .stop_at_eos = 1,
                                .max_length = api->row_tokens};
    for (int32_t i = 0; i < ROLL_N; i++) {
        const lathe_stage_prompt *p = &r->prompts[i / 2];
        r->asked[i] =
            (lathe_prompt){.size = IS(rolls_prompts_without_size) ? 0 : sizeof r->asked[i],
                           .n_tokens = IS(rolls_prompts_of_no_tokens) ? 0 : p->n_tokens,
                           .tokens = p->tokens,
                           .seed = roll_seed(x, r, api, run, i)};
        r->made[i].size = IS(rolls_results_without_size) ? 0 : sizeof r->made[i];
    }
    if (IS(rolls_writes_the_prompt))
        ((int32_t *)(uintptr_t)r->prompts[0].tokens)[0] = 1;
    return api->generate(run, r->asked, ROLL_N, &how, r->made);
}

static lathe_status roll_score(roll *r, const lathe_run_api *api, void *run, int32_t T)
{
    int32_t *tokens = roll_tokens(r);
    for (int32_t i = 0; i < ROLL_N; i++) {
        const lathe_stage_prompt *p = &r->prompts[i / 2];
        int32_t *row = tokens + i * T;
        memcpy(row, p->tokens, (size_t)p->n_tokens * 4);
        if (r->made[i].n_tokens > 0)
            memcpy(row + p->n_tokens, r->made[i].tokens, (size_t)r->made[i].n_tokens * 4);
        r->n_prompt[i] = p->n_tokens;
        r->length[i] = r->made[i].n_tokens;
        r->done[i] = (lathe_stage_completion){.prompt = row,
                                              .tokens = row + p->n_tokens,
                                              .n_prompt = p->n_tokens,
                                              .n_tokens = r->length[i],
                                              .record = p->record,
                                              .record_bytes = p->record_bytes};
        if (IS(rolls_scores_other_records))
            r->done[i].record = "{}", r->done[i].record_bytes = 2;
        if (IS(rolls_keeps_a_record) && roll_record)
            r->done[i].record = roll_record;
        if (IS(rolls_scores_too_many_tokens))
            r->done[i].n_tokens = T + 1;
        if (IS(rolls_scores_unknown_tokens))
            row[0] = 4000;
    }
    roll_record = r->prompts[0].record;
    return api->reward(run, r->done, IS(rolls_scores_nothing) ? 0 : ROLL_N, r->rewards);
}

static lathe_status roll_out(instance *x, roll *r, const lathe_run_api *api, void *run, int *ended)
{
    const int32_t n = IS(rolls_no_prompts) ? 0 : IS(rolls_negative_prompts) ? -3 : ROLL_PROMPTS;
    lathe_status status = api->prompts(run, n, IS(rolls_prompts_into_null) ? NULL : r->prompts);
    if (status != LATHE_OK && !IS(rolls_swallows_prompts))
        return IS(rolls_gives_another_code) ? LATHE_E_ARG : status;
    if (status != LATHE_OK)
        return LATHE_OK;
    if (IS(rolls_forgets_a_stop))
        r->full = 1, r->at = 0;
    status = roll_generate(x, r, api, run);
    if (status != LATHE_OK)
        return IS(rolls_swallows_generate) ? LATHE_OK : status;
    *ended = IS(rolls_ignores_stops) ? 0 : api->stops(run);
    if (*ended)
        return LATHE_OK;
    status = roll_score(r, api, run, api->row_tokens);
    if (status != LATHE_OK)
        return IS(rolls_swallows_reward) ? LATHE_OK : status;
    r->mean = 0.0;
    for (int32_t i = 0; i < ROLL_N; i++)
        r->mean += r->rewards[i] / ROLL_N;
    for (int32_t i = 0; i < ROLL_N; i++)
        r->advantage[i] =
            IS(rolls_advantages_are_nan) && i == 5 ? (float)NAN : (float)(r->rewards[i] - r->mean);
    r->full = 1;
    r->at = 0;
    return LATHE_OK;
}

/* A batch of completions [first, first + n). */
static lathe_status roll_learn(roll *r, const lathe_run_api *api, void *run, int32_t first,
                               int32_t n)
{
    const int32_t T = api->row_tokens, all = n * T;
    int32_t *tokens = roll_tokens(r) + ROLL_N * T, *targets = tokens + api->n_rows * T;
    int32_t *doc_start = targets + api->n_rows * T;
    float *values = (float *)(void *)(doc_start + api->n_rows * T);
    if (IS(rolls_too_many_rows)) /* its arrays would not hold them either */
        targets = doc_start = tokens, values = (float *)(void *)tokens;
    for (int32_t i = 0; i < all && !IS(rolls_too_many_rows); i++) {
        const int32_t k = first + i / T, t = i % T, end = r->n_prompt[k] + r->length[k];
        tokens[i] = t < end ? roll_tokens(r)[k * T + t] : 0;
        targets[i] = t + 1 >= r->n_prompt[k] && t + 1 < end ? roll_tokens(r)[k * T + t + 1] : -1;
        doc_start[i] = IS(rolls_documents_of_the_future) ? t + 1 : 0;
        values[i] = targets[i] >= 0 ? r->advantage[k] : 0.0f;
    }
    if (IS(rolls_unknown_tokens))
        tokens[all - 1] = 4000;
    if (IS(rolls_unknown_targets))
        targets[0] = 4000;
    if (IS(rolls_targets_below))
        targets[0] = -2;
    const lathe_batch_input inputs[2] = {
        {IS(rolls_unknown_input) ? "advantage" : "advantages",
         IS(rolls_input_without_values) ? NULL : values},
        {IS(rolls_misses_an_input) ? "advantages" : "weights", values}};
    const lathe_run_batch batch = {.size = IS(rolls_batches_without_size) ? 0 : sizeof batch,
                                   .n_rows = IS(rolls_too_many_rows) ? api->n_rows + 1
                                             : IS(rolls_no_rows)     ? 0
                                                                     : n,
                                   .row_tokens = IS(rolls_rows_too_long) ? T + 1 : T,
                                   .tokens = IS(rolls_without_tokens) ? NULL : tokens,
                                   .targets = IS(rolls_without_targets) ? NULL : targets,
                                   .doc_start = doc_start,
                                   .inputs = IS(rolls_null_inputs) ? NULL : inputs,
                                   .n_inputs = 2};
    lathe_status status = api->logprobs(
        run, &batch, IS(rolls_logprobs_into_null) ? NULL : (float *)(void *)doc_start);
    if (status != LATHE_OK)
        return IS(rolls_swallows_logprobs) ? LATHE_OK : status;
    for (int32_t i = 0; i < all && !IS(rolls_too_many_rows); i++)
        doc_start[i] = 0;
    if (IS(rolls_outputs_it_lacks))
        return api->outputs(run, &batch, (float *const[16]){NULL});
    status = IS(rolls_nothing) ? LATHE_OK : api->accumulate(run, &batch);
    return IS(rolls_swallows_accumulate) ? LATHE_OK : status;
}

static void roll_forget(roll *r)
{
    memset(r->prompts, 0, sizeof r->prompts);
    memset(r->asked, 0, sizeof r->asked);
    memset(r->made, 0, sizeof r->made);
    memset(r->done, 0, sizeof r->done);
}

static lathe_status roll_iterate(void *self, const lathe_run_api *api, void *run, void *state)
{
    instance *x = self;
    roll *r = IS(rolls_shares_its_state) && roll_shared ? roll_shared : state;
    int ended = 0;
    if (IS(rolls_crashes) || IS(rolls_exits) || IS(rolls_hangs) || IS(rolls_prints) ||
        IS(rolls_starts_threads) || IS(rolls_changes_folder) || IS(rolls_mallocs) ||
        IS(rolls_takes_host_memory) || IS(rolls_leaves_files_open))
        misbehave(x->host);
    if (IS(rolls_fails))
        return lathe_fail(x->host, LATHE_E_IO, "a rollout cannot be made");
    if (IS(rolls_fails_in_silence))
        return LATHE_E_IO;
    if (IS(rolls_writes_before_its_state))
        ((char *)state)[-1] = 1;
    roll_shared = state;
    if (!r->full || r->at >= 2) {
        LATHE_TRY(roll_out(x, r, api, run, &ended));
        if (ended) {
            roll_forget(r);
            return LATHE_OK;
        }
    }
    const int32_t first = (int32_t)r->at * 3, max = api->n_rows;
    r->at++;
    x->calls++;
    roll_steps++;
    if (IS(rolls_keeps_a_pointer))
        r->kept = (int64_t)(intptr_t)state;
    api->figure(run, IS(rolls_figure_nine) ? 9 : IS(rolls_negative_figure) ? -1 : 0, r->mean);
    for (int32_t i = 0; i < 3; i += max)
        LATHE_TRY(roll_learn(r, api, run, first + i, 3 - i < max ? 3 - i : max));
    roll_forget(r);
    return LATHE_OK;
}

static const lathe_stage_input roll_inputs[] = {
    {.name = "advantages", .per = LATHE_PER_TOKEN, .doc = "advantage of each target"},
    {.name = "weights", .per = LATHE_PER_TOKEN, .doc = "weight of each target"},
};
static const lathe_stage_figure roll_figures[] = {{"reward", "mean reward"}};

#endif

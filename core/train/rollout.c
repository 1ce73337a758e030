/* Offers the run's primitives to a stage, and calls its iterate. */
#include "train/rollout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "lathe/rng.h"
#include "lathe/stage_run.h"
#include "reward/rewards.h"
#include "run/api/generate.h"
#include "run/api/primitives.h"
#include "run/decide/end_tokens.h"
#include "run/parts/reward_model.h"
#include "run/parts/rollout_noise.h"

/* Streams of the counter RNG count from small numbers; this is "STAGE". */
#define STAGE_STREAM UINT64_C(0x5354414745)

/* The `run` argument of iterate(). */
typedef struct context {
    lathe_run *run;
    lathe_rollout *out;
    int32_t n_batches;
} context;

static lathe_status reserve_prompts(lathe_iteration *iteration, int32_t n)
{
    if (n <= iteration->prompts_max)
        return LATHE_OK;
    lathe_prompt_row *rows = realloc(iteration->prompts, (size_t)n * sizeof *rows);
    if (rows == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d prompts", n);
    iteration->prompts = rows;
    iteration->prompts_max = n;
    return LATHE_OK;
}

static lathe_status prompts(void *arg, int32_t n, lathe_stage_prompt *out)
{
    const context *c = arg;
    lathe_iteration *iteration = &c->run->iteration;
    int32_t n_given = 0;
    if (c->run->data.loader == NULL)
        return lathe_error(LATHE_E_STATE, "the run has no data to take prompts from");
    LATHE_TRY(reserve_prompts(iteration, n));
    LATHE_TRY(lathe_prompt_next(c->run->data.loader, n, iteration->prompts, &n_given));
    if (n_given < n)
        return lathe_error(LATHE_E_NOT_FOUND, "the data has come to its end");
    for (int32_t i = 0; i < n; i++) {
        const lathe_prompt_row *row = &iteration->prompts[i];
        out[i] = (lathe_stage_prompt){.tokens = row->tokens,
                                      .n_tokens = row->n_tokens,
                                      .record = row->record,
                                      .record_bytes = row->record_bytes};
    }
    return LATHE_OK;
}

static int32_t stops(void *arg)
{
    const context *c = arg;
    return c->out->stop && *c->out->stop;
}

static lathe_status generate(void *arg, const lathe_prompt *list, int32_t n,
                             const lathe_sampling *sampling, lathe_generation *out)
{
    const lathe__stop_check stop = {stops, arg};
    lathe_run *run = ((const context *)arg)->run;
    lathe_sampling how = *sampling;
    int32_t ends[LATHE_MAX_ROLLOUT_ENDS];
    if (how.stop_at_eos && how.n_stop_tokens == 0) { /* the stage names none of its own */
        how.n_stop_tokens = lathe__end_tokens_of_rollout(run, ends);
        how.stop_tokens = ends;
    }
    lathe_status status = lathe__noise_add(run);
    if (status == LATHE_OK)
        status = lathe__generate_many(run, list, n, &how, stop, out);
    const lathe_status removed = lathe__noise_remove(run);
    return status != LATHE_OK ? status : removed;
}

/* Decodes tokens to UTF-8 in the arena: the bytes of a character that was cut become U+FFFD. A
 * model may have more tokens than its tokenizer; those have no text. */
static lathe_status decode(const lathe_run *run, const int32_t *tokens, int32_t n,
                           lathe_arena *arena, const char **out, int64_t *out_bytes)
{
    const lathe_tokenizer *tokenizer = run->data.tokenizer;
    int32_t *known = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *known), n_known = 0;
    char *text = NULL;
    int64_t bytes;
    lathe_buffer repaired = LATHE_BUFFER_INIT;
    if (known == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < n; i++)
        if (lathe_tokenizer_token(tokenizer, tokens[i], &bytes))
            known[n_known++] = tokens[i];
    LATHE_TRY(lathe_tokenizer_decode(tokenizer, known, n_known, LATHE_DECODE_SKIP_SPECIAL, &text,
                                     &bytes));
    lathe_buffer_utf8(&repaired, text, bytes);
    free(text);
    *out_bytes = repaired.len;
    *out = repaired.status == LATHE_OK
               ? lathe_arena_strndup(arena, repaired.data ? repaired.data : "", repaired.len)
               : NULL;
    lathe_buffer_fini(&repaired);
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status make_items(const lathe_run *run, const lathe_stage_completion *completions,
                               int32_t n, lathe_arena *arena, lathe_reward_item *items)
{
    for (int32_t i = 0; i < n; i++) {
        const lathe_stage_completion *c = &completions[i];
        lathe_reward_item *item = &items[i];
        *item = (lathe_reward_item){.size = (uint32_t)sizeof *item,
                                    .n_tokens = c->n_tokens,
                                    .tokens = c->tokens,
                                    .record = c->record,
                                    .record_bytes = c->record_bytes};
        LATHE_TRY(decode(run, c->prompt, c->n_prompt, arena, &item->prompt, &item->prompt_bytes));
        LATHE_TRY(
            decode(run, c->tokens, c->n_tokens, arena, &item->completion, &item->completion_bytes));
    }
    return LATHE_OK;
}

/* Completions that the reward model scores. */
typedef struct scored_by_model {
    lathe_run *run;
    const lathe_stage_completion *completions;
} scored_by_model;

/* Copies tokens below `vocab`; returns their number. The rows of the policy beyond its tokenizer's
 * tokens fill up its embedding: if one of them is drawn, it has no text (decode), and a reward
 * model with fewer rows does not know it. */
static int32_t copy_known(const int32_t *from, int32_t n, int64_t vocab, int32_t *to)
{
    int32_t n_known = 0;
    for (int32_t i = 0; i < n; i++)
        if (from[i] < vocab)
            to[n_known++] = from[i];
    return n_known;
}

/* The score of lathe_rewards_set_model: of prompt and completion together. */
static lathe_status score_by_model(void *arg, const lathe_reward_item *items, int32_t n,
                                   double *out)
{
    const scored_by_model *by = arg;
    const int64_t vocab = lathe__reward_vocab(by->run);
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_scored *all = lathe_arena_alloc(&arena, n * (int64_t)sizeof *all);
    lathe_status status = all ? LATHE_OK : LATHE_E_NOMEM;
    (void)items; /* in the order of the completions */
    for (int32_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_stage_completion *c = &by->completions[i];
        int32_t *tokens =
            lathe_arena_alloc(&arena, (c->n_prompt + c->n_tokens + 1) * (int64_t)sizeof *tokens);
        status = tokens ? LATHE_OK : LATHE_E_NOMEM;
        if (tokens == NULL)
            break;
        int32_t n_known = copy_known(c->prompt, c->n_prompt, vocab, tokens);
        n_known += copy_known(c->tokens, c->n_tokens, vocab, tokens + n_known);
        all[i] = (lathe_scored){tokens, n_known};
    }
    if (status == LATHE_OK)
        status = lathe__reward_score(by->run, all, n, out);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status reward(void *arg, const lathe_stage_completion *completions, int32_t n,
                           double *out)
{
    lathe_run *run = ((const context *)arg)->run;
    lathe_arena arena = LATHE_ARENA_INIT;
    scored_by_model by = {run, completions};
    if (run->rewards == NULL)
        return lathe_error(LATHE_E_STATE,
                           "stage \"%s\" asks for rewards, and its table does not say so "
                           "(LATHE_NEEDS_REWARD)",
                           run->parts.stage.component->plugin->name);
    if (run->reward)
        lathe_rewards_set_model(run->rewards, run->iteration.reward_model, score_by_model, &by);
    lathe_reward_item *items = lathe_arena_alloc(&arena, n * (int64_t)sizeof *items);
    lathe_status status =
        items ? make_items(run, completions, n, &arena, items) : (lathe_status)LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = lathe_rewards_score(run->rewards, items, n, (lathe_reward_stop){stops, arg}, out);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status logprobs(void *arg, const lathe_run_batch *batch, float *out)
{
    return lathe__evaluated_logprobs(((const context *)arg)->run, batch, out);
}

static lathe_status outputs(void *arg, const lathe_run_batch *batch, float *const *out)
{
    return lathe__evaluated_outputs(((const context *)arg)->run, batch, out);
}

static lathe_status accumulate(void *arg, const lathe_run_batch *batch)
{
    context *c = arg;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    if (c->out->bad) /* the step is lost already */
        return LATHE_OK;
    LATHE_TRY(lathe_forward(c->run, batch, LATHE_FORWARD_TRAIN, &f));
    c->n_batches++;
    if (!isfinite(f.loss_sum)) {
        c->out->bad = c->n_batches;
        c->out->loss = f.loss_sum;
        return LATHE_OK;
    }
    return lathe_backward(c->run, NULL);
}

static void figure(void *arg, int32_t index, double value)
{
    const context *c = arg;
    if (index >= 0 && index < LATHE_MAX_STAGE_FIGURES)
        c->out->figures[index] = value;
}

static uint64_t random_word(void *arg, uint64_t index)
{
    const lathe_run *run = ((const context *)arg)->run;
    const lathe_u32x4 r =
        lathe_rng_block(run->set.seed, (uint64_t)run->at.step, STAGE_STREAM, index);
    return (uint64_t)r.v[0] << 32 | r.v[1];
}

void lathe_rollout_undo(lathe_run *run)
{
    const lathe_stage_state *state = &run->iteration.state;
    if (state->bytes > 0)
        memcpy(state->memory, run->iteration.before, (size_t)state->bytes);
}

lathe_status lathe_rollout_step(lathe_run *run, lathe_rollout *out)
{
    const lathe_stage_v1 *stage = run->parts.stage.table;
    context c = {.run = run, .out = out};
    const lathe_run_api api = {.size = (uint32_t)sizeof api,
                               .n_rows = run->programs.train.n_rows,
                               .row_tokens = (int32_t)run->programs.train.row_tokens,
                               .prompts = prompts,
                               .generate = generate,
                               .reward = reward,
                               .logprobs = logprobs,
                               .accumulate = accumulate,
                               .figure = figure,
                               .random = random_word,
                               .stops = stops,
                               .outputs = outputs};
    const lathe_stage_state *state = &run->iteration.state;
    if (state->bytes > 0)
        memcpy(run->iteration.before, state->memory, (size_t)state->bytes);
    out->bad = out->is_stopped = 0;
    out->loss = 0.0;
    for (int i = 0; i < LATHE_MAX_STAGE_FIGURES; i++)
        out->figures[i] = (double)NAN;
    const lathe_status status = stage->iterate(run->parts.stage.self, &api, &c, state->memory);
    const int ends = status == LATHE_E_INTERRUPTED && c.n_batches == 0 && stops(&c);
    LATHE_TRY(ends ? LATHE_OK : status);
    if (c.n_batches == 0) {
        if (!stops(&c))
            return lathe_error(LATHE_E_PLUGIN, "stage \"%s\": iterate() accumulated no batch",
                               run->parts.stage.component->plugin->name);
        out->is_stopped = 1;
        lathe_rollout_undo(run);
        return run->data.loader ? lathe_loader_seek(run->data.loader, &run->at.cursor) : LATHE_OK;
    }
    if (run->data.loader)
        lathe_loader_cursor(run->data.loader, &run->at.cursor);
    return LATHE_OK;
}

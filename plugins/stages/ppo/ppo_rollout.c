/* Rollouts: completions of the policy, their rewards and advantages, and the batches of a step.
 *
 * A rollout of n = prompts * group completions lives in the stage's state, which checkpoints save,
 * until its epochs * minibatches steps are done:
 *
 *   | header | order i32[n] | n_prompt i32[n] | length i32[n] | is_cut i32[n] | advantages f32[n] |
 *   | tokens i32[n, T] | old_logprobs f32[n, T], if there is more than one step |
 */
#include <math.h>
#include <string.h>

#include "ppo.h"

typedef struct header {
    int64_t is_full; /* 1: there is a rollout */
    int64_t steps;   /* steps of it that were begun */
    double figures[PPO_N_FIGURES];
} header;

/* The state's parts. */
typedef struct rollout {
    header *head;
    int32_t *order, *n_prompt, *length, *is_cut, *tokens;
    float *advantages, *old_logprobs; /* old_logprobs: NULL if the rollout has one step */
    int32_t n;
    int64_t row_tokens;
} rollout;

/* Memory for one call, part of no checkpoint: allocated with the state. */
struct ppo_scratch {
    int32_t *tokens, *targets, *doc_start; /* [B, T] */
    float *inputs[PPO_N_INPUTS];           /* [B, T] */
    lathe_stage_prompt *prompts;           /* [prompts] */
    lathe_prompt *asked;                   /* [n] */
    lathe_generation *generated;           /* [n] */
    lathe_stage_completion *completions;   /* [n] */
    double *rewards;                       /* [n] */
    char memory[];
};

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static int64_t take(int64_t *at, int64_t bytes)
{
    const int64_t begin = *at;
    *at += round_up(bytes);
    return begin;
}

/* Lays out the state; memory NULL: only counts its bytes. */
static int64_t lay_out(const ppo *p, int64_t row_tokens, char *memory, rollout *out)
{
    const int64_t n = (int64_t)p->prompts * p->group;
    int64_t at = 0, places[8];
    places[0] = take(&at, (int64_t)sizeof(header));
    for (int i = 1; i <= 4; i++)
        places[i] = take(&at, n * 4);
    places[5] = take(&at, n * 4);
    places[6] = take(&at, n * row_tokens * 4);
    places[7] = ppo_updates_once(p) ? at : take(&at, n * row_tokens * 4);
    if (memory != NULL)
        *out = (rollout){.head = (header *)(void *)(memory + places[0]),
                         .order = (int32_t *)(void *)(memory + places[1]),
                         .n_prompt = (int32_t *)(void *)(memory + places[2]),
                         .length = (int32_t *)(void *)(memory + places[3]),
                         .is_cut = (int32_t *)(void *)(memory + places[4]),
                         .advantages = (float *)(void *)(memory + places[5]),
                         .tokens = (int32_t *)(void *)(memory + places[6]),
                         .old_logprobs =
                             ppo_updates_once(p) ? NULL : (float *)(void *)(memory + places[7]),
                         .n = (int32_t)n,
                         .row_tokens = row_tokens};
    return at;
}

static lathe_status make_scratch(ppo *p, int64_t n_rows, int64_t row_tokens)
{
    const int64_t n = (int64_t)p->prompts * p->group, batch = n_rows * row_tokens * 4;
    int64_t at = 0, places[11];
    for (int i = 0; i < 6; i++)
        places[i] = take(&at, batch);
    places[6] = take(&at, p->prompts * (int64_t)sizeof(lathe_stage_prompt));
    places[7] = take(&at, n * (int64_t)sizeof(lathe_prompt));
    places[8] = take(&at, n * (int64_t)sizeof(lathe_generation));
    places[9] = take(&at, n * (int64_t)sizeof(lathe_stage_completion));
    places[10] = take(&at, n * (int64_t)sizeof(double));
    p->host->free(p->scratch);
    p->scratch = p->host->alloc((int64_t)sizeof *p->scratch + 64 + at);
    if (p->scratch == NULL)
        return lathe_fail(p->host, LATHE_E_NOMEM, "ppo: no memory for a rollout of %lld",
                          (long long)n);
    struct ppo_scratch *s = p->scratch;
    char *m = s->memory + (64 - (uintptr_t)s->memory % 64) % 64;
    s->tokens = (int32_t *)(void *)(m + places[0]);
    s->targets = (int32_t *)(void *)(m + places[1]);
    s->doc_start = (int32_t *)(void *)(m + places[2]);
    for (int i = 0; i < PPO_N_INPUTS; i++)
        s->inputs[i] = (float *)(void *)(m + places[3 + i]);
    s->prompts = (lathe_stage_prompt *)(void *)(m + places[6]);
    s->asked = (lathe_prompt *)(void *)(m + places[7]);
    s->generated = (lathe_generation *)(void *)(m + places[8]);
    s->completions = (lathe_stage_completion *)(void *)(m + places[9]);
    s->rewards = (double *)(void *)(m + places[10]);
    return LATHE_OK;
}

lathe_status ppo_state_bytes(void *self, int32_t n_rows, int64_t row_tokens, int64_t *out)
{
    ppo *p = self;
    if (p->max_new_tokens >= row_tokens)
        return lathe_fail(p->host, LATHE_E_CONFIG,
                          "max_new_tokens = %d leaves no room for a prompt in rows of "
                          "data.seq_len = %lld tokens",
                          p->max_new_tokens, (long long)row_tokens);
    *out = lay_out(p, row_tokens, NULL, NULL);
    return make_scratch(p, n_rows, row_tokens);
}

/* ---- a new rollout ---- */

static void keep(rollout *r, int32_t i, const lathe_stage_prompt *prompt, const lathe_generation *g)
{
    int32_t *row = r->tokens + i * r->row_tokens;
    memcpy(row, prompt->tokens, (size_t)prompt->n_tokens * sizeof *row);
    memcpy(row + prompt->n_tokens, g->tokens, (size_t)g->n_tokens * sizeof *row);
    r->n_prompt[i] = prompt->n_tokens;
    r->length[i] = g->n_tokens;
    r->is_cut[i] = g->finish == LATHE_FINISH_LENGTH;
}

/* Generates the completions; *out_stopped: the run is to end, and they are not complete. */
static lathe_status generate(const ppo *p, const lathe_run_api *api, void *run, rollout *r,
                             int *out_stopped)
{
    const struct ppo_scratch *s = p->scratch;
    const lathe_sampling how = {.size = (uint32_t)sizeof how,
                                .max_new_tokens = p->max_new_tokens,
                                .temperature = 1.0,
                                .top_p = 1.0,
                                .stop_at_eos = 1,
                                .max_length = (int32_t)r->row_tokens};
    for (int32_t i = 0; i < r->n; i++) {
        const lathe_stage_prompt *prompt = &s->prompts[i / p->group];
        s->asked[i] = (lathe_prompt){.size = (uint32_t)sizeof s->asked[i],
                                     .n_tokens = prompt->n_tokens,
                                     .tokens = prompt->tokens,
                                     .seed = api->random(run, (uint64_t)i)};
        s->generated[i].size = (uint32_t)sizeof s->generated[i];
    }
    LATHE_TRY(api->generate(run, s->asked, r->n, &how, s->generated));
    *out_stopped = api->stops(run);
    for (int32_t i = 0; i < r->n && !*out_stopped; i++)
        keep(r, i, &s->prompts[i / p->group], &s->generated[i]);
    return LATHE_OK;
}

static lathe_status judge(const ppo *p, const lathe_run_api *api, void *run, rollout *r)
{
    const struct ppo_scratch *s = p->scratch;
    double *figures = r->head->figures, tokens = 0.0, cut = 0.0;
    for (int32_t i = 0; i < r->n; i++) {
        const lathe_stage_prompt *prompt = &s->prompts[i / p->group];
        const int32_t *row = r->tokens + i * r->row_tokens;
        s->completions[i] = (lathe_stage_completion){.prompt = row,
                                                     .tokens = row + r->n_prompt[i],
                                                     .n_prompt = r->n_prompt[i],
                                                     .n_tokens = r->length[i],
                                                     .record = prompt->record,
                                                     .record_bytes = prompt->record_bytes};
        tokens += r->length[i];
        cut += r->is_cut[i];
    }
    LATHE_TRY(api->reward(run, s->completions, r->n, s->rewards));
    ppo_advantages(p, s->rewards, r->n, r->advantages, figures);
    figures[PPO_MEAN_LENGTH] = tokens / r->n;
    figures[PPO_CUT_SHARE] = cut / r->n;
    return LATHE_OK;
}

/* ---- batches ---- */

/* Whether the tokens of completion i are learnt. */
static int is_learnt(const ppo *p, const rollout *r, int32_t i)
{
    return !(p->mask_cut && r->is_cut[i]);
}

/* What a step's tokens are weighed by. */
typedef struct step_size {
    int64_t n_tokens;
    int32_t n_sequences;
} step_size;

/* Writes completion i to row `row` of the scratch, rows of n tokens. */
static void fill_row(const ppo *p, const rollout *r, int32_t i, int64_t row, int64_t n,
                     const step_size *size)
{
    const struct ppo_scratch *s = p->scratch;
    const int32_t *tokens = r->tokens + i * r->row_tokens;
    const int32_t first = r->n_prompt[i], end = first + r->length[i];
    const float weight = (float)ppo_weight(p, r->length[i] > 0 ? r->length[i] : 1, size->n_tokens,
                                           size->n_sequences);
    for (int32_t t = 0; t < n; t++) {
        const int64_t at = row * n + t;
        const int is_target = t + 1 >= first && t + 1 < end && is_learnt(p, r, i);
        s->tokens[at] = t < end ? tokens[t] : tokens[end - 1];
        s->targets[at] = is_target ? tokens[t + 1] : -1;
        s->doc_start[at] = t < end ? 0 : end;
        s->inputs[PPO_INPUT_ADVANTAGES][at] = is_target ? r->advantages[i] : 0.0f;
        s->inputs[PPO_INPUT_WEIGHTS][at] = is_target ? weight : 0.0f;
        s->inputs[PPO_INPUT_OLD_LOGPROBS][at] =
            is_target && r->old_logprobs ? r->old_logprobs[i * r->row_tokens + t] : 0.0f;
    }
}

/* Makes a batch of the completions list[0, n_rows); `inputs`: room for its inputs. */
static lathe_run_batch make_batch(const ppo *p, const rollout *r, const int32_t *list,
                                  int32_t n_rows, const step_size *size,
                                  lathe_batch_input inputs[PPO_N_INPUTS])
{
    static const char *const names[PPO_N_INPUTS] = {"advantages", "old_logprobs", "weights"};
    const struct ppo_scratch *s = p->scratch;
    int32_t longest = 1;
    for (int32_t k = 0; k < n_rows; k++) {
        const int32_t end = r->n_prompt[list[k]] + r->length[list[k]];
        longest = end > longest ? end : longest;
    }
    for (int32_t k = 0; k < n_rows; k++)
        fill_row(p, r, list[k], k, longest, size);
    for (int k = 0; k < PPO_N_INPUTS; k++)
        inputs[k] = (lathe_batch_input){names[k], s->inputs[k]};
    return (lathe_run_batch){.size = (uint32_t)sizeof(lathe_run_batch),
                             .n_rows = n_rows,
                             .row_tokens = longest,
                             .tokens = s->tokens,
                             .targets = s->targets,
                             .doc_start = s->doc_start,
                             .inputs = inputs,
                             .n_inputs = PPO_N_INPUTS};
}

/* The log-probabilities of the policy that wrote the rollout, as training computes them. */
static lathe_status remember_logprobs(const ppo *p, const lathe_run_api *api, void *run, rollout *r)
{
    const step_size size = {1, 1};
    lathe_batch_input inputs[PPO_N_INPUTS];
    float *out = p->scratch->inputs[PPO_INPUT_OLD_LOGPROBS]; /* not read by logprobs */
    for (int32_t i = 0; i < r->n; i += api->n_rows) {
        const int32_t n = r->n - i < api->n_rows ? r->n - i : api->n_rows;
        const lathe_run_batch b = make_batch(p, r, r->order + i, n, &size, inputs);
        LATHE_TRY(api->logprobs(run, &b, out));
        for (int32_t k = 0; k < n; k++)
            memcpy(r->old_logprobs + r->order[i + k] * r->row_tokens,
                   out + (int64_t)k * b.row_tokens, (size_t)b.row_tokens * sizeof *out);
    }
    return LATHE_OK;
}

static lathe_status roll_out(const ppo *p, const lathe_run_api *api, void *run, rollout *r,
                             int *out_stopped)
{
    r->head->is_full = 0;
    LATHE_TRY(api->prompts(run, p->prompts, p->scratch->prompts));
    LATHE_TRY(generate(p, api, run, r, out_stopped));
    if (*out_stopped)
        return LATHE_OK;
    LATHE_TRY(judge(p, api, run, r));
    for (int32_t i = 0; i < r->n; i++)
        r->order[i] = i;
    if (r->old_logprobs)
        LATHE_TRY(remember_logprobs(p, api, run, r));
    r->head->is_full = 1;
    r->head->steps = 0;
    return LATHE_OK;
}

/* ---- a step ---- */

/* Fisher-Yates; the first n random words of a step belong to the completions. */
static void shuffle(const lathe_run_api *api, void *run, rollout *r)
{
    for (int32_t i = r->n - 1; i > 0; i--) {
        const int32_t k =
            (int32_t)(api->random(run, (uint64_t)r->n + (uint64_t)i) % (uint64_t)(i + 1));
        const int32_t swapped = r->order[i];
        r->order[i] = r->order[k];
        r->order[k] = swapped;
    }
}

/* Whether the row of completion a comes before that of b: shorter rows first. */
static int is_before(const rollout *r, int32_t a, int32_t b)
{
    const int32_t x = r->n_prompt[a] + r->length[a], y = r->n_prompt[b] + r->length[b];
    return x < y || (x == y && a < b);
}

/* Sorts list[0, n) by the length of the rows, so that those of one batch are alike (shell sort). */
static void sort_by_length(const rollout *r, int32_t *list, int32_t n)
{
    int32_t gap = 1;
    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int32_t i = gap; i < n; i++) {
            const int32_t x = list[i];
            int32_t k = i;
            for (; k >= gap && is_before(r, x, list[k - gap]); k -= gap)
                list[k] = list[k - gap];
            list[k] = x;
        }
}

static lathe_status learn(const ppo *p, const lathe_run_api *api, void *run, const rollout *r,
                          const int32_t *list, int32_t n)
{
    step_size size = {0, n};
    lathe_batch_input inputs[PPO_N_INPUTS];
    for (int32_t k = 0; k < n; k++)
        size.n_tokens += is_learnt(p, r, list[k]) ? r->length[list[k]] : 0;
    for (int32_t i = 0; i < n; i += api->n_rows) {
        const int32_t rows = n - i < api->n_rows ? n - i : api->n_rows;
        const lathe_run_batch b = make_batch(p, r, list + i, rows, &size, inputs);
        LATHE_TRY(api->accumulate(run, &b));
    }
    return LATHE_OK;
}

lathe_status ppo_iterate(void *self, const lathe_run_api *api, void *run, void *state)
{
    const ppo *p = self;
    rollout r = {.head = NULL};
    int stopped = 0;
    (void)lay_out(p, api->row_tokens, state, &r);
    if (!r.head->is_full || r.head->steps == (int64_t)p->epochs * p->minibatches) {
        LATHE_TRY(roll_out(p, api, run, &r, &stopped));
        if (stopped)
            return LATHE_OK;
    }
    const int32_t minibatch = (int32_t)(r.head->steps % p->minibatches), n = r.n / p->minibatches;
    if (minibatch == 0 && p->minibatches > 1)
        shuffle(api, run, &r);
    int32_t *const list = r.order + (int64_t)minibatch * n;
    sort_by_length(&r, list, n);
    r.head->steps++; /* also if the update is skipped */
    for (int i = 0; i < PPO_N_FIGURES; i++)
        api->figure(run, i, r.head->figures[i]);
    return learn(p, api, run, &r, list, n);
}

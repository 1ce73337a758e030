/* One optimizer step of the stage: makes a new rollout if all steps over the last one are done, and
 * learns one minibatch of the rollout.
 *
 * A rollout is made in this order: prompts, completions, their rewards, and, where they are needed,
 * one evaluation of all completions, which gives the log-probabilities of the policy that wrote
 * them, the critic's values and the divergence from the reference model. The header's figures
 * and kl_coef are written at the end, so that a rollout which is stopped and made again after the
 * resumption does not adapt kl_coef twice; until then is_full = 0 says that there is no rollout.
 */
#include <math.h>
#include <string.h>

#include "ppo_state.h"

/* ---- a new rollout ---- */

/* Copies completion i and its prompt to the state. */
static void store_completion(ppo_rollout *r, int32_t i, const lathe_stage_prompt *prompt,
                             const lathe_generation *g)
{
    int32_t *row = r->tokens + i * r->row_tokens;
    memcpy(row, prompt->tokens, (size_t)prompt->n_tokens * sizeof *row);
    memcpy(row + prompt->n_tokens, g->tokens, (size_t)g->n_tokens * sizeof *row);
    r->n_prompt[i] = prompt->n_tokens;
    r->length[i] = g->n_tokens;
    r->marks[i] = g->finish == LATHE_FINISH_LENGTH ? PPO_CUT : 0;
}

/* Generates the completions; *out_stopped: the run was asked to end, and some may be missing. */
static lathe_status generate(const ppo *p, const lathe_run_api *api, void *run, ppo_rollout *r,
                             int *out_stopped)
{
    const ppo_scratch *s = p->scratch;
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
        store_completion(r, i, &s->prompts[i / p->group], &s->generated[i]);
    return LATHE_OK;
}

/* Scores the completions; writes p->scratch->rewards and the figures of rewards and lengths. */
static lathe_status score(const ppo *p, const lathe_run_api *api, void *run, const ppo_rollout *r)
{
    const ppo_scratch *s = p->scratch;
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
        cut += r->marks[i] & PPO_CUT;
    }
    LATHE_TRY(api->reward(run, s->completions, r->n, s->rewards));
    for (int32_t i = 0; i < r->n; i++)
        r->marks[i] |= lathe_reward_is_no_score(&s->rewards[i]) ? PPO_UNSCORED : 0;
    ppo_reward_figures(s->rewards, r->n, figures);
    figures[PPO_MEAN_LENGTH] = tokens / r->n;
    figures[PPO_CUT_SHARE] = cut / r->n;
    return LATHE_OK;
}

/* ---- the evaluation of the completions ---- */

/* Writes the reward of each token of completion i to the scratch: the completion's reward at its
 * last token, less coef times the token's divergence if kl_in_reward. Returns the sum of the
 * divergences. */
static double reward_tokens(const ppo *p, const ppo_rollout *r, int32_t i, const float *logprobs,
                            const float *reference, double coef)
{
    const ppo_scratch *s = p->scratch;
    const int32_t n = r->length[i];
    const double last = (r->marks[i] & PPO_UNSCORED) ? 0.0 : s->rewards[i];
    double sum = 0.0;
    for (int32_t t = 0; t < n; t++) {
        double reward = t + 1 == n ? last : 0.0;
        if (ppo_measures_kl(p)) {
            const double kl = ppo_divergence(p, (double)reference[t] - (double)logprobs[t]);
            sum += kl;
            reward -= p->kl_in_reward ? coef * kl : 0.0;
        }
        s->token_rewards[t] = (float)reward;
    }
    return sum;
}

/* Copies the outputs of the evaluation for completion i, which is row `row` of a batch whose rows
 * have n tokens, and computes its advantages (GAE) or its reward. Returns its divergence. */
static double take_row(const ppo *p, const ppo_rollout *r, int32_t i, int64_t row, int64_t n,
                       double coef)
{
    const ppo_scratch *s = p->scratch;
    const int64_t from = row * n + r->n_prompt[i] - 1, to = ppo_first_value(r, i);
    const size_t bytes = (size_t)r->length[i] * sizeof(float);
    const float *values = s->outputs[PPO_OUTPUT_VALUES] + from;
    const double kl = reward_tokens(p, r, i, s->outputs[PPO_OUTPUT_LOGPROBS] + from,
                                    s->outputs[PPO_OUTPUT_REFERENCE] + from, coef);
    if (r->old_logprobs)
        memcpy(r->old_logprobs + to, s->outputs[PPO_OUTPUT_LOGPROBS] + from, bytes);
    if (r->old_values)
        memcpy(r->old_values + to, values, bytes);
    if (p->advantage == PPO_GAE)
        ppo_gae(p, s->token_rewards, values, r->length[i], r->advantages + to, r->returns + to);
    else if (p->kl_in_reward && !(r->marks[i] & PPO_UNSCORED))
        s->rewards[i] -= coef * kl; /* a group compares the rewards of whole completions */
    return kl;
}

/* Evaluates all completions with the policy that wrote them; *out_kl: their mean divergence. */
static lathe_status evaluate(const ppo *p, const lathe_run_api *api, void *run,
                             const ppo_rollout *r, double coef, double *out_kl)
{
    lathe_batch_input inputs[PPO_N_INPUTS];
    double sum = 0.0;
    for (int32_t i = 0; i < r->n; i += api->n_rows) {
        const int32_t n = r->n - i < api->n_rows ? r->n - i : api->n_rows;
        const lathe_run_batch b = ppo_make_batch(p, r, r->order + i, n, NULL, inputs);
        LATHE_TRY(api->outputs(run, &b, p->scratch->outputs));
        for (int32_t k = 0; k < n; k++)
            sum += take_row(p, r, r->order[i + k], k, b.row_tokens, coef);
    }
    *out_kl = sum / r->n;
    return LATHE_OK;
}

/* Lists in the scratch the spans of x, f32[n, T], that belong to completions which are learnt;
 * returns their number. */
static int32_t learnt_spans(const ppo *p, const ppo_rollout *r, float *x)
{
    int32_t n = 0;
    for (int32_t i = 0; i < r->n; i++)
        if (ppo_is_learnt(p, r, i))
            p->scratch->spans[n++] = (ppo_span){x + ppo_first_value(r, i), r->length[i]};
    return n;
}

/* Writes the critic's figures, then whitens the advantages. Before that, an advantage is the error
 * of the critic's value (return - value), which the figures need. */
static void finish_advantages(const ppo *p, const ppo_rollout *r)
{
    double *figures = r->head->figures, mean, variance, error, error_variance;
    const ppo_span *spans = p->scratch->spans;
    int32_t n = learnt_spans(p, r, r->returns);
    ppo_moments(spans, n, &mean, &variance);
    n = learnt_spans(p, r, r->advantages);
    ppo_moments(spans, n, &error, &error_variance);
    figures[PPO_MEAN_RETURN] = mean;
    figures[PPO_MEAN_VALUE] = mean - error;
    figures[PPO_VAR_EXPLAINED] = variance > 0.0 ? 1.0 - error_variance / variance : (double)NAN;
    if (p->whiten_advantages)
        ppo_whiten(spans, n);
}

/* kl_coef of the next rollout: the setting, or adapted to the divergence of the last one. */
static double next_coef(const ppo *p, const ppo_rollout *r)
{
    if (!(p->kl_target > 0.0) || !r->head->has_kl)
        return p->kl_coef;
    return ppo_adapted_coef(p, r->head->kl_coef, r->head->kl, r->n);
}

static lathe_status roll_out(const ppo *p, const lathe_run_api *api, void *run, ppo_rollout *r,
                             int *out_stopped)
{
    ppo_header *head = r->head;
    const double coef = next_coef(p, r);
    const int is_evaluated = p->advantage == PPO_GAE || ppo_measures_kl(p) || !ppo_updates_once(p);
    double kl = 0.0;
    head->is_full = 0;
    LATHE_TRY(api->prompts(run, p->prompts, p->scratch->prompts));
    LATHE_TRY(generate(p, api, run, r, out_stopped));
    if (*out_stopped)
        return LATHE_OK;
    for (int i = 0; i < PPO_N_FIGURES; i++)
        head->figures[i] = (double)NAN;
    LATHE_TRY(score(p, api, run, r));
    for (int32_t i = 0; i < r->n; i++)
        r->order[i] = i;
    if (is_evaluated)
        LATHE_TRY(evaluate(p, api, run, r, coef, &kl));
    if (p->advantage == PPO_GAE)
        finish_advantages(p, r);
    else
        ppo_advantages(p, p->scratch->rewards, r->n, r->advantages, head->figures);
    if (ppo_measures_kl(p))
        head->figures[PPO_KL] = kl;
    if (p->kl_target > 0.0)
        head->figures[PPO_KL_COEF] = coef;
    head->has_kl = ppo_measures_kl(p);
    head->kl = kl;
    head->kl_coef = coef;
    head->is_full = 1;
    head->steps = 0;
    head->epochs = p->epochs;
    head->minibatches = p->minibatches;
    return LATHE_OK;
}

/* ---- a step ---- */

/* Shuffles the completions (Fisher-Yates) with the random words from n on: the first n of a step
 * seed the completions. */
static void shuffle(const lathe_run_api *api, void *run, ppo_rollout *r)
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
static int is_before(const ppo_rollout *r, int32_t a, int32_t b)
{
    const int32_t x = r->n_prompt[a] + r->length[a], y = r->n_prompt[b] + r->length[b];
    return x < y || (x == y && a < b);
}

/* Sorts list[0, n) by the length of the rows, so that the rows of a batch need little padding
 * (shell sort). */
static void sort_by_length(const ppo_rollout *r, int32_t *list, int32_t n)
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

/* Accumulates the gradients of the completions list[0, n), in batches of the run's rows. */
static lathe_status learn(const ppo *p, const lathe_run_api *api, void *run, const ppo_rollout *r,
                          const int32_t *list, int32_t n)
{
    ppo_step_size size = {0, 0};
    lathe_batch_input inputs[PPO_N_INPUTS];
    for (int32_t k = 0; k < n; k++) {
        size.n_tokens += ppo_is_learnt(p, r, list[k]) ? r->length[list[k]] : 0;
        size.n_sequences += !(r->marks[list[k]] & PPO_UNSCORED);
    }
    for (int32_t i = 0; i < n; i += api->n_rows) {
        const int32_t rows = n - i < api->n_rows ? n - i : api->n_rows;
        const lathe_run_batch b = ppo_make_batch(p, r, list + i, rows, &size, inputs);
        LATHE_TRY(api->accumulate(run, &b));
    }
    return LATHE_OK;
}

/* Whether any completion of the rollout is learnt. */
static int has_learnt(const ppo *p, const ppo_rollout *r)
{
    int32_t i = 0;
    while (i < r->n && !ppo_is_learnt(p, r, i))
        i++;
    return i < r->n;
}

lathe_status ppo_iterate(void *self, const lathe_run_api *api, void *run, void *state)
{
    const ppo *p = self;
    ppo_rollout r;
    int stopped = 0;
    ppo_state_read(p, api->row_tokens, state, &r);
    if (!r.head->is_full || r.head->steps >= r.head->epochs * r.head->minibatches) {
        LATHE_TRY(roll_out(p, api, run, &r, &stopped));
        if (stopped)
            return LATHE_OK;
    }
    const int64_t minibatches = r.head->minibatches, minibatch = r.head->steps % minibatches;
    const int32_t n = (int32_t)(r.n / minibatches);
    if (minibatch == 0 && minibatches > 1)
        shuffle(api, run, &r);
    int32_t *const list = r.order + minibatch * n;
    sort_by_length(&r, list, n);
    r.head->steps++; /* counts although the core may skip the update, as for a bad loss */
    if (!has_learnt(
            p, &r)) /* no gradients: the core skips this step, and the next one makes a rollout */
        r.head->steps = r.head->epochs * r.head->minibatches;
    for (int i = 0; i < PPO_N_FIGURES; i++)
        api->figure(run, i, r.head->figures[i]);
    return learn(p, api, run, &r, list, n);
}

/* Batches of a rollout's completions. */
#include "ppo_state.h"

/* Writes the inputs of the target at place `at` of the batch: the token after place t of
 * completion i. */
static void fill_target(const ppo *p, const ppo_rollout *r, int32_t i, int32_t t, int64_t at,
                        float weight)
{
    float *const *inputs = p->scratch->inputs;
    const int64_t from = i * r->row_tokens + t;
    inputs[PPO_INPUT_ADVANTAGES][at] = r->advantages[p->advantage == PPO_GAE ? from : i];
    inputs[PPO_INPUT_WEIGHTS][at] = weight;
    if (r->old_logprobs)
        inputs[PPO_INPUT_OLD_LOGPROBS][at] = r->old_logprobs[from];
    if (r->old_values)
        inputs[PPO_INPUT_OLD_VALUES][at] = r->old_values[from];
    if (r->returns)
        inputs[PPO_INPUT_RETURNS][at] = r->returns[from];
    inputs[PPO_INPUT_KL_COEF][at] = (float)r->head->kl_coef;
}

/* Writes completion i to row `row` of the scratch, rows of n tokens. */
static void fill_row(const ppo *p, const ppo_rollout *r, int32_t i, int64_t row, int64_t n,
                     const ppo_step_size *size)
{
    const ppo_scratch *s = p->scratch;
    const int32_t *tokens = r->tokens + i * r->row_tokens;
    const int32_t first = r->n_prompt[i], end = first + r->length[i];
    const int has_targets = size == NULL || ppo_is_learnt(p, r, i);
    const float weight = size ? (float)ppo_weight(p, r->length[i] > 0 ? r->length[i] : 1,
                                                  size->n_tokens, size->n_sequences)
                              : 0.0f;
    for (int32_t t = 0; t < n; t++) {
        const int64_t at = row * n + t;
        const int is_target = has_targets && t + 1 >= first && t + 1 < end;
        s->tokens[at] = t < end ? tokens[t] : tokens[end - 1];
        s->targets[at] = is_target ? tokens[t + 1] : -1;
        s->doc_start[at] = t < end ? 0 : end;
        for (int k = 0; k < PPO_N_INPUTS; k++)
            s->inputs[k][at] = 0.0f;
        if (is_target && size)
            fill_target(p, r, i, t, at, weight);
    }
}

lathe_run_batch ppo_make_batch(const ppo *p, const ppo_rollout *r, const int32_t *list,
                               int32_t n_rows, const ppo_step_size *size,
                               lathe_batch_input inputs[PPO_N_INPUTS])
{
    static const char *const names[PPO_N_INPUTS] = {
        [PPO_INPUT_ADVANTAGES] = "advantages", [PPO_INPUT_OLD_LOGPROBS] = "old_logprobs",
        [PPO_INPUT_WEIGHTS] = "weights",       [PPO_INPUT_OLD_VALUES] = "old_values",
        [PPO_INPUT_RETURNS] = "returns",       [PPO_INPUT_KL_COEF] = "kl_coef"};
    const ppo_scratch *s = p->scratch;
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

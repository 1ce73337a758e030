/* A rollout in the stage's state, and the memory of one call. */
#ifndef LATHE_STAGE_PPO_STATE_H
#define LATHE_STAGE_PPO_STATE_H

#include "ppo.h"

typedef struct ppo_header {
    int64_t is_full;             /* 1: there is a rollout */
    int64_t steps;               /* steps of it that were begun */
    int64_t epochs, minibatches; /* the settings with which it was made: a resumed run may have
                                    others, which count from its next rollout on */
    /* Divergence of the last rollout that was finished. has_kl 0: none, or it was not measured. */
    int64_t has_kl;
    double kl, kl_coef;
    double figures[PPO_N_FIGURES];
} ppo_header;

/* Marks of a completion: it has no end; no reward gave it a score. */
enum { PPO_CUT = 1, PPO_UNSCORED = 2 };

/** The state of n = prompts * group completions, which every checkpoint saves; a rollout is learnt
 *  in epochs * minibatches steps:
 *
 *   | header | order i32[n] | n_prompt i32[n] | length i32[n] | marks i32[n] | tokens i32[n, T] |
 *   | advantages f32[n]; gae: f32[n, T] |
 *   | old_logprobs f32[n, T]: if the rollout has more than one step |
 *   | old_values f32[n, T]: gae, if the rollout has more than one step | returns f32[n, T]: gae |
 *
 *  Values of a token are at the place of the token before it, whose target it is. */
typedef struct ppo_rollout {
    ppo_header *head;
    int32_t *order, *n_prompt, *length, *marks, *tokens;     /* marks: PPO_CUT, PPO_UNSCORED */
    float *advantages, *old_logprobs, *old_values, *returns; /* NULL: not part of the state */
    int32_t n;
    int64_t row_tokens; /* T */
} ppo_rollout;

/** Memory for one call, part of no checkpoint: allocated with the state. */
typedef struct ppo_scratch {
    int32_t *tokens, *targets, *doc_start; /* [B, T] */
    float *inputs[PPO_N_INPUTS];           /* [B, T] */
    float *outputs[PPO_N_OUTPUTS];         /* [B, T] */
    float *token_rewards;                  /* [T] */
    lathe_stage_prompt *prompts;           /* [prompts] */
    lathe_prompt *asked;                   /* [n] */
    lathe_generation *generated;           /* [n] */
    lathe_stage_completion *completions;   /* [n] */
    double *rewards;                       /* [n] */
    ppo_span *spans;                       /* [n] */
    char memory[];
} ppo_scratch;

/** Finds the parts of the state in its memory. */
void ppo_state_read(const ppo *p, int64_t row_tokens, void *memory, ppo_rollout *out);

/** Place of the first value of completion i in arrays [n, T]: it has length[i] values there. */
static inline int64_t ppo_first_value(const ppo_rollout *r, int32_t i)
{
    return i * r->row_tokens + r->n_prompt[i] - 1;
}

/** Whether the tokens of completion i are learnt. */
static inline int ppo_is_learnt(const ppo *p, const ppo_rollout *r, int32_t i)
{
    return !(r->marks[i] & PPO_UNSCORED) && !(p->mask_cut && (r->marks[i] & PPO_CUT));
}

/* ---- batches (ppo_batch.c) ---- */

/** Counts by which a step's tokens are weighed. */
typedef struct ppo_step_size {
    int64_t n_tokens;
    int32_t n_sequences;
} ppo_step_size;

/** Makes a batch of the completions list[0, n_rows) in p->scratch, as short as they allow. size
 *  NULL: for an evaluation, in which all tokens of completions are targets and nothing is weighed.
 *  `inputs`: room for the batch's inputs. */
lathe_run_batch ppo_make_batch(const ppo *p, const ppo_rollout *r, const int32_t *list,
                               int32_t n_rows, const ppo_step_size *size,
                               lathe_batch_input inputs[PPO_N_INPUTS]);

#endif

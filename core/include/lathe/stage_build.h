/* Arguments and results of lathe_stage_v1.loss: a stage builds its loss from them. */
#ifndef LATHE_STAGE_BUILD_H
#define LATHE_STAGE_BUILD_H

#include "graph.h"

enum { LATHE_MODEL_POLICY = 0, LATHE_MODEL_REFERENCE = 1, LATHE_MODEL_TEACHER = 2 };

/** A metric shown with the loss: its sum over a step divided by the step's count, or by the sum of
 *  another metric (a mean over part of the examples; left out of the figures while that sum is 0).
 *  Plain data. */
typedef struct lathe_stage_metric {
    const char *name; /* "rewards/margins"; NULL: not shown; another metric is divided by its sum */
    lathe_val sum;    /* f32[] */
    int32_t over;     /* 0: the step's count; else 1 + the index of the metric to divide by */
} lathe_stage_metric;
LATHE_ABI_SIZE(lathe_stage_metric, 16);

#define LATHE_MAX_STAGE_METRICS 16
#define LATHE_MAX_STAGE_OUTPUTS 4

/** Inputs of loss(), from the core. */
typedef struct lathe_stage_build {
    uint32_t size;
    int32_t n_rows;     /* B: rows of the micro-batch (2P for pairs and unpaired examples) */
    int64_t row_tokens; /* T */
    const lathe_graph_api *api;
    lathe_graph *graph;
    /** [build] Log-probabilities f32[B*T] of the targets under the policy or the reference model
     *  (LATHE_MODEL_*); 0 where a token is not a target. A second call gives the same value.
     *  ctx: the member below. Valid until loss() returns. LATHE_E_ARG: no such model. */
    lathe_status (*logprobs)(void *ctx, int32_t model, lathe_val *out);
    void *ctx; /* of the functions of this table */
    /** For LATHE_ROWS_PAIRS and LATHE_ROWS_UNPAIRED: mask f32[P], 1 for a pair (example) of the
     *  batch and 0 for padding. A batch with fewer of them than the graph is padded, so loss and
     *  metrics must be multiplied by this mask before they are summed. LATHE_NONE for other rows,
     *  whose padding has no targets. */
    lathe_val pair_mask;
    int32_t n_inputs;
    const lathe_val *inputs; /* [n_inputs] the stage's inputs, in the order of its table; 0 in
                                padding tokens and rows */
    /** [build] Entropy f32[B*T] of a model's distribution at the targets, in nats, as logprobs; 0
     *  where a token is not a target. The distribution is computed in chunks, never whole. */
    lathe_status (*entropy)(void *ctx, int32_t model, lathe_val *out);
    /** [build] f32[B*T], 1 where a token is a target and 0 elsewhere. */
    lathe_status (*target_mask)(void *ctx, lathe_val *out);
    /** [build] Output at every token of head `head` of the stage's table: f32[B*T] if it has one
     *  output, else f32[B*T, n_outputs]. Computed in f32. LATHE_E_ARG: no such head. */
    lathe_status (*head)(void *ctx, int32_t head, lathe_val *out);
    /** [build] f32[B*T], 1 at the last token of each row's sequence and 0 elsewhere; 0 everywhere
     *  in padding rows. As in transformers' sequence classifiers, the last token is the last one
     *  that is not the model's pad_token_id. LATHE_E_ARG: rows of several documents. */
    lathe_status (*last_mask)(void *ctx, lathe_val *out);
    /** [build] Last hidden states [B*T, hidden] of a model (LATHE_MODEL_*), after its final norm,
     *  in the compute dtype. */
    lathe_status (*hidden)(void *ctx, int32_t model, lathe_val *out);
    /** [build] f32[B*T]: how far the policy's distribution p is from the distribution q of another
     *  model at each target, both of logits divided by `temperature`; 0 where a token is not a
     *  target. beta 0: KL(q || p), the forward divergence; 1: KL(p || q), the reverse one; between:
     *  beta KL(q || m) + (1-beta) KL(p || m), m = beta q + (1-beta) p (arXiv:2306.13649, eq. 1).
     *  p and q are over the tokens that both models have: a vocabulary may be padded to more rows
     *  than the other. Computed in chunks; only the policy gets a gradient. LATHE_E_ARG: no such
     *  model. */
    lathe_status (*divergence)(void *ctx, int32_t model, double beta, double temperature,
                               lathe_val *out);
    int64_t width; /* C: of the policy's hidden states */
    /** [build] Adds to each number of the policy's token embeddings a uniform one from
     *  [-magnitude, magnitude), in training only. The random numbers depend on the run's seed, the
     *  micro-batch and the element's place in it. Call it before all functions that build the
     *  policy. LATHE_E_ARG: it is built already, or magnitude is negative or not finite. */
    lathe_status (*embedding_noise)(void *ctx, double magnitude);
    /** [build] A model's log-probabilities, of logits divided by `temperature`, at the tokens that
     *  ids i32[B*T, K] names. only_picked 0: f32[B*T, K+1]; column K has that of all other tokens
     *  together, at least log(FLT_MIN), where it has no gradient. 1: f32[B*T, K] of the
     *  distribution over the named tokens alone. 0 where an id is -1, and in a row of only -1.
     *  Computed in chunks. LATHE_E_ARG: no such model. */
    lathe_status (*picked)(void *ctx, int32_t model, lathe_val ids, double temperature,
                           int32_t only_picked, lathe_val *out);
    /* k of the run's stored teacher (LATHE_INPUT_STORED), and the temperature that its logits were
     * divided by; 0: the teacher is a model of the run. */
    int32_t n_stored, reserved; /* reserved: 0 */
    double stored_temperature;
} lathe_stage_build;
LATHE_ABI_SIZE(lathe_stage_build, 152);

/** Result of loss(). The loss is a SUM; the core divides it once by the step's total count. */
typedef struct lathe_stage_loss {
    uint32_t size;
    int32_t n_metrics;
    lathe_val sum;      /* f32[] */
    int32_t count_unit; /* LATHE_COUNT_* */
    /* Values that iterate() reads of a batch with lathe_run_api.outputs: per token, f32[B*T], such
     * as log-probabilities and values of a head. They need not be part of the loss: a training step
     * does not compute them then. LATHE_NONE: not with these settings. Only for stages that have
     * iterate(). */
    lathe_val outputs[LATHE_MAX_STAGE_OUTPUTS]; /* [n_outputs] */
    int32_t n_outputs;
    int32_t reserved; /* 0 */
    lathe_stage_metric metrics[LATHE_MAX_STAGE_METRICS];
} lathe_stage_loss;
LATHE_ABI_SIZE(lathe_stage_loss, 296);

/* TOKENS: targets; EXAMPLES: those of LATHE_ROWS_UNPAIRED */
enum { LATHE_COUNT_TOKENS = 0, LATHE_COUNT_PAIRS = 1, LATHE_COUNT_EXAMPLES = 2 };

#endif

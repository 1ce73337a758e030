/* The interface of training stage plugins, which define how data become rows and the loss on them.
 *
 * A stage declares the dataset columns it reads and what else it needs, and builds its loss from
 * the model's log-probabilities and entropies per token, or from heads of its own. The core does
 * everything else: batching, accumulation, clipping and the step.
 */
#ifndef LATHE_STAGE_H
#define LATHE_STAGE_H

#include "graph.h"
#include "host.h"

#define LATHE_STAGE_REVISION 1

/* How rows are made from a dataset. */
enum {
    LATHE_ROWS_PACKED = 0, /* documents packed into rows of T tokens; every token is a target */
    /* prompt+chosen and prompt+rejected: rows 0..P-1 are chosen, rows P..2P-1 rejected, of the same
     * pairs; padded on the right to T tokens; only completion tokens are targets */
    LATHE_ROWS_PAIRS = 1,
    /* examples of a prompt and its completion, each a document; whole examples packed into rows of
     * T tokens; only completion tokens are targets */
    LATHE_ROWS_COMPLETIONS = 2,
    /* examples of a prompt, a completion and the stage's columns (kto's label): rows 0..P-1 are the
     * examples; row P+i has the prompt of example i and the completion of the example before it in
     * the batch (of the first: the last one's), for an estimate of the divergence. Padded on the
     * right to T tokens; only completion tokens are targets */
    LATHE_ROWS_UNPAIRED = 3,
    /* prompts alone, without targets, for stages that write the completions themselves; the record
     * of each is kept, for rewards */
    LATHE_ROWS_PROMPTS = 4,
    /* groups: a prompt and lathe_stage_v1.n_answers answers to it, from the columns prompt and
     * completions, a list: rows k*P..k*P+P-1 have answer k of the records 0..P-1. Padded on the
     * right to T tokens; only the answers' tokens are targets */
    LATHE_ROWS_GROUPS = 5,
    LATHE_N_ROW_KINDS
};
#define LATHE_MAX_ANSWERS 16 /* of a record, for LATHE_ROWS_GROUPS */
enum {
    LATHE_NEEDS_REFERENCE = 1, /* the model before training */
    LATHE_NEEDS_TEACHER = 2,   /* the model of teacher.path */
    LATHE_NEEDS_REWARD = 4,    /* the rewards of the run file, for completions that it generates */
};

/** A column of the dataset. Plain data. */
typedef struct lathe_column {
    const char *name; /* "text", "prompt", "completion", "completions", "chosen", "rejected" */
    int32_t required;
    int32_t reserved; /* 0 */
    const char *doc;
} lathe_column;
LATHE_ABI_SIZE(lathe_column, 24);

/* A stage's input has numbers per token or per row. */
enum { LATHE_PER_TOKEN = 0 /* [B*T] */, LATHE_PER_ROW = 1 /* [B] */ };

/* Where the values of an input come from. */
enum {
    /* from the program that calls lathe_forward() with each batch (lathe_run_batch.inputs); `lathe
     * train` refuses a stage that needs such inputs */
    LATHE_INPUT_CALLER = 0,
    /* from the records of the data: the column with the input's name, a number or true (1) or
     * false (0). All rows and tokens of a record have the record's value. A packed
     * row has several records, so the input is then per token. Batches of a caller give it too. */
    LATHE_INPUT_COLUMN = 1,
    /* from the folder teacher.stored, which `lathe logprobs` made: a teacher's most likely tokens
     * at each target, for a stage that LATHE_NEEDS_TEACHER and LATHE_ROWS_COMPLETIONS. Per token;
     * lathe_stage_build.n_stored is their number k. dtype I32: the tokens, [B*T, k], -1 where a
     * token is not a target; F32: their log-probabilities and, last, that of all other tokens
     * together, [B*T, k+1], 0 where a token is not a target. LATHE_NONE in lathe_stage_build.inputs
     * if the teacher is a model of the run. A stage without such inputs needs the model. */
    LATHE_INPUT_STORED = 2
};

/** An extra input of the loss, such as the advantages of a rollout. Plain data. */
typedef struct lathe_stage_input {
    const char *name; /* "advantages" */
    int32_t per;      /* LATHE_PER_* */
    int32_t source;   /* LATHE_INPUT_* */
    const char *doc;
    double fallback;    /* value of a record without the column, if it is not required */
    int32_t required;   /* 1: each record must have the column */
    int32_t is_boolean; /* 1: of a column, only true, false, 1 and 0 are accepted */
} lathe_stage_input;
LATHE_ABI_SIZE(lathe_stage_input, 40);

/** Shape of an input that is not one f32. Plain data. */
typedef struct lathe_input_shape {
    int32_t dtype; /* LATHE_F32, or LATHE_I32 if it is not a column */
    int32_t count; /* numbers per token or row: [B*T, count]; 0 or 1: one, [B*T]; of a column 0 or
                    * 1; of STORED 0 */
} lathe_input_shape;
LATHE_ABI_SIZE(lathe_input_shape, 8);

/** A linear head over the policy's last hidden states, without a bias: the matrix "<name>.weight"
 *  f32[n_outputs, hidden]. The core declares it, trains it (also where an adapter freezes the
 *  model), and saves and loads it under that name; if the weights that a run begins from have none,
 *  it is initialised like a new linear layer of the model. Plain data.
 *
 *  The name "score" makes the model a sequence classifier: checkpoints are folders for
 *  transformers' AutoModelForSequenceClassification with num_labels = n_outputs, and the policy has
 *  no head over the vocabulary, so logprobs() and entropy() refuse it. */
typedef struct lathe_stage_head {
    const char *name;  /* "value"; lower-case letters, digits and _ */
    int32_t n_outputs; /* numbers per token */
    int32_t reserved;  /* 0 */
    const char *doc;
} lathe_stage_head;
LATHE_ABI_SIZE(lathe_stage_head, 24);

/* Objectives: how a stage on LATHE_ROWS_PACKED learns a document (its tokens in one row). */
enum {
    /* a token sees itself and those before it; its target is the next token */
    LATHE_OBJECTIVE_CAUSAL = 0,
    /* the first tokens, the prefix, see each other, and the others as in CAUSAL; targets are the
     * tokens after the prefix */
    LATHE_OBJECTIVE_PREFIX = 1,
    /* all tokens see each other; some are chosen at random, and most of these replaced; the target
     * of a chosen token is the token that was in its place, and the others have none */
    LATHE_OBJECTIVE_MASKED = 2,
    LATHE_N_OBJECTIVES
};

/** The objective with its settings. Random choices depend on data.seed and the row's place. */
typedef struct lathe_objective {
    uint32_t size;
    int32_t kind;            /* LATHE_OBJECTIVE_* */
    double prefix_fraction;  /* PREFIX: share of a document, below 1; 0: the length is drawn for
                                each document, uniform from 1 to its tokens - 1 */
    double mask_probability; /* MASKED: of each token to be chosen, in (0, 1]; special tokens never
                                are */
    double mask_share;       /* of the chosen tokens: becomes the mask token */
    double random_share;     /* of the chosen tokens: becomes a random token; the rest stays */
    const char *mask_token;  /* MASKED: its text; NULL: the tokenizer's mask_token */
} lathe_objective;
LATHE_ABI_SIZE(lathe_objective, 48);

#define LATHE_MAX_STAGE_INPUTS 8
#define LATHE_MAX_STAGE_HEADS 4

/* ---- arguments and results of loss() ---- */

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
    int32_t n_rows;     /* B: rows: 2P of pairs and unpaired examples, n*P of groups of n answers */
    int64_t row_tokens; /* T */
    int64_t width;      /* C: of the policy's hidden states */
    const lathe_graph_api *api;
    lathe_graph *graph;
    const lathe_val *inputs; /* [n_inputs] the stage's inputs, in the order of its table; 0 in
                                padding tokens and rows */
    int32_t n_inputs;
    /** For LATHE_ROWS_PAIRS, LATHE_ROWS_UNPAIRED and LATHE_ROWS_GROUPS: mask f32[P], 1 for a record
     *  of the batch and 0 for padding. A batch with fewer of them than the graph is padded, so loss
     *  and metrics must be multiplied by this mask before they are summed. LATHE_NONE for other
     *  rows, whose padding has no targets. */
    lathe_val record_mask;
    /* k of the run's stored teacher (LATHE_INPUT_STORED), and the temperature that its logits were
     * divided by; 0: the teacher is a model of the run. */
    int32_t n_stored, reserved; /* reserved: 0 */
    double stored_temperature;
    void *ctx; /* of the functions of this table */
    /** [build] Log-probabilities f32[B*T] of the targets under the policy or the reference model
     *  (LATHE_MODEL_*); 0 where a token is not a target. A second call gives the same value.
     *  ctx: the member below. Valid until loss() returns. LATHE_E_ARG: no such model. */
    lathe_status (*logprobs)(void *ctx, int32_t model, lathe_val *out);
    /** [build] Entropy f32[B*T] of a model's distribution at the targets, in nats, as logprobs; 0
     *  where a token is not a target. The distribution is computed in chunks, never whole. */
    lathe_status (*entropy)(void *ctx, int32_t model, lathe_val *out);
    /** [build] f32[B*T]: how far the policy's distribution p is from the distribution q of another
     *  model at each target, both of logits divided by `temperature`; 0 where a token is not a
     *  target. beta 0: KL(q || p), the forward divergence; 1: KL(p || q), the reverse one; between:
     *  beta KL(q || m) + (1-beta) KL(p || m), m = beta q + (1-beta) p (arXiv:2306.13649, eq. 1).
     *  p and q are over the tokens that both models have: a vocabulary may be padded to more rows
     *  than the other. Computed in chunks; only the policy gets a gradient. LATHE_E_ARG: no such
     *  model. */
    lathe_status (*divergence)(void *ctx, int32_t model, double beta, double temperature,
                               lathe_val *out);
    /** [build] A model's log-probabilities, of logits divided by `temperature`, at the tokens that
     *  ids i32[B*T, K] names. only_picked 0: f32[B*T, K+1]; column K has that of all other tokens
     *  together, at least log(FLT_MIN), where it has no gradient. 1: f32[B*T, K] of the
     *  distribution over the named tokens alone. 0 where an id is -1, and in a row of only -1.
     *  Computed in chunks. LATHE_E_ARG: no such model. */
    lathe_status (*picked)(void *ctx, int32_t model, lathe_val ids, double temperature,
                           int32_t only_picked, lathe_val *out);
    /** [build] f32[B*T], 1 where a token is a target and 0 elsewhere. */
    lathe_status (*target_mask)(void *ctx, lathe_val *out);
    /** [build] f32[B*T], 1 at the last token of each row's sequence and 0 elsewhere; 0 everywhere
     *  in padding rows. As in transformers' sequence classifiers, the last token is the last one
     *  that is not the model's pad_token_id. LATHE_E_ARG: rows of several documents. */
    lathe_status (*last_mask)(void *ctx, lathe_val *out);
    /** [build] Last hidden states [B*T, hidden] of a model (LATHE_MODEL_*), after its final norm,
     *  in the compute dtype. */
    lathe_status (*hidden)(void *ctx, int32_t model, lathe_val *out);
    /** [build] Output at every token of head `head` of the stage's table: f32[B*T] if it has one
     *  output, else f32[B*T, n_outputs]. Computed in f32. LATHE_E_ARG: no such head. */
    lathe_status (*head)(void *ctx, int32_t head, lathe_val *out);
    /** [build] Adds to each number of the policy's token embeddings a uniform one from
     *  [-magnitude, magnitude), in training only. The random numbers depend on the run's seed, the
     *  micro-batch and the element's place in it. Call it before all functions that build the
     *  policy. LATHE_E_ARG: it is built already, or magnitude is negative or not finite. */
    lathe_status (*embedding_noise)(void *ctx, double magnitude);
} lathe_stage_build;
LATHE_ABI_SIZE(lathe_stage_build, 152);

/** Result of loss(). The loss is a SUM; the core divides it once by the step's total count. */
typedef struct lathe_stage_loss {
    uint32_t size;
    int32_t count_unit; /* LATHE_COUNT_* */
    lathe_val sum;      /* f32[] */
    int32_t n_metrics;
    lathe_stage_metric metrics[LATHE_MAX_STAGE_METRICS];
    /* Values that iterate() reads of a batch with lathe_run_api.outputs: per token, f32[B*T], such
     * as log-probabilities and values of a head. They need not be part of the loss: a training step
     * does not compute them then. LATHE_NONE: not with these settings. Only for stages that have
     * iterate(). */
    lathe_val outputs[LATHE_MAX_STAGE_OUTPUTS]; /* [n_outputs] */
    int32_t n_outputs;
    int32_t reserved; /* 0 */
} lathe_stage_loss;
LATHE_ABI_SIZE(lathe_stage_loss, 296);

/* TOKENS: targets; PAIRS: those of LATHE_ROWS_PAIRS; EXAMPLES: records of LATHE_ROWS_UNPAIRED and
 * LATHE_ROWS_GROUPS */
enum { LATHE_COUNT_TOKENS = 0, LATHE_COUNT_PAIRS = 1, LATHE_COUNT_EXAMPLES = 2 };

/* ---- the table ---- */

struct lathe_run_api; /* stage_run.h: needed only by stages that have iterate() */

/** A figure that iterate() shows with the metrics of a step. Plain data. */
typedef struct lathe_stage_figure {
    const char *name; /* "reward" */
    const char *doc;
} lathe_stage_figure;
LATHE_ABI_SIZE(lathe_stage_figure, 16);

#define LATHE_MAX_STAGE_FIGURES 16

typedef struct lathe_stage_v1 {
    uint32_t size;
    uint32_t revision;

    /* ---- data, models and loss ---- */
    const lathe_column *columns;
    int32_t n_columns;
    int32_t rows;      /* LATHE_ROWS_* */
    uint32_t needs;    /* LATHE_NEEDS_*; all that any settings need */
    int32_t n_answers; /* LATHE_ROWS_GROUPS: answers of a record, 2 to LATHE_MAX_ANSWERS; else 0 */
    /** [build] Adds the loss of one micro-batch to build->graph. May be called again for another
     *  shape. */
    lathe_status (*loss)(void *self, const lathe_stage_build *build, lathe_stage_loss *out);
    /** [pure] The bits of `needs` that this instance needs with its settings: a loss without a
     *  reference model plans and holds none. NULL: all of `needs`. */
    uint32_t (*needs_of)(void *self);
    /** [pure] The objective of this instance, on LATHE_ROWS_PACKED. The core masks the rows and
     *  bounds the attention. NULL: LATHE_OBJECTIVE_CAUSAL. */
    void (*objective)(void *self, lathe_objective *out);

    /* ---- inputs beside the tokens ---- */
    const lathe_stage_input *inputs;       /* [n_inputs]; NULL: none */
    const lathe_input_shape *input_shapes; /* [n_inputs]; NULL: each input is one f32 */
    int32_t n_inputs;

    /* ---- heads of its own ---- */
    int32_t n_heads;
    const lathe_stage_head *heads; /* [n_heads]; NULL: none */
    /** [pure] Bit i: with its settings this instance has head i of `heads`; the core neither
     *  declares nor saves the others. NULL: it has all. */
    uint32_t (*heads_of)(void *self);

    /* ---- stages that make their batches themselves ---- */
    /** [build] Bytes of the state of iterate(), a multiple of 8, for batches of n_rows rows of
     * row_tokens tokens. Set with iterate. LATHE_E_CONFIG: the stage's settings do not fit these
     * rows. */
    lathe_status (*state_bytes)(void *self, int32_t n_rows, int64_t row_tokens, int64_t *out);
    /** [step] Makes the batches of one optimizer step itself, such as rollouts of the policy, and
     *  accumulates their gradients with api->accumulate; the core then updates. What the stage must
     *  remember between calls is in `state`, state_bytes() of memory that the core owns, sets to 0
     *  before the first call and saves in checkpoints; the same state must give the same bits.
     *  NULL: the core takes batches from the data. Errors: any code. */
    lathe_status (*iterate)(void *self, const struct lathe_run_api *api, void *run, void *state);
    const lathe_stage_figure *figures; /* [n_figures]; NULL: none */
    int32_t n_figures;
    int32_t reserved2; /* 0 */

    /* ---- the line of progress ---- */
    /** Name of the metric of loss() or figure of iterate() that best tells whether training
     *  succeeds, such as "reward": the line of progress shows it beside the loss. NULL: none. */
    const char *headline;
} lathe_stage_v1;
LATHE_ABI_SIZE(lathe_stage_v1, 136);

#endif

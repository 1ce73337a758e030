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
    LATHE_N_ROW_KINDS
};
enum {
    LATHE_NEEDS_REFERENCE = 1, /* the model before training */
    LATHE_NEEDS_TEACHER = 2,   /* the model of teacher.path */
    LATHE_NEEDS_REWARD = 4,    /* the rewards of the run file, for completions that it generates */
};
enum { LATHE_MODEL_POLICY = 0, LATHE_MODEL_REFERENCE = 1, LATHE_MODEL_TEACHER = 2 };

/** A column of the dataset. Plain data. */
typedef struct lathe_column {
    const char *name; /* "text", "prompt", "completion", "chosen", "rejected" */
    int32_t required;
    int32_t reserved; /* 0 */
    const char *doc;
} lathe_column;
LATHE_ABI_SIZE(lathe_column, 24);

/* A stage's input has one number per token or per row. */
enum { LATHE_PER_TOKEN = 0 /* f32[B*T] */, LATHE_PER_ROW = 1 /* f32[B] */ };

/* Where the values of an input come from. */
enum {
    /* from the program that calls lathe_forward() with each batch (lathe_run_batch.inputs); `lathe
     * train` refuses a stage that needs such inputs */
    LATHE_INPUT_CALLER = 0,
    /* from the records of the data: the column with the input's name, a number or true (1) or
     * false (0). Both rows of a pair, and all tokens of a record, have the record's value. A packed
     * row has several records, so the input is then per token. Batches of a caller give it too. */
    LATHE_INPUT_COLUMN = 1
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

/** A metric shown with the loss: its sum over a step divided by the step's count, or by the sum of
 *  another metric (a mean over part of the examples; left out of the figures while that sum is 0).
 *  Plain data. */
typedef struct lathe_stage_metric {
    const char *name; /* "rewards/margins"; NULL: not shown; another metric is divided by its sum */
    lathe_val sum;    /* f32[] */
    int32_t over;     /* 0: the step's count; else 1 + the index of the metric to divide by */
} lathe_stage_metric;
LATHE_ABI_SIZE(lathe_stage_metric, 16);

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

#define LATHE_MAX_STAGE_METRICS 16
#define LATHE_MAX_STAGE_INPUTS 8
#define LATHE_MAX_STAGE_HEADS 4

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
     *  Computed in chunks; only the policy gets a gradient. LATHE_E_ARG: no such model. */
    lathe_status (*divergence)(void *ctx, int32_t model, double beta, double temperature,
                               lathe_val *out);
} lathe_stage_build;
LATHE_ABI_SIZE(lathe_stage_build, 112);

/** Result of loss(). The loss is a SUM; the core divides it once by the step's total count. */
typedef struct lathe_stage_loss {
    uint32_t size;
    int32_t n_metrics;
    lathe_val sum;      /* f32[] */
    int32_t count_unit; /* LATHE_COUNT_* */
    lathe_stage_metric metrics[LATHE_MAX_STAGE_METRICS];
} lathe_stage_loss;
LATHE_ABI_SIZE(lathe_stage_loss, 272);

/* TOKENS: targets; EXAMPLES: those of LATHE_ROWS_UNPAIRED */
enum { LATHE_COUNT_TOKENS = 0, LATHE_COUNT_PAIRS = 1, LATHE_COUNT_EXAMPLES = 2 };

typedef struct lathe_stage_v1 {
    uint32_t size;
    uint32_t revision;
    const lathe_column *columns;
    int32_t n_columns;
    int32_t rows;      /* LATHE_ROWS_* */
    uint32_t needs;    /* LATHE_NEEDS_*; all that any settings need */
    uint32_t reserved; /* 0 */
    /** [build] Adds the loss of one micro-batch to build->graph. May be called again for another
     *  shape. */
    lathe_status (*loss)(void *self, const lathe_stage_build *build, lathe_stage_loss *out);
    const lathe_stage_input *inputs; /* [n_inputs]; NULL: none */
    int32_t n_inputs;
    int32_t n_heads;
    const lathe_stage_head *heads; /* [n_heads]; NULL: none */
    /** [pure] The bits of `needs` that this instance needs with its settings: a loss without a
     *  reference model plans and holds none. NULL: all of `needs`. */
    uint32_t (*needs_of)(void *self);
} lathe_stage_v1;
LATHE_ABI_SIZE(lathe_stage_v1, 72);

#endif

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
#include "stage_build.h"

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

/** A column of the dataset. Plain data. */
typedef struct lathe_column {
    const char *name; /* "text", "prompt", "completion", "chosen", "rejected" */
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
     * false (0). Both rows of a pair, and all tokens of a record, have the record's value. A packed
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

struct lathe_run_api; /* stage_run.h */

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
    /** [step] Makes the batches of one optimizer step itself, such as rollouts of the policy, and
     *  accumulates their gradients with api->accumulate; the core then updates. What the stage must
     *  remember between calls is in `state`, state_bytes() of memory that the core owns, sets to 0
     *  before the first call and saves in checkpoints; the same state must give the same bits.
     *  NULL: the core takes batches from the data. Errors: any code. */
    lathe_status (*iterate)(void *self, const struct lathe_run_api *api, void *run, void *state);
    /** [build] Bytes of that state, a multiple of 8, for batches of n_rows rows of row_tokens
     *  tokens. Set with iterate. LATHE_E_CONFIG: the stage's settings do not fit these rows. */
    lathe_status (*state_bytes)(void *self, int32_t n_rows, int64_t row_tokens, int64_t *out);
    const lathe_stage_figure *figures; /* [n_figures]; NULL: none */
    int32_t n_figures;
    int32_t reserved3; /* 0 */
    /** Name of the metric of loss() or figure of iterate() that best tells whether training
     *  succeeds, such as "reward": the line of progress shows it beside the loss. NULL: none. */
    const char *headline;
    /** [pure] Bit i: with its settings this instance has head i of `heads`; the core neither
     *  declares nor saves the others. NULL: it has all. */
    uint32_t (*heads_of)(void *self);
    /** [pure] The objective of this instance, on LATHE_ROWS_PACKED. The core masks the rows and
     *  bounds the attention. NULL: LATHE_OBJECTIVE_CAUSAL. */
    void (*objective)(void *self, lathe_objective *out);
    const lathe_input_shape *input_shapes; /* [n_inputs]; NULL: each input is one f32 */
} lathe_stage_v1;
LATHE_ABI_SIZE(lathe_stage_v1, 136);

#endif

/* Training stages: what a row of data is, and the loss on it.
 *
 * A stage declares the columns it reads and what it needs, and builds its loss from the model's
 * per-token log-probabilities. Everything else (batching, accumulation, clipping, the step) is the
 * core's; a stage may change a run only through the primitives.
 */
#ifndef LATHE_STAGE_H
#define LATHE_STAGE_H

#include "graph.h"
#include "host.h"

#define LATHE_STAGE_REVISION 1

/* How rows are made from a dataset. */
enum {
    LATHE_ROWS_PACKED = 0, /* documents packed into rows of T tokens; every token is a target */
    LATHE_ROWS_PAIRS =
        1 /* prompt+chosen and prompt+rejected: rows 0..P-1 chosen, P..2P-1 rejected of
             the same pairs; right-padded to T, only completion tokens are targets */
};
enum {
    LATHE_NEEDS_REFERENCE = 1, /* log-probabilities of the model before training */
};
enum { LATHE_MODEL_POLICY = 0, LATHE_MODEL_REFERENCE = 1 };

/** A column of the dataset. Plain data. */
typedef struct lathe_column {
    const char *name; /* "text", "prompt", "chosen", "rejected" */
    int32_t required;
    int32_t reserved; /* 0 */
    const char *doc;
} lathe_column;
LATHE_ABI_SIZE(lathe_column, 24);

/** A number shown beside the loss: the value's sum over a step divided by the count's. Plain data.
 */
typedef struct lathe_stage_metric {
    const char *name; /* "rewards/margins" */
    lathe_val sum;    /* f32[] */
    int32_t reserved; /* 0 */
} lathe_stage_metric;
LATHE_ABI_SIZE(lathe_stage_metric, 16);

#define LATHE_MAX_STAGE_METRICS 16

/** What the core gives to loss(). */
typedef struct lathe_stage_build {
    uint32_t size;
    int32_t n_rows;     /* B: rows of the micro-batch (2P for pairs) */
    int64_t row_tokens; /* T */
    const lathe_graph_api *api;
    lathe_graph *graph;
    /** [build] Log-probabilities f32[B*T] of the row's own next tokens under the policy or the
     *  reference; 0 where the token is no target. Asked twice, the same value comes back. ctx:
     *  the member below; valid until loss() returns. LATHE_E_ARG: no such model. */
    lathe_status (*logprobs)(void *ctx, int32_t model, lathe_val *out);
    void *ctx; /* of logprobs */
    /** LATHE_ROWS_PAIRS: f32[P], 1 for a pair of the batch and 0 for a padding pair. A batch
     *  that has fewer pairs than the graph is padded; loss and metrics must be multiplied by
     *  this mask before they are summed. LATHE_NONE for packed rows, whose padding has no
     *  targets. */
    lathe_val pair_mask;
    int32_t reserved; /* 0 */
} lathe_stage_build;
LATHE_ABI_SIZE(lathe_stage_build, 56);

/** What loss() returns. The loss is a SUM; the core divides once by the step's total count. */
typedef struct lathe_stage_loss {
    uint32_t size;
    int32_t n_metrics;
    lathe_val sum;      /* f32[] */
    int32_t count_unit; /* LATHE_COUNT_* */
    lathe_stage_metric metrics[LATHE_MAX_STAGE_METRICS];
} lathe_stage_loss;
LATHE_ABI_SIZE(lathe_stage_loss, 272);

enum { LATHE_COUNT_TOKENS = 0 /* targets that count */, LATHE_COUNT_PAIRS = 1 };

typedef struct lathe_stage_v1 {
    uint32_t size;
    uint32_t revision;
    const lathe_column *columns;
    int32_t n_columns;
    int32_t rows;      /* LATHE_ROWS_* */
    uint32_t needs;    /* LATHE_NEEDS_* */
    uint32_t reserved; /* 0 */
    /** [build] Adds the loss of one micro-batch to build->graph. Called on the rank's thread
     *  while a program is built, before the run; may be called again for another shape. Values
     *  of the graph are borrowed until it returns. */
    lathe_status (*loss)(void *self, const lathe_stage_build *build, lathe_stage_loss *out);
} lathe_stage_v1;
LATHE_ABI_SIZE(lathe_stage_v1, 40);

#endif

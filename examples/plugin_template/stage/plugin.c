/* @NAME@: next-token prediction.
 *
 *     loss = -sum_n log p(next token of n);  the core divides by the number of targets
 *
 * A stage declares the columns that it reads and builds its loss, with graph ops, from the
 * log-probabilities that the core provides. The core does batching, accumulation, clipping and the
 * optimizer step.
 */
#include <lathe/plugin.h>
#include <lathe/stage.h>

static const lathe_column columns[] = {
    {"text", 1, 0, "one document per row"},
};

static lathe_status loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const lathe_graph_api *const api = build->api;
    lathe_graph *const g = build->graph;
    const lathe_op_attrs minus = {.alpha = -1.0};
    lathe_val logp, total, negative;
    (void)self;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(api->node(g, LATHE_OP_SUM, NULL, &logp, 1, &total, 1, -1, "@NAME@.sum"));
    LATHE_TRY(api->node(g, LATHE_OP_SCALE, &minus, &total, 1, &negative, 1, -1, "@NAME@.loss"));
    out->sum = negative;
    out->count_unit = LATHE_COUNT_TOKENS;
    out->n_metrics = 0;
    return LATHE_OK;
}

static const lathe_stage_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_PACKED,
    .loss = loss,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER, .kind = LATHE_KIND_STAGE, .revision = LATHE_STAGE_REVISION,
    .name = "@NAME@",    .version = "0.1.0",       .summary = "next-token prediction",
    .source = "ours",    .license = "Apache-2.0",  .table = &table,
};

/* Pretraining: the negative log-likelihood of the next token over packed documents. */
#include "lathe/plugin.h"
#include "lathe/stage.h"

static const lathe_column columns[] = {
    {"text", 1, 0, "one document per row"},
};

/* sum = -sum_n log p(next token of n); the core divides by the number of targets. */
static lathe_status pretrain_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    (void)self;
    const lathe_graph_api *api = build->api;
    lathe_graph *g = build->graph;
    const lathe_op_attrs minus = {.alpha = -1.0};
    lathe_val logp, total, loss;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(api->node(g, LATHE_OP_SUM, NULL, &logp, 1, &total, 1, -1, "pretrain.sum"));
    LATHE_TRY(api->node(g, LATHE_OP_SCALE, &minus, &total, 1, &loss, 1, -1, "pretrain.loss"));
    out->sum = loss;
    out->count_unit = LATHE_COUNT_TOKENS;
    out->n_metrics = 0;
    return LATHE_OK;
}

static const lathe_stage_v1 table = {
    .size = sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = 1,
    .rows = LATHE_ROWS_PACKED,
    .loss = pretrain_loss,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .name = "pretrain",
    .version = "1.0.0",
    .summary = "next-token prediction over packed documents",
    .source = "ours",
    .license = "Apache-2.0",
    .table = &table,
};

/* ORPO: the loss of supervised fine-tuning on the chosen completion, and the log odds of chosen
 * against rejected. It needs no reference model. arXiv:2403.07691, equations 6 and 7.
 *
 *     m      = mean log-probability of a row's target tokens
 *     odds   = m - log(1 - exp(m))
 *     loss   = -m[chosen] - lambda * log sigmoid(odds[chosen] - odds[rejected]),   a sum over pairs
 *
 * The paper takes the first term over all tokens of the batch; here it is the mean of each pair,
 * like the second.
 */
#include <lathe/kit/expression.h>
#include <lathe/plugin.h>
#include <lathe/stage.h>

typedef struct orpo {
    const lathe_host *host;
    double lambda;
} orpo;

static const lathe_field fields[] = {
    {"lambda", LATHE_T_FLOAT, 0, "0.1", 0.0, 1000.0, NULL, NULL,
     "factor on the log of the odds ratio"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static const lathe_column columns[] = {
    {"prompt", 1, 0, "what both completions follow"},
    {"chosen", 1, 0, "the better completion"},
    {"rejected", 1, 0, "the worse completion"},
};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "orpo takes %d values, got %d", N_FIELDS, n_values);
    orpo *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of orpo");
    *self = (orpo){host, values[0].f};
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((orpo *)self)->host->free(self);
}

static lathe_val rows(lathe_expression *e, lathe_val x, int64_t start, int64_t count)
{
    const lathe_op_attrs attrs = {.start = start, .count = count};
    return lathe_expr_node(e, LATHE_OP_SLICE, &attrs, x, LATHE_NONE);
}

/* m, f32[rows]. A row without targets, of a padding pair, gets the upper bound: its odds are
 * finite, and it has no gradient. */
static lathe_val mean_logprob(lathe_expression *e, lathe_val logp, lathe_val mask,
                              int64_t row_tokens)
{
    const lathe_op_attrs per_row = {.count = row_tokens};
    lathe_val count = lathe_expr_node(e, LATHE_OP_ROW_SUM, &per_row, mask, LATHE_NONE);
    count = lathe_expr_two(e, LATHE_OP_MAX, count, lathe_expr_affine(e, 0.0, count, 1.0));
    const lathe_val sum = lathe_expr_node(e, LATHE_OP_ROW_SUM, &per_row, logp, LATHE_NONE);
    return lathe_expr_clamp(e, -1e30, lathe_expr_two(e, LATHE_OP_DIV, sum, count), -1e-6);
}

static void add_metric(lathe_expression *e, const char *name, lathe_val x, lathe_val mask,
                       lathe_stage_loss *out)
{
    out->metrics[out->n_metrics++] =
        (lathe_stage_metric){name, lathe_expr_weighted_sum(e, x, mask), 0};
}

static lathe_status loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const orpo *const o = self;
    const int32_t n = build->n_rows / 2;
    lathe_expression e = {build->api, build->graph, "orpo", LATHE_OK};
    lathe_val logp, mask;
    if (build->n_rows < 2 || build->n_rows % 2 != 0)
        return lathe_fail(o->host, LATHE_E_SHAPE, "orpo: %d rows; expected pairs", build->n_rows);
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(build->target_mask(build->ctx, &mask));
    const lathe_val m = mean_logprob(&e, logp, mask, build->row_tokens);
    const lathe_val rest = lathe_expr_affine(&e, -1.0, lathe_expr_one(&e, LATHE_OP_EXP, m), 1.0);
    const lathe_val odds =
        lathe_expr_two(&e, LATHE_OP_SUB, m, lathe_expr_one(&e, LATHE_OP_LOG, rest));
    const lathe_val chosen = rows(&e, odds, 0, n);
    const lathe_val ratio = lathe_expr_two(&e, LATHE_OP_SUB, chosen, rows(&e, odds, n, n));
    const lathe_val preference =
        lathe_expr_affine(&e, -o->lambda, lathe_expr_one(&e, LATHE_OP_LOGSIGMOID, ratio), 0.0);
    const lathe_val nll = lathe_expr_affine(&e, -1.0, rows(&e, m, 0, n), 0.0);
    const lathe_val losses = lathe_expr_two(&e, LATHE_OP_ADD, nll, preference);
    out->sum = lathe_expr_weighted_sum(&e, losses, build->record_mask);
    out->count_unit = LATHE_COUNT_PAIRS;
    out->n_metrics = 0;
    add_metric(&e, "nll", nll, build->record_mask, out);
    add_metric(&e, "log_odds_ratio", ratio, build->record_mask, out);
    const lathe_val zero = lathe_expr_affine(&e, 0.0, ratio, 0.0);
    add_metric(&e, "accuracies", lathe_expr_two(&e, LATHE_OP_LESS, zero, ratio), build->record_mask,
               out);
    return e.status;
}

static const lathe_stage_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_PAIRS,
    .loss = loss,
    .headline = "accuracies",
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "orpo",
    .version = "0.1.0",
    .summary = "odds ratio preference optimization on chosen and rejected completions",
    .source = "arXiv:2403.07691",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

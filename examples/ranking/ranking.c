/* Learns a ranking of three answers to each prompt, best first: the Plackett-Luce likelihood of the
 * ranking, from arXiv:2305.18290, equation 18, with mean log-probabilities as scores, so that no
 * reference model is needed.
 *
 *     s[k]   = beta * mean log-probability of the tokens of answer k
 *     loss   = -sum over k of log(exp(s[k]) / sum over j >= k of exp(s[j])),   a sum over records
 *
 * The rows of a record are data of this table (rows, n_answers): the core reads, batches, shuffles,
 * divides and resumes them without knowing this stage. With another ANSWERS it ranks that many.
 */
#include <lathe/kit/expression.h>
#include <lathe/plugin.h>
#include <lathe/stage.h>

enum { ANSWERS = 3 };

typedef struct ranking {
    const lathe_host *host;
    double beta;
} ranking;

static const lathe_field fields[] = {
    {"beta", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1.0", 0.0, 1000.0, NULL, NULL,
     "factor of the mean log-probabilities"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static const lathe_column columns[] = {
    {"prompt", 0, 0, "what all answers follow"},
    {"completions", 1, 0, "a list of three answers, the best first"},
};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "ranking takes %d values, got %d", N_FIELDS, n_values);
    ranking *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of ranking");
    *self = (ranking){host, values[0].f};
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((ranking *)self)->host->free(self);
}

/* beta times the mean log-probability of each row's targets, f32[rows]; 0 in padding. */
static lathe_val scores(lathe_expression *e, double beta, lathe_val logp, lathe_val mask,
                        int64_t row_tokens)
{
    const lathe_op_attrs per_row = {.count = row_tokens};
    lathe_val count = lathe_expr_node(e, LATHE_OP_ROW_SUM, &per_row, mask, LATHE_NONE);
    const lathe_val one = lathe_expr_affine(e, 0.0, count, 1.0);
    count = lathe_expr_two(e, LATHE_OP_MAX, count, one);
    const lathe_val sum = lathe_expr_node(e, LATHE_OP_ROW_SUM, &per_row, logp, LATHE_NONE);
    return lathe_expr_affine(e, beta, lathe_expr_two(e, LATHE_OP_DIV, sum, count), 0.0);
}

static lathe_status loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const ranking *const r = self;
    const int64_t n = build->n_rows / ANSWERS; /* records */
    lathe_expression e = {build->api, build->graph, "ranking", LATHE_OK};
    lathe_val logp, mask, s[ANSWERS], losses = LATHE_NONE;
    if (build->n_rows < ANSWERS || build->n_rows % ANSWERS != 0)
        return lathe_fail(r->host, LATHE_E_SHAPE, "ranking: %d rows; expected %d of each record",
                          build->n_rows, ANSWERS);
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(build->target_mask(build->ctx, &mask));
    const lathe_val all = scores(&e, r->beta, logp, mask, build->row_tokens);
    for (int64_t k = 0; k < ANSWERS; k++) {
        const lathe_op_attrs rows = {.start = k * n, .count = n};
        s[k] = lathe_expr_node(&e, LATHE_OP_SLICE, &rows, all, LATHE_NONE);
    }
    lathe_val rest =
        lathe_expr_one(&e, LATHE_OP_EXP, s[ANSWERS - 1]); /* of the answers from k on */
    for (int k = ANSWERS - 2; k >= 0; k--) {
        rest = lathe_expr_two(&e, LATHE_OP_ADD, lathe_expr_one(&e, LATHE_OP_EXP, s[k]), rest);
        const lathe_val log_rest = lathe_expr_one(&e, LATHE_OP_LOG, rest);
        const lathe_val term = lathe_expr_two(&e, LATHE_OP_SUB, log_rest, s[k]);
        losses = losses == LATHE_NONE ? term : lathe_expr_two(&e, LATHE_OP_ADD, losses, term);
    }
    const lathe_val is_best = lathe_expr_two(&e, LATHE_OP_LESS, s[1], s[0]);
    out->sum = lathe_expr_weighted_sum(&e, losses, build->record_mask);
    out->count_unit = LATHE_COUNT_EXAMPLES;
    out->n_metrics = 1;
    out->metrics[0] = (lathe_stage_metric){
        "first_over_second", lathe_expr_weighted_sum(&e, is_best, build->record_mask), 0};
    return e.status;
}

static const lathe_stage_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_GROUPS,
    .n_answers = ANSWERS,
    .loss = loss,
    .headline = "first_over_second",
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "ranking",
    .version = "0.1.0",
    .summary = "the likelihood of a ranking of three answers",
    .source = "arXiv:2305.18290, equation 18",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

/* Pretraining on packed documents: the negative log-likelihood of the next token, of the tokens
 * after a prefix, or of masked tokens.
 *
 *   causal   sum of -log p(token t+1 | tokens <= t)
 *   prefix   the same for the tokens after a prefix, whose tokens see each other (arXiv:1910.10683)
 *   masked   sum of -log p(token t | the document with some tokens replaced), t chosen at random
 *                                                                            (arXiv:1810.04805)
 *
 * The core makes the rows of the objective and bounds the attention, so the loss is the same sum of
 * log-probabilities for all.
 */
#include <string.h>

#include "lathe/plugin.h"
#include "lathe/stage.h"

typedef struct pretrain {
    const lathe_host *host;
    lathe_objective objective;
} pretrain;

enum {
    FIELD_OBJECTIVE,
    FIELD_PREFIX_FRACTION,
    FIELD_MASK_PROBABILITY,
    FIELD_MASK_SHARE,
    FIELD_RANDOM_SHARE,
    FIELD_MASK_TOKEN,
    N_FIELDS
};

#define OPEN_RANGE (LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_MAX_EXCLUSIVE)

static const lathe_field fields[N_FIELDS] = {
    LATHE_FIELD_STRING("objective", "\"causal\"", "causal|prefix|masked",
                       "causal: the next token; prefix: the tokens after a prefix, whose tokens "
                       "see each other; masked: tokens that are hidden, from both sides"),
    {"prefix_fraction", LATHE_T_FLOAT, OPEN_RANGE, NULL, 0.0, 1.0, NULL, "1",
     "prefix: share of each document that is its prefix; unset: its length is drawn for each "
     "document, uniform from one token to all but one"},
    {"mask_probability", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.15", 0.0, 1.0, NULL, "1",
     "masked: probability of each token to be a target; special tokens never are"},
    LATHE_FIELD_FLOAT("mask_share", "0.8", 0.0, 1.0, "1",
                      "masked: share of the targets that become the mask token"),
    LATHE_FIELD_FLOAT("random_share", "0.1", 0.0, 1.0, "1",
                      "masked: share of the targets that become a random token; the rest stays as "
                      "it is"),
    LATHE_FIELD_STRING("mask_token", NULL, NULL,
                       "masked: text of the mask token; unset: mask_token of the tokenizer"),
};

static const lathe_column columns[] = {
    {"text", 1, 0, "one document per row"},
};

/* By LATHE_OBJECTIVE_*. */
static const char *const objective_names[LATHE_N_OBJECTIVES] = {"causal", "prefix", "masked"};

/* The objective that a field belongs to. */
static int32_t objective_of_field(int32_t field)
{
    return field == FIELD_PREFIX_FRACTION ? LATHE_OBJECTIVE_PREFIX : LATHE_OBJECTIVE_MASKED;
}

/* Refuses settings of another objective, and shares that are more than all. */
static lathe_status check_values(const lathe_host *host, const lathe_value *values, int32_t kind)
{
    for (int32_t i = FIELD_OBJECTIVE + 1; i < N_FIELDS; i++)
        if (values[i].is_explicit && objective_of_field(i) != kind)
            return lathe_fail_at(host, LATHE_E_CONFIG, fields[i].key,
                                 "%s has no meaning for objective \"%s\"; leave it out, or "
                                 "use \"%s\"",
                                 fields[i].key, objective_names[kind],
                                 objective_names[objective_of_field(i)]);
    if (values[FIELD_MASK_SHARE].f + values[FIELD_RANDOM_SHARE].f > 1.0 + 1e-9)
        return lathe_fail_at(host, LATHE_E_CONFIG, "mask_share",
                             "mask_share is %g and random_share %g; together they may be 1 "
                             "at most",
                             values[FIELD_MASK_SHARE].f, values[FIELD_RANDOM_SHARE].f);
    if (values[FIELD_MASK_TOKEN].is_set && values[FIELD_MASK_TOKEN].s[0] == '\0')
        return lathe_fail_at(host, LATHE_E_CONFIG, "mask_token",
                             "mask_token is empty; expected the text of a token");
    return LATHE_OK;
}

static lathe_status pretrain_create(const lathe_host *host, const lathe_value *values,
                                    int32_t n_values, void **out_self)
{
    int32_t kind = 0;
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    while (kind < LATHE_N_OBJECTIVES &&
           strcmp(objective_names[kind], values[FIELD_OBJECTIVE].s) != 0)
        kind++;
    if (kind == LATHE_N_OBJECTIVES)
        return lathe_fail_at(host, LATHE_E_CONFIG, "objective", "no objective \"%s\"",
                             values[FIELD_OBJECTIVE].s);
    LATHE_TRY(check_values(host, values, kind));
    pretrain *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    const lathe_value *prefix = &values[FIELD_PREFIX_FRACTION], *mask = &values[FIELD_MASK_TOKEN];
    *self = (pretrain){.host = host,
                       .objective = {.size = (uint32_t)sizeof self->objective,
                                     .kind = kind,
                                     .prefix_fraction = prefix->is_set ? prefix->f : 0.0,
                                     .mask_probability = values[FIELD_MASK_PROBABILITY].f,
                                     .mask_share = values[FIELD_MASK_SHARE].f,
                                     .random_share = values[FIELD_RANDOM_SHARE].f,
                                     .mask_token = mask->is_set ? mask->s : NULL}};
    *out_self = self;
    return LATHE_OK;
}

static void pretrain_destroy(void *self)
{
    if (self != NULL)
        ((pretrain *)self)->host->free(self);
}

static void pretrain_objective(void *self, lathe_objective *out)
{
    *out = ((const pretrain *)self)->objective;
}

/* sum = -sum_n log p(target n); the core divides by the number of targets. */
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
    .objective = pretrain_objective,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "pretrain",
    .version = "1.0.0",
    .summary = "prediction of next, suffix or masked tokens over packed documents",
    .source = "ours; prefix: arXiv:1910.10683; masked: arXiv:1810.04805",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = pretrain_create,
    .destroy = pretrain_destroy,
};

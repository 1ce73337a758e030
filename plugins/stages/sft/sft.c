/* Supervised fine-tuning: the negative log-likelihood of completions after their prompts.
 *
 * p_n is the probability of target n, a token of a completion. Each target adds
 *
 *   nll   -log p_n
 *   dft   -p_n log p_n, where the factor p_n has no gradient   (arXiv:2508.05629, eq. 9)
 *
 * With neftune_noise_alpha = a > 0, training adds to each number of the token embeddings a uniform
 * one from [-a/sqrt(T C), a/sqrt(T C)), T: tokens of a row, C: width   (arXiv:2310.05914)
 */
#include <math.h>
#include <string.h>

#include "lathe/plugin.h"
#include "lathe/stage.h"

enum { LOSS_NLL, LOSS_DFT, N_LOSSES };
static const char *const loss_names[N_LOSSES] = {"nll", "dft"};

typedef struct sft {
    const lathe_host *host;
    int loss_type;
    double noise_alpha;
} sft;

enum { FIELD_LOSS_TYPE, FIELD_NOISE_ALPHA, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    LATHE_FIELD_STRING("loss_type", "\"nll\"", "nll|dft",
                       "nll: negative log-likelihood; dft: the same times the token's probability"),
    {"neftune_noise_alpha", LATHE_T_FLOAT, 0, "0.0", 0.0, 1000.0, NULL, "1",
     "NEFTune: training adds uniform noise of up to this / sqrt(seq_len * hidden width) to the "
     "token embeddings; 0: none, the paper uses 5 to 15"},
};

static const lathe_column columns[] = {
    {"prompt", 0, 0, "the text to answer; its tokens are not learnt"},
    {"completion", 1, 0, "the answer"},
};

static lathe_status sft_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                               void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    int type = 0;
    while (type < N_LOSSES && strcmp(loss_names[type], values[FIELD_LOSS_TYPE].s) != 0)
        type++;
    if (type == N_LOSSES)
        return lathe_fail_at(host, LATHE_E_CONFIG, "loss_type", "no loss_type \"%s\"",
                             values[FIELD_LOSS_TYPE].s);
    sft *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    *self = (sft){.host = host, .loss_type = type, .noise_alpha = values[FIELD_NOISE_ALPHA].f};
    *out_self = self;
    return LATHE_OK;
}

static void sft_destroy(void *self)
{
    if (self != NULL)
        ((sft *)self)->host->free(self);
}

/* Multiplies logp f32[B*T] by its own probability, which gets no gradient. A logp of 0 (not a
 * target) stays 0. */
static lathe_status weigh_by_probability(const lathe_stage_build *build, lathe_val logp,
                                         lathe_val *out)
{
    const lathe_graph_api *api = build->api;
    lathe_val constant, in[2] = {logp, LATHE_NONE};
    LATHE_TRY(api->detach(build->graph, logp, &constant));
    LATHE_TRY(api->node(build->graph, LATHE_OP_EXP, NULL, &constant, 1, &in[1], 1, -1,
                        "sft.probability"));
    return api->node(build->graph, LATHE_OP_MUL, NULL, in, 2, out, 1, -1, "sft.weighted");
}

static lathe_status sft_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const sft *s = self;
    const lathe_graph_api *api = build->api;
    const lathe_op_attrs minus = {.alpha = -1.0};
    lathe_val logp, total;
    if (s->noise_alpha > 0.0)
        LATHE_TRY(build->embedding_noise(
            build->ctx, s->noise_alpha / sqrt((double)build->row_tokens * (double)build->width)));
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    if (s->loss_type == LOSS_DFT)
        LATHE_TRY(weigh_by_probability(build, logp, &logp));
    LATHE_TRY(api->node(build->graph, LATHE_OP_SUM, NULL, &logp, 1, &total, 1, -1, "sft.sum"));
    LATHE_TRY(
        api->node(build->graph, LATHE_OP_SCALE, &minus, &total, 1, &out->sum, 1, -1, "sft.loss"));
    out->count_unit = LATHE_COUNT_TOKENS;
    out->n_metrics = 0;
    return LATHE_OK;
}

static const lathe_stage_v1 table = {
    .size = sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_COMPLETIONS,
    .loss = sft_loss,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "sft",
    .version = "1.0.0",
    .summary = "supervised fine-tuning on completions of prompts",
    .source = "ours; dft: arXiv:2508.05629; NEFTune: arXiv:2310.05914",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = sft_create,
    .destroy = sft_destroy,
};

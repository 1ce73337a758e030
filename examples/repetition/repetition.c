/* Repetition: minus the share of n-grams of tokens that occurred before in the same completion.
 *
 * Source  the idea of the repetition penalty of "Demystifying Long Chain-of-Thought Reasoning in
 * LLMs" (arXiv:2502.03373), on the whole completion.
 */
#include <string.h>

#include <lathe/plugin.h>
#include <lathe/reward.h>

typedef struct repetition {
    const lathe_host *host;
    int64_t n;
    double max;
} repetition;

static const lathe_field fields[] = {
    {"n", LATHE_T_INT, 0, "3", 1, 100, NULL, "tokens", "length of the n-grams"},
    {"most", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1.0", 0.0, 1e6, NULL, "1",
     "punishment of a completion that only repeats itself"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "repetition takes %d values, got %d", N_FIELDS,
                          n_values);
    repetition *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of repetition");
    *self = (repetition){host, values[0].i, values[1].f};
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((repetition *)self)->host->free(self);
}

static double score_one(const repetition *x, const lathe_reward_item *item)
{
    const int64_t n_grams = item->n_tokens - x->n + 1;
    const size_t bytes = (size_t)x->n * sizeof *item->tokens;
    int64_t repeated = 0;
    for (int64_t i = 1; i < n_grams; i++)
        for (int64_t k = 0; k < i; k++)
            if (memcmp(item->tokens + i, item->tokens + k, bytes) == 0) {
                repeated++;
                break;
            }
    return repeated > 0 ? -x->max * (double)repeated / (double)n_grams : 0.0;
}

static lathe_status score(void *self, const lathe_reward_item *items, int32_t n, double *out)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = score_one(self, &items[i]);
    return LATHE_OK;
}

static const lathe_reward_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_REWARD_REVISION,
    .score = score,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_REWARD,
    .revision = LATHE_REWARD_REVISION,
    .n_fields = N_FIELDS,
    .name = "repetition",
    .version = "0.1.0",
    .summary = "minus the share of repeated n-grams",
    .source = "after arXiv:2502.03373",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

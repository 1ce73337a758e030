/* A reward for the length of a completion in tokens, n; L: tokens, b: buffer_tokens.
 *
 *   overlong   0 if n <= L - b;  (L - b - n) / b if L - b < n <= L;  -1 if n > L
 *   target     -min(1, |n - L| / L)
 *
 * Source  overlong: soft overlong punishment of DAPO (arXiv:2503.14476, eq. 13); target: ours.
 */
#include "lathe/reward.h"

#include <math.h>

#include "lathe/kit/instance.h"

#define RULES "overlong|target"

enum { RULE_OVERLONG, RULE_TARGET };

typedef struct length {
    const lathe_host *host;
    int32_t rule;
    double tokens, buffer;
} length;

enum { FIELD_TOKENS, FIELD_RULE, FIELD_BUFFER };

static const lathe_field fields[] = {
    {"tokens", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 1e9, NULL, "tokens",
     "overlong: the longest completion that is not punished in full; target: the wanted length"},
    LATHE_FIELD_STRING("rule", "\"overlong\"", RULES,
                       "overlong: 0, falling to -1 over the last buffer_tokens before `tokens`; "
                       "target: 0 at `tokens`, falling to -1 on both sides"),
    LATHE_FIELD_INT("buffer_tokens", "0", 0, 1e9, "tokens",
                    "overlong: length over which the punishment grows; 0: -1 at once"),
};

static lathe_status length_read(const lathe_host *host, length *out, const lathe_value *values)
{
    out->rule = lathe_choice(RULES, values[FIELD_RULE].s);
    out->tokens = (double)values[FIELD_TOKENS].i;
    out->buffer = (double)values[FIELD_BUFFER].i;
    if (out->rule == RULE_TARGET && values[FIELD_BUFFER].is_explicit)
        return lathe_fail_at(host, LATHE_E_CONFIG, "buffer_tokens",
                             "buffer_tokens has no effect with rule = \"target\": take it out");
    if (out->buffer > out->tokens)
        return lathe_fail_at(host, LATHE_E_CONFIG, "buffer_tokens",
                             "buffer_tokens is %.0f, expected at most tokens = %.0f", out->buffer,
                             out->tokens);
    return LATHE_OK;
}

static double overlong(double n, double max, double buffer)
{
    if (n <= max - buffer)
        return 0.0;
    return n <= max ? (max - buffer - n) / buffer : -1.0;
}

static lathe_status length_score(void *self, const lathe_reward_item *items, int32_t n, double *out)
{
    const length *x = self;
    for (int32_t i = 0; i < n; i++) {
        const double tokens = (double)items[i].n_tokens;
        out[i] = x->rule == RULE_OVERLONG ? overlong(tokens, x->tokens, x->buffer)
                                          : 0.0 - fmin(1.0, fabs(tokens - x->tokens) / x->tokens);
    }
    return LATHE_OK;
}

LATHE_INSTANCE(length, length_read)

static const lathe_reward_v1 length_table = {
    .size = (uint32_t)sizeof length_table,
    .revision = LATHE_REWARD_REVISION,
    .score = length_score,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(length),
    .kind = LATHE_KIND_REWARD,
    .revision = LATHE_REWARD_REVISION,
    .version = "1.0.0",
    .summary = "length of a completion: soft punishment of overlong ones, or a target",
    .source = "arXiv:2503.14476 (overlong); ours (target)",
    .license = "Apache-2.0",
};

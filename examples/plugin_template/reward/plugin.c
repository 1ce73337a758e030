/* @NAME@: a point for each time that a word occurs in a completion. Replace this line and score().
 *
 * score() runs on a thread of its own, so it may be slow, allocate, and do input and output; but
 * the same completions must give the same scores.
 */
#include <string.h>

#include <lathe/plugin.h>
#include <lathe/reward.h>

typedef struct instance {
    const lathe_host *host;
    const char *word; /* borrowed: values live as long as the instance */
    double points;
} instance;

static const lathe_field fields[] = {
    {"word", LATHE_T_STRING, 0, "\"please\"", LATHE_NO_RANGE, NULL, NULL, "word to count"},
    {"points", LATHE_T_FLOAT, 0, "1.0", -1e6, 1e6, NULL, "1", "score of each time"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "@NAME@ takes %d values, got %d", N_FIELDS, n_values);
    if (values[0].s[0] == '\0')
        return lathe_fail_at(host, LATHE_E_CONFIG, "word", "word is empty");
    instance *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of @NAME@");
    *self = (instance){host, values[0].s, values[1].f};
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

/* Texts may contain NULs, so they are searched by their sizes. items[i].record is the data's record
 * as JSON. */
static lathe_status score(void *self, const lathe_reward_item *items, int32_t n, double *out)
{
    const instance *const x = self;
    const int64_t length = (int64_t)strlen(x->word);
    for (int32_t i = 0; i < n; i++) {
        int64_t found = 0;
        for (int64_t at = 0; at + length <= items[i].completion_bytes; at++)
            found += memcmp(items[i].completion + at, x->word, (size_t)length) == 0;
        out[i] = x->points * (double)found;
    }
    return LATHE_OK;
}

static const lathe_reward_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_REWARD_REVISION,
    .score = score,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,        .kind = LATHE_KIND_REWARD, .revision = LATHE_REWARD_REVISION,
    .n_fields = N_FIELDS,       .name = "@NAME@",          .version = "0.1.0",
    .summary = "counts a word", .source = "ours",          .license = "Apache-2.0",
    .fields = fields,           .table = &table,           .create = create,
    .destroy = destroy,
};

/* An attention backend with the highest score whose results are not repeatable; it says so when
 * asked for repeatable bits. Runs plan with it but never execute it. */
#include <stdio.h>

#include "lathe/attention.h"
#include "lathe/plugin.h"

static int32_t score(void *self, const lathe_attention_problem *p, char *why, int64_t why_bytes)
{
    const int refuses = (p->flags & LATHE_FLAG_DETERMINISTIC) != 0;
    (void)self;
    (void)snprintf(why, (size_t)why_bytes, "%s",
                   refuses ? "adds in the order in which threads arrive" : "fast");
    return refuses ? LATHE_SCORE_NO : 1000;
}

static int64_t scratch(void *self, const lathe_attention_problem *p)
{
    (void)self, (void)p;
    return 0;
}

static lathe_status run(void *self, const lathe_attention_problem *p, const lathe_attention_args *a)
{
    (void)self, (void)p, (void)a;
    return LATHE_E_UNSUPPORTED;
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    static char instance;
    (void)host, (void)values, (void)n_values;
    *out_self = &instance;
    return LATHE_OK;
}

static void destroy(void *self)
{
    (void)self;
}

static const lathe_attention_v1 table = {.size = (uint32_t)sizeof table,
                                         .revision = LATHE_ATTENTION_REVISION,
                                         .score = score,
                                         .forward_scratch = scratch,
                                         .backward_scratch = scratch,
                                         .forward = run,
                                         .backward = run};

const lathe_plugin LATHE_PLUGIN_ENTRY = {LATHE_PLUGIN_HEADER,
                                         .kind = LATHE_KIND_ATTENTION,
                                         .revision = LATHE_ATTENTION_REVISION,
                                         .name = "unordered",
                                         .version = "1.0.0",
                                         .summary = "not repeatable",
                                         .source = "ours, for tests",
                                         .license = "Apache-2.0",
                                         .table = &table,
                                         .create = create,
                                         .destroy = destroy};

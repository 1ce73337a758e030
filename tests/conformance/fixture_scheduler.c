/* A schedule that breaks one rule, chosen by FAULT. */
#include <stddef.h>

#include "lathe/plugin.h"
#include "lathe/scheduler.h"

enum {
    FAULT_IMPURE,      /* the rate falls at each call */
    FAULT_HIDDEN_STATE /* keeps its observations in the program, not in the state */
};

static double hidden = 1.0;

static double at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    (void)self, (void)step, (void)total, (void)state;
    if (FAULT == FAULT_IMPURE)
        hidden *= 0.999;
    return base_lr * hidden;
}

static void observe(void *self, double metric, double base_lr, double *state)
{
    (void)self, (void)base_lr, (void)state;
    if (metric < 3.0)
        hidden *= 0.99;
}

static const lathe_scheduler_v1 table = {
    .size = sizeof table,
    .revision = LATHE_SCHEDULER_REVISION,
    .at = at,
    .observe = observe,
};

LATHE_EXPORT const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_SCHEDULER,
    .revision = LATHE_SCHEDULER_REVISION,
    .name = FIXTURE_NAME,
    .version = "0.1.0",
    .summary = "a fixture",
    .source = "ours",
    .license = "MIT",
    .table = &table,
};

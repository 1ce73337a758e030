/* @NAME@: a constant learning rate after a linear warm-up.
 *
 *     t < w: lr*(t + 1)/w        then: lr            t: optimizer step, 0 first
 *
 * at() is a pure function of the step. A schedule that reacts to the evaluation loss declares a few
 * doubles with n_state and init, and changes them in observe; the core checkpoints them.
 */
#include <lathe/plugin.h>
#include <lathe/scheduler.h>

typedef struct instance {
    const lathe_host *host;
    int64_t warmup_steps;
} instance;

static const lathe_field fields[] = {
    {"warmup_steps", LATHE_T_INT, 0, "0", 0, 1e15, NULL, "steps", "steps of linear warm-up"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "@NAME@ takes %d values, got %d", N_FIELDS, n_values);
    instance *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of @NAME@");
    *self = (instance){host, values[0].i};
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

/* Before the run: does the schedule fit its length? total_steps 0: not known. */
static lathe_status check(void *self, int64_t total_steps)
{
    const instance *const x = self;
    if (total_steps > 0 && x->warmup_steps > total_steps)
        return lathe_fail_at(x->host, LATHE_E_CONFIG, "warmup_steps",
                             "warmup_steps is %lld, the run has %lld steps",
                             (long long)x->warmup_steps, (long long)total_steps);
    return LATHE_OK;
}

static double at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    const instance *const x = self;
    (void)total, (void)state;
    if (step < x->warmup_steps)
        return base_lr * (double)(step + 1) / (double)x->warmup_steps;
    return base_lr;
}

static const lathe_scheduler_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_SCHEDULER_REVISION,
    .check = check,
    .at = at,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_SCHEDULER,
    .revision = LATHE_SCHEDULER_REVISION,
    .n_fields = N_FIELDS,
    .name = "@NAME@",
    .version = "0.1.0",
    .summary = "constant after a linear warm-up",
    .source = "ours",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

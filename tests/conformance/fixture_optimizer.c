/* Plain gradient descent with a momentum slot. It breaks one rule, chosen by FAULT. */
#include <math.h>
#include <stdlib.h>

#include "lathe/optimizer.h"
#include "lathe/plugin.h"

enum {
    FAULT_NONE,
    FAULT_CRASH,        /* step() reads through a null pointer */
    FAULT_ALLOCATES,    /* step() allocates memory */
    FAULT_HIDDEN_STATE, /* the instance keeps what belongs in a slot */
    FAULT_PARTITION,    /* the update depends on where the range begins */
    FAULT_OVERRUN,      /* writes one element too many */
    FAULT_NOT_FINITE,   /* divides by zero */
    FAULT_THREADS       /* the update depends on the number of workers */
};

typedef struct instance {
    const lathe_host *host;
    double lr;
    int64_t steps;
} instance;

static const lathe_field fields[] = {
    {"lr", LATHE_T_FLOAT, 0, "0.1", 0, 10, NULL, "1", "learning rate"},
};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    instance *x = host->alloc((int64_t)sizeof *x);
    if (x == NULL || n_values != 1)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory");
    *x = (instance){host, values[0].f, 0};
    *out_self = x;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self;
    out[0] = (lathe_slot){"momentum", param->desc};
    return 1;
}

static double base_lr(void *self)
{
    return ((instance *)self)->lr;
}

static float fault_factor(const instance *x, const lathe_optimizer_tensor *t, int64_t i)
{
    if (FAULT == FAULT_HIDDEN_STATE)
        return 1.0f / (float)x->steps;
    if (FAULT == FAULT_PARTITION)
        return i == 0 ? 2.0f : 1.0f;
    if (FAULT == FAULT_NOT_FINITE)
        return t->first + i == 1 ? INFINITY : 1.0f;
    if (FAULT == FAULT_THREADS)
        return 1.0f + 0.125f * (float)x->host->n_threads();
    return 1.0f;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    instance *x = self;
    x->steps++;
    if (FAULT == FAULT_CRASH) {
        volatile int *nowhere = NULL;
        *nowhere = 1;
    }
    if (FAULT == FAULT_ALLOCATES)
        x->host->free(x->host->alloc(64));
    for (int32_t k = 0; k < s->n_tensors; k++) {
        const lathe_optimizer_tensor *t = &s->tensors[k];
        float *m = t->slots[0];
        for (int64_t i = 0; i < t->n; i++) {
            m[i] = 0.9f * m[i] + t->grad[i] * s->scalars[LATHE_SCALAR_GRAD_SCALE];
            t->param[i] -=
                s->scalars[LATHE_SCALAR_LR] * (float)t->lr_mult * m[i] * fault_factor(x, t, i);
            if (t->shadow != NULL)
                t->shadow[i] = t->shadow_dtype == LATHE_F16 ? lathe_f32_to_f16(t->param[i])
                                                            : lathe_f32_to_bf16(t->param[i]);
        }
        if (FAULT == FAULT_OVERRUN)
            t->param[t->n] = 0.0f;
    }
    return LATHE_OK;
}

static const lathe_optimizer_v1 table = {
    .size = sizeof table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .base_lr = base_lr,
    .step = step,
};

LATHE_EXPORT const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_OPTIMIZER,
    .revision = LATHE_OPTIMIZER_REVISION,
    .n_fields = 1,
    .name = FIXTURE_NAME,
    .version = "0.1.0",
    .summary = "a fixture",
    .source = "ours",
    .license = "MIT",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

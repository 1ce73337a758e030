/* @NAME@: stochastic gradient descent with momentum, one element at a time.
 *
 *     g += wd*p;  m = mu*m + g;  p -= lr*m          (nesterov: p -= lr*(g + mu*m))
 *
 * The functions in the first part are C and CUDA at once: LATHE_ELEMENTWISE makes the vectorised CPU
 * loop of them here and, where nvcc is found, a kernel that travels inside the .so. Rules for them are
 * at the top of lathe/elementwise.h. Replace the formula, the state and the fields with yours.
 */
#include <lathe/elementwise.h>

/* What scalars() hands to every element, at LATHE_SCALAR_USER + k. */
enum { MOMENTUM, WEIGHT_DECAY, NESTEROV };

typedef struct update_uniform {
    float lr, momentum, weight_decay, nesterov;
} update_uniform;

LATHE_HD static inline update_uniform update_prepare(const float *scalars, float lr_mult,
                                                     float weight_decay_mult)
{
    const float *const user = scalars + LATHE_SCALAR_USER;
    update_uniform u;
    u.lr = scalars[LATHE_SCALAR_LR] * lr_mult;
    u.momentum = user[MOMENTUM];
    u.weight_decay = user[WEIGHT_DECAY] * weight_decay_mult;
    u.nesterov = user[NESTEROV];
    return u;
}

/* g is averaged and clipped already; s[0] is this element's momentum. Returns the new parameter. */
LATHE_HD static inline float update_element(const update_uniform *u, float p, float g, float *s,
                                            const lathe_element *at)
{
    (void)at;
    g = fmaf(u->weight_decay, p, g);
    s[0] = fmaf(u->momentum, s[0], g);
    const float direction = u->nesterov != 0.0f ? fmaf(u->momentum, s[0], g) : s[0];
    return fmaf(-u->lr, direction, p);
}

LATHE_ELEMENTWISE(update, 1)

#ifndef __CUDACC__

#include <lathe/plugin.h>

typedef struct instance {
    const lathe_host *host;
    double lr, momentum, weight_decay;
    int nesterov;
} instance;

/* The keys of [optimizer] in a run's TOML file. The core parses and checks them; create() gets the
 * values in this order. */
static const lathe_field fields[] = {
    {"lr", LATHE_T_FLOAT, 0, "0.01", 0, 1e3, NULL, "1", "learning rate that schedules multiply"},
    {"momentum", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.9", 0, 1, NULL, "1",
     "share of the last direction that is kept"},
    {"weight_decay", LATHE_T_FLOAT, 0, "0.0", 0, 1e3, NULL, "1",
     "L2 penalty, part of the gradient"},
    {"nesterov", LATHE_T_BOOL, 0, "false", LATHE_NO_RANGE, NULL, NULL,
     "look ahead by one momentum"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "@NAME@ takes %d values, got %d", N_FIELDS, n_values);
    if (values[3].i && !(values[1].f > 0.0)) /* a rule across fields, which no schema can state */
        return lathe_fail(host, LATHE_E_CONFIG, "nesterov needs momentum above 0, it is %g",
                          values[1].f);
    instance *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of @NAME@");
    *self = (instance){host, values[0].f, values[1].f, values[2].f, values[3].i != 0};
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

/* The state of a parameter: the core allocates it, zeroed, shards and checkpoints it. */
static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self;
    out[0].name = "momentum_buffer";
    out[0].desc = param->desc;
    out[0].desc.dtype = LATHE_F32;
    return 1;
}

static double base_lr(void *self)
{
    return ((const instance *)self)->lr;
}

/* Before each step, on the host, in double: what all elements need and what depends on the step. */
static void scalars(void *self, int64_t step, double *out)
{
    const instance *const x = self;
    (void)step;
    out[MOMENTUM] = x->momentum;
    out[WEIGHT_DECAY] = x->weight_decay;
    out[NESTEROV] = x->nesterov ? 1.0 : 0.0;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_elementwise_run(((const instance *)self)->host, s, 1, update_chunk);
}

static const lathe_optimizer_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .base_lr = base_lr,
    .scalars = scalars,
    .step = step,
    .cuda_image = LATHE_CUDA_IMAGE,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_OPTIMIZER,
    .revision = LATHE_OPTIMIZER_REVISION,
    .n_fields = N_FIELDS,
    .name = "@NAME@",
    .version = "0.1.0",
    .summary = "gradient descent with momentum",
    .source = "torch.optim.SGD",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

#endif

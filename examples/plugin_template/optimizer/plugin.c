/* @NAME@: stochastic gradient descent with momentum, one element at a time.
 *
 *     g += wd*p;  m = mu*m + g;  p -= lr*m          (nesterov: p -= lr*(g + mu*m))
 *
 * The functions in the first part are both C and CUDA: LATHE_ELEMENTWISE makes a vectorised CPU
 * loop from them and, if nvcc is found, a kernel that is embedded in the .so. The rules for these
 * functions are at the top of lathe/kit/elementwise.h. Replace the formula, the state and the
 * fields with yours. A small change of AdamW begins with lathe/kit/adamw_family.h instead.
 */
#include <lathe/kit/elementwise.h>

/* The values that @NAME@_scalars() passes to every element, as u->user[]. */
enum { MOMENTUM, NESTEROV, DECAY };

LATHE_UNIFORM(@NAME@, DECAY)

/* g is averaged and clipped already; s[0] is this element's momentum. Returns the new parameter. */
LATHE_HD static inline float @NAME@_element(const @NAME@_uniform *u, float p, float g, float *s,
                                            const lathe_element *at)
{
    (void)at;
    g = fmaf(u->decay, p, g);
    s[0] = fmaf(u->user[MOMENTUM], s[0], g);
    const float direction = u->user[NESTEROV] != 0.0f ? fmaf(u->user[MOMENTUM], s[0], g) : s[0];
    return fmaf(-u->lr, direction, p);
}

LATHE_ELEMENTWISE(@NAME@, 1)

#ifndef __CUDACC__

#include <lathe/kit/optimizer_kit.h>

typedef struct @NAME@ {
    lathe_optimizer_common common; /* the host and the base rate */
    double momentum, weight_decay;
    int32_t nesterov, reserved;
} @NAME@;

/* The keys of [optimizer] in a run's TOML file. The core parses and checks them, and passes the
 * values to @NAME@_read() in this order. */
enum { FIELD_LR, FIELD_MOMENTUM, FIELD_WEIGHT_DECAY, FIELD_NESTEROV };

static const lathe_field fields[] = {
    LATHE_LR_FIELD("0.01"),
    LATHE_BETA_FIELD("momentum", "0.9", "share of the previous update that is kept"),
    LATHE_FIELD_FLOAT("weight_decay", "0.0", 0, 1e3, "1", "L2 penalty, part of the gradient"),
    LATHE_FIELD_BOOL("nesterov", "false", "use Nesterov momentum"),
};

static lathe_status @NAME@_read(const lathe_host *host, @NAME@ *out, const lathe_value *values)
{
    out->common.lr = values[FIELD_LR].f;
    out->momentum = values[FIELD_MOMENTUM].f;
    out->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    out->nesterov = (int32_t)values[FIELD_NESTEROV].i;
    if (out->nesterov && !(out->momentum > 0.0)) /* a schema cannot state this rule */
        return lathe_fail_at(host, LATHE_E_CONFIG, "nesterov",
                             "nesterov needs momentum above 0, it is %g", out->momentum);
    return LATHE_OK;
}

/* The state of a parameter: the core allocates it, zeroed, shards and checkpoints it. */
static int32_t @NAME@_slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self;
    lathe_slot_like(&out[0], "momentum_buffer", param, LATHE_F32);
    return 1;
}

/* Before each step, on the host, in double: what all elements need and what depends on the step. */
static void @NAME@_scalars(void *self, int64_t step, double *out)
{
    const @NAME@ *const o = self;
    (void)step;
    out[MOMENTUM] = o->momentum;
    out[NESTEROV] = o->nesterov;
    out[DECAY] = o->weight_decay;
}

/* create and destroy, step, the table and lathe_plugin_v1. */
LATHE_OPTIMIZER_ELEMENTWISE(@NAME@, 1, @NAME@_read, .version = "0.1.0",
                            .summary = "gradient descent with momentum",
                            .source = "torch.optim.SGD");

#endif

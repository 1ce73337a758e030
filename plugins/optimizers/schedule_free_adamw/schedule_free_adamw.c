/* Schedule-free AdamW: replaces the learning-rate schedule by an average of the weights. Training
 * works on y; the weights to evaluate and to save are x (average()):
 *
 *     v = b2*v + (1-b2)*g*g;   u = g/(sqrt(v/(1 - b2^t)) + eps) + wd*y
 *     y = y + c*(z - y) + lr*(b1*(1-c) - 1)*u;   z -= lr*u
 *     x = y + (1 - 1/b1)*(z - y)
 *
 * lr: the base rate, times t/warmup_steps during the warm-up. c = w_t/sum(w), where
 * w_t = t^r * lr_max^power and lr_max is the highest rate so far. z starts as y.
 * Use it with scheduler.name = "constant".
 *
 * Source: arXiv:2405.15682; schedulefree AdamWScheduleFree, in its order of operations.
 */
#include "lathe/kit/adamw_family.h"
#include "lathe/kit/optimizer_queue.h"

enum { BETA2, NEW2, EPS, DECAY, BIAS2, MIX, PULL, WARM };

typedef struct schedule_free_adamw_uniform {
    float lr, decay;
    float beta2, new2, eps;
    float bias;       /* 1/(1 - b2^t) */
    float mix, pull;  /* c; lr*(b1*(1-c) - 1) */
    int32_t is_first; /* 1: z is not initialised yet */
} schedule_free_adamw_uniform;

LATHE_HD static inline schedule_free_adamw_uniform
schedule_free_adamw_prepare(const float *scalars, float lr_mult, float weight_decay_mult)
{
    const float *const user = scalars + LATHE_SCALAR_USER;
    schedule_free_adamw_uniform u;
    u.lr = scalars[LATHE_SCALAR_LR] * lr_mult * fabsf(user[WARM]);
    u.decay = user[DECAY] * weight_decay_mult;
    u.beta2 = user[BETA2];
    u.new2 = user[NEW2];
    u.eps = user[EPS];
    u.bias = user[BIAS2];
    u.mix = user[MIX];
    u.pull = u.lr * user[PULL];
    u.is_first = user[WARM] < 0.0f;
    return u;
}

LATHE_HD static inline float schedule_free_adamw_element(const schedule_free_adamw_uniform *u,
                                                         float p, float g, float *s,
                                                         const lathe_element *at)
{
    const float z = u->is_first ? p : s[0];
    (void)at;
    s[1] = fmaf(u->new2 * g, g, u->beta2 * s[1]);
    const float update = fmaf(u->decay, p, g / (sqrtf(s[1] * u->bias) + u->eps));
    s[0] = fmaf(-u->lr, update, z);
    return fmaf(u->pull, update, fmaf(u->mix, z - p, p));
}

LATHE_ELEMENTWISE(schedule_free_adamw, 2)

/* x of an element; towards = 1 - 1/b1. */
LATHE_HD static inline float schedule_free_adamw_x(float towards, float y, float z)
{
    return fmaf(towards, z - y, y);
}

typedef struct schedule_free_adamw_average_args {
    lathe_elementwise_args on;
    float *const *out; /* [n_tensors] */
    float towards;
    int32_t reserved; /* 0 */
} schedule_free_adamw_average_args;
LATHE_ABI_SIZE(schedule_free_adamw_average_args, 72);

#ifdef __CUDACC__

LATHE_CUDA_KERNEL(schedule_free_adamw_average, LATHE_ELEMENTWISE_THREADS,
                  schedule_free_adamw_average_args)
{
    for (int64_t chunk = blockIdx.x; chunk < a.on.n_chunks; chunk += gridDim.x) {
        const lathe_elementwise_chunk c = lathe_elementwise_chunk_of(&a.on, chunk);
        const float *const y = c.x->param, *const z = (const float *)c.x->slots[0];
        float *const out = a.out[c.t];
        for (int64_t i = c.begin + threadIdx.x; i < c.end; i += blockDim.x)
            out[i] = schedule_free_adamw_x(a.towards, y[i], z[i]);
    }
}

#else

typedef struct schedule_free_adamw {
    lathe_adamw adamw;
    double r, weight_lr_power;
    int64_t warmup_steps;
    int64_t summed; /* steps in the sum of weights: a cache, not state */
    double weight_sum;
} schedule_free_adamw;

enum { FIELD_WARMUP_STEPS = LATHE_ADAMW_N_FIELDS, FIELD_R, FIELD_POWER };

static const lathe_field fields[] = {
    LATHE_LR_FIELD("2.5e-3"),
    {"beta1", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_MAX_EXCLUSIVE, "0.9", 0, 1,
     NULL, "1", "weight of the average x in the trained weights y = (1-beta1)*z + beta1*x"},
    LATHE_BETA_FIELD("beta2", "0.999", "decay of the second moment"),
    LATHE_EPS_FIELD("1e-8"),
    LATHE_WEIGHT_DECAY_FIELD("0.0"),
    LATHE_FIELD_INT("warmup_steps", "0", 0, 1e9, "steps",
                    "steps in which the learning rate rises from 0"),
    LATHE_FIELD_FLOAT("r", "0.0", 0, 100, "1",
                      "exponent of the step in the weights of the average"),
    LATHE_FIELD_FLOAT("weight_lr_power", "2.0", 0, 100, "1",
                      "exponent of the learning rate in the weights of the average during warm-up"),
};

static lathe_status read_values(const lathe_host *host, schedule_free_adamw *o,
                                const lathe_value *values)
{
    (void)host;
    lathe_adamw_read(&o->adamw, values);
    o->warmup_steps = values[FIELD_WARMUP_STEPS].i;
    o->r = values[FIELD_R].f;
    o->weight_lr_power = values[FIELD_POWER].f;
    return LATHE_OK;
}

static int32_t schedule_free_adamw_slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self;
    lathe_slot_like(&out[0], "z", param, LATHE_F32);
    lathe_slot_like(&out[1], "exp_avg_sq", param, LATHE_F32);
    return 2;
}

/* The rate of step t (from 1) relative to the base rate. */
static double warm(const schedule_free_adamw *o, int64_t t)
{
    return t < o->warmup_steps ? (double)t / (double)o->warmup_steps : 1.0;
}

/* Weight of step t in the average, without the base rate, which cancels. */
static double weight(const schedule_free_adamw *o, int64_t t)
{
    return pow((double)t, o->r) * pow(warm(o, t), o->weight_lr_power);
}

/* Sum of the weights up to step t: continues from the last call, or starts again after a resume. */
static double weight_sum(schedule_free_adamw *o, int64_t t)
{
    if (o->summed > t) {
        o->summed = 0;
        o->weight_sum = 0.0;
    }
    while (o->summed < t)
        o->weight_sum += weight(o, ++o->summed);
    return o->weight_sum;
}

static void schedule_free_adamw_scalars(void *self, int64_t step, double *out)
{
    schedule_free_adamw *const o = self;
    const double sum = weight_sum(o, step);
    const double mix = sum > 0.0 ? weight(o, step) / sum : 0.0;
    out[BETA2] = o->adamw.beta2;
    out[NEW2] = 1.0 - o->adamw.beta2;
    out[EPS] = o->adamw.eps;
    out[DECAY] = o->adamw.weight_decay;
    out[BIAS2] = 1.0 / lathe_bias_correction(o->adamw.beta2, step);
    out[MIX] = mix;
    out[PULL] = o->adamw.beta1 * (1.0 - mix) - 1.0;
    out[WARM] = step == 1 ? -warm(o, step) : warm(o, step);
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_elementwise_run(lathe_optimizer_host(self), s, 2, schedule_free_adamw_chunk);
}

/* Computes x from y and z into out. */
typedef struct averaging {
    float towards; /* 1 - 1/b1 */
    float *const *out;
} averaging;

static void average_chunk(void *ctx, const lathe_optimizer_step *s, const lathe_optimizer_tensor *x,
                          int64_t begin, int64_t end)
{
    const averaging *const a = ctx;
    const float *const y = x->param, *const z = x->slots[0];
    float *const out = a->out[x - s->tensors];
    for (int64_t i = begin; i < end; i++)
        out[i] = schedule_free_adamw_x(a->towards, y[i], z[i]);
}

static float towards(const schedule_free_adamw *o)
{
    return (float)(1.0 - 1.0 / o->adamw.beta1);
}

static lathe_status average(void *self, const lathe_optimizer_step *s, float *const *out)
{
    const schedule_free_adamw *const o = self;
    averaging a = {towards(o), out};
    return lathe_chunks_run(o->adamw.common.host, s, 2, lathe_chunk_elements, average_chunk, &a);
}

static lathe_status queue(void *self, const lathe_optimizer_queue *todo)
{
    const schedule_free_adamw_average_args args = {*todo->args, todo->averages, towards(self), 0};
    return todo->what == LATHE_QUEUE_AVERAGE
               ? lathe_queue_launch(todo, "schedule_free_adamw_average", &args,
                                    (int64_t)sizeof args)
               : lathe_queue_elementwise(todo);
}

LATHE_INSTANCE(schedule_free_adamw, read_values)

LATHE_OPTIMIZER_TABLE(schedule_free_adamw, .slots = schedule_free_adamw_slots,
                      .scalars = schedule_free_adamw_scalars, .step = step,
                      .cuda_image = LATHE_CUDA_IMAGE, .average = average, .queue = queue);

LATHE_OPTIMIZER_ENTRY(schedule_free_adamw, .version = "1.0.0",
                      .summary = "AdamW with an average instead of a schedule",
                      .source = "arXiv:2405.15682; schedulefree AdamWScheduleFree");

#endif

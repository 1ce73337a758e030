/* Sophia-G: a clipped step along momentum divided by curvature:
 *
 *     m = b1*m + (1-b1)*g;   p = p*(1 - lr*wd) - lr*sign(m)*min(|m|/(rho*h + 1e-15), 1)
 *     every k steps          h = b2*h + (1-b2)*B*gs*gs
 *
 * gs: mean gradient of a batch of B targets whose labels are sampled from the model (the
 * Gauss-Newton-Bartlett estimate); the core computes it with one more backward. Source:
 * arXiv:2305.14342, algorithms 2 and 3. The authors' code does not include B in h and multiplies by
 * it in each step, which gives the same result if all batches have the same size.
 */
#include "lathe/kit/optimizer_queue.h"

enum { BETA1, NEW1, RHO, DECAY };

LATHE_UNIFORM(sophia, DECAY)

LATHE_HD static inline float sophia_element(const sophia_uniform *u, float p, float g, float *s,
                                            const lathe_element *at)
{
    const float m = fmaf(u->user[NEW1], g, u->user[BETA1] * s[0]);
    const float ratio = m / fmaf(u->user[RHO], s[1], 1e-15f); /* NaN must stay NaN below */
    const float clipped = ratio > 1.0f ? 1.0f : ratio < -1.0f ? -1.0f : ratio;
    (void)at;
    s[0] = m;
    return fmaf(-u->lr, clipped, p * u->keep);
}

LATHE_ELEMENTWISE(sophia, 2)

/* Updates h of an element; fresh: (1-b2)*B. */
LATHE_HD static inline float sophia_curvature(float beta2, float fresh, float g, float h)
{
    return fmaf(fresh * g, g, beta2 * h);
}

/* RNG stream for the rounding of the estimate. The step uses the streams 0 and 1, the numbers of
 * its slots. */
#define CURVATURE_STREAM LATHE_MAX_SLOTS

typedef struct sophia_estimate_args {
    lathe_elementwise_args on;
    float beta2, new2;
} sophia_estimate_args;
LATHE_ABI_SIZE(sophia_estimate_args, 64);

#ifdef __CUDACC__

LATHE_CUDA_KERNEL(sophia_estimate, LATHE_ELEMENTWISE_THREADS, sophia_estimate_args)
{
    const float fresh = a.new2 * a.on.scalars[LATHE_SCALAR_COUNT];
    const float scale = a.on.scalars[LATHE_SCALAR_GRAD_SCALE];
    for (int64_t chunk = blockIdx.x; chunk < a.on.n_chunks; chunk += gridDim.x) {
        const lathe_elementwise_chunk c = lathe_elementwise_chunk_of(&a.on, chunk);
        const uint32_t half = c.x->half_slots >> 1 & 1u;
        void *const h = c.x->slots[1];
        for (int64_t i = c.begin + threadIdx.x; i < c.end; i += blockDim.x) {
            const lathe_element at = {c.x->first + i, a.on.counter[0], a.on.counter[1],
                                      (uint64_t)c.x->tensor};
            const float next = sophia_curvature(a.beta2, fresh, c.x->grad[i] * scale,
                                                lathe_elementwise_load(h, i, half));
            lathe_elementwise_store(h, i, half, next, &at, CURVATURE_STREAM, 0);
        }
    }
}

#else

#include "lathe/kit/optimizer_kit.h"

typedef struct sophia {
    lathe_optimizer_common common;
    double beta1, beta2, rho, weight_decay;
    int64_t every;
} sophia;

enum {
    FIELD_LR,
    FIELD_BETA1,
    FIELD_BETA2,
    FIELD_RHO,
    FIELD_WEIGHT_DECAY,
    FIELD_EVERY,
    FIELD_STATE
};

static const lathe_field fields[] = {
    LATHE_LR_FIELD("1e-4"),
    LATHE_BETA_FIELD("beta1", "0.965", "decay of the momentum"),
    LATHE_BETA_FIELD("beta2", "0.99", "decay of the curvature, once per estimate"),
    {"rho", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.04", 0, 1e6, NULL, "1",
     "factor of the curvature in the denominator; a larger one clips fewer elements"},
    LATHE_WEIGHT_DECAY_FIELD("0.1"),
    LATHE_FIELD_INT("estimate_every", "10", 1, 1e9, "steps", "steps from one estimate to the next"),
    LATHE_STATE_DTYPE_FIELD("type of momentum and curvature; bf16 is rounded stochastically"),
};

static lathe_status read_values(const lathe_host *host, sophia *o, const lathe_value *values)
{
    (void)host;
    o->common.lr = values[FIELD_LR].f;
    o->common.state_dtype = lathe_state_dtype(&values[FIELD_STATE]);
    o->beta1 = values[FIELD_BETA1].f;
    o->beta2 = values[FIELD_BETA2].f;
    o->rho = values[FIELD_RHO].f;
    o->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    o->every = values[FIELD_EVERY].i;
    return LATHE_OK;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const int32_t dtype = ((const sophia *)self)->common.state_dtype;
    lathe_slot_like(&out[0], "exp_avg", param, dtype);
    lathe_slot_like(&out[1], "hessian", param, dtype);
    return 2;
}

static void scalars(void *self, int64_t step, double *out)
{
    const sophia *const o = self;
    (void)step;
    out[BETA1] = o->beta1;
    out[NEW1] = 1.0 - o->beta1;
    out[RHO] = o->rho;
    out[DECAY] = o->weight_decay;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_elementwise_run(lathe_optimizer_host(self), s, 2, sophia_chunk);
}

static int64_t estimate_every(void *self)
{
    return ((const sophia *)self)->every;
}

typedef struct curvature_uniform {
    float beta2, fresh;
} curvature_uniform;

/* Updates n <= LATHE_ELEMENTWISE_TILE elements. random NULL: h is f32, else bf16. */
LATHE_CLONES static void curvature_tile(const curvature_uniform *numbers, float scale,
                                        const float *grad, void *h, const uint16_t *random,
                                        int64_t n)
{
    const curvature_uniform u = *numbers;
    float *const wide = h;
    uint16_t *const half = h;
    for (int64_t i = 0; i < n && random == NULL; i++) {
        wide[i] = sophia_curvature(u.beta2, u.fresh, grad[i] * scale, wide[i]);
    }
    for (int64_t i = 0; i < n && random != NULL; i++) {
        const float next =
            sophia_curvature(u.beta2, u.fresh, grad[i] * scale, lathe_bf16_to_f32(half[i]));
        half[i] = lathe_f32_to_bf16_random(next, random[i]);
    }
}

static void estimate_chunk(void *ctx, const lathe_optimizer_step *s,
                           const lathe_optimizer_tensor *tensor, int64_t begin, int64_t end)
{
    const sophia *const o = ctx;
    const curvature_uniform u = {(float)o->beta2,
                                 (float)(1.0 - o->beta2) * s->scalars[LATHE_SCALAR_COUNT]};
    const float scale = s->scalars[LATHE_SCALAR_GRAD_SCALE];
    lathe_elementwise_random numbers;
    for (int64_t at = begin; at < end; at += LATHE_ELEMENTWISE_TILE) {
        const int64_t left = end - at;
        const lathe_optimizer_tensor x = lathe_elementwise_range(
            tensor, at, left < LATHE_ELEMENTWISE_TILE ? left : LATHE_ELEMENTWISE_TILE);
        const uint16_t *const random =
            x.half_slots & 2u
                ? lathe_elementwise_draw(
                      &numbers, x.n, s->seed, (uint64_t)s->step,
                      lathe_elementwise_stream((uint64_t)x.tensor, CURVATURE_STREAM), x.first)
                : NULL;
        curvature_tile(&u, scale, x.grad, x.slots[1], random, x.n);
    }
}

static lathe_status estimate(void *self, const lathe_optimizer_step *s)
{
    return lathe_chunks_run(lathe_optimizer_host(self), s, 2, lathe_chunk_elements, estimate_chunk,
                            self);
}

static lathe_status queue(void *self, const lathe_optimizer_queue *todo)
{
    const sophia *const o = self;
    const sophia_estimate_args args = {*todo->args, (float)o->beta2, (float)(1.0 - o->beta2)};
    return todo->what == LATHE_QUEUE_ESTIMATE
               ? lathe_queue_launch(todo, "sophia_estimate", &args, (int64_t)sizeof args)
               : lathe_queue_elementwise(todo);
}

LATHE_INSTANCE(sophia, read_values)

LATHE_OPTIMIZER_TABLE(sophia, .slots = slots, .scalars = scalars, .step = step,
                      .cuda_image = LATHE_CUDA_IMAGE, .estimate_every = estimate_every,
                      .estimate = estimate, .queue = queue);

LATHE_OPTIMIZER_ENTRY(sophia, .version = "1.0.0",
                      .summary = "a clipped second-order step; curvature from sampled labels",
                      .source = "arXiv:2305.14342");

#endif

/* Parameters and gradients from a counter: the same numbers as in tests/golden/optimizers.py. */
#ifndef LATHE_TESTS_OPTIMIZER_CASE_H
#define LATHE_TESTS_OPTIMIZER_CASE_H

#include "lathe/optimizer.h"
#include "support/plugin_fixture.h"

/* splitmix64 of (stream, step, index), top 24 bits, in [-1, 1). */
static inline float case_uniform(uint64_t stream, uint64_t step, int64_t index)
{
    uint64_t x = (uint64_t)index + ((stream << 48) | (step << 32));
    x = (x + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (float)(x >> 40) * 0x1p-23f - 1.0f;
}

static inline void case_gradient(uint64_t tensor, uint64_t step, float *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        g[i] = step <= 10 && i % 7 == 0
                   ? 0.0f
                   : case_uniform(tensor, step, i) + case_uniform(tensor + 100, 0, i);
}

#define CASE_MAX_TENSORS 8

/* Tensors with memory; the state is zero, parameters come from the counter. */
typedef struct optimizer_case {
    int32_t n_tensors;
    lathe_optimizer_tensor tensors[CASE_MAX_TENSORS];
    float *grads[CASE_MAX_TENSORS];
    float scalars[LATHE_N_SCALARS];
    void *scratch; /* as the optimizer asks; NULL: none */
    int64_t scratch_bytes;
} optimizer_case;

static inline void case_add(optimizer_case *c, int64_t rows, int64_t cols, int32_t n_slots,
                            double weight_decay_mult)
{
    const int32_t k = c->n_tensors++;
    lathe_optimizer_tensor *const x = &c->tensors[k];
    *x = (lathe_optimizer_tensor){.n = rows * cols, .rows = rows, .cols = cols, .tensor = k};
    x->lr_mult = 1.0;
    x->weight_decay_mult = weight_decay_mult;
    x->param = calloc((size_t)x->n + 1, sizeof(float));
    x->grad = c->grads[k] = calloc((size_t)x->n + 1, sizeof(float));
    for (int32_t s = 0; s < n_slots; s++)
        x->slots[s] = calloc((size_t)x->n + 1, sizeof(float));
    for (int64_t i = 0; i < x->n; i++)
        x->param[i] = case_uniform((uint64_t)k, 0, i);
}

static inline void case_free(optimizer_case *c)
{
    free(c->scratch);
    for (int32_t k = 0; k < c->n_tensors; k++) {
        free(c->tensors[k].param);
        free(c->grads[k]);
        free(c->tensors[k].shadow);
        for (int32_t s = 0; s < LATHE_MAX_SLOTS; s++)
            free(c->tensors[k].slots[s]);
    }
}

/* The scalars of a step as the core computes them. */
static inline void case_scalars(optimizer_case *c, const lathe_optimizer_v1 *table, void *self,
                                int64_t step, double lr, double grad_scale)
{
    double user[8] = {0};
    if (table->scalars != NULL)
        table->scalars(self, step, user);
    memset(c->scalars, 0, sizeof c->scalars);
    c->scalars[LATHE_SCALAR_LR] = (float)lr;
    c->scalars[LATHE_SCALAR_GRAD_SCALE] = (float)grad_scale;
    c->scalars[LATHE_SCALAR_LR_RATIO] = (float)(lr / table->base_lr(self));
    for (int k = 0; k < 8; k++)
        c->scalars[LATHE_SCALAR_USER + k] = (float)user[k];
}

static inline lathe_status case_step(optimizer_case *c, const lathe_optimizer_v1 *table, void *self,
                                     int64_t step)
{
    const lathe_optimizer_step s = {.size = (uint32_t)sizeof s,
                                    .n_tensors = c->n_tensors,
                                    .tensors = c->tensors,
                                    .scalars = c->scalars,
                                    .step = step,
                                    .seed = 7,
                                    .scratch = c->scratch,
                                    .scratch_bytes = c->scratch_bytes};
    return table->step(self, &s);
}

#endif

/* Compares an optimizer with goldens of tests/golden/optimizers.py: many steps on a mixed set of
 * tensors. */
#ifndef LATHE_TESTS_OPTIMIZER_GOLDEN_H
#define LATHE_TESTS_OPTIMIZER_GOLDEN_H

#include "support/optimizer_case.h"

/* MIXED of the script: odd shapes, a vector, a single number, no gradient, huge and tiny
 * gradients. */
typedef struct golden_tensor {
    int64_t rows, cols; /* cols 0: a vector of `rows` */
    float gradient;     /* factor on the gradients */
    int32_t role;       /* LATHE_ROLE_* */
} golden_tensor;

#define GOLDEN_N_TENSORS 7

static const golden_tensor golden_tensors[GOLDEN_N_TENSORS] = {
    {17, 5, 1.0f, LATHE_ROLE_MATRIX},  {33, 0, 1.0f, LATHE_ROLE_NORM},
    {1, 0, 1.0f, LATHE_ROLE_BIAS},     {20, 21, 1.0f, LATHE_ROLE_EMBEDDING},
    {6, 7, 0.0f, LATHE_ROLE_MATRIX},   {9, 11, 1e4f, LATHE_ROLE_MATRIX},
    {9, 11, 1e-6f, LATHE_ROLE_MATRIX},
};

typedef struct golden_run {
    const char *file;     /* under tests/golden/data/optimizers */
    const char *settings; /* of the plugin */
    int32_t steps;        /* 0: 300 */
    int32_t n_slots;  /* number of f32 slots to compare; the golden has them after the parameters */
    double tolerance; /* for parameters, relative to |p| + 0.2; 0: 1e-6 */
    int32_t constant_lr; /* 1: lr = base */
    /* Called after each step; NULL: nothing. */
    void (*after)(optimizer_case *c, const lathe_optimizer_v1 *table, void *self, int64_t step);
    /* Compares the part of the golden after the slots; returns the number of values compared. */
    int64_t (*rest)(const optimizer_case *c, const lathe_optimizer_v1 *table, void *self,
                    const float *want);
} golden_run;

static inline lathe_param_info golden_info(int32_t k)
{
    const golden_tensor *const t = &golden_tensors[k];
    lathe_param_info info = {.size = (uint32_t)sizeof info,
                             .role = t->role,
                             .name = "tensor",
                             .trainable = 1,
                             .layer = -1,
                             .head_rows = k == 5 ? 3 : 0};
    info.desc =
        t->cols ? lathe_desc_2d(LATHE_F32, t->rows, t->cols) : lathe_desc_1d(LATHE_F32, t->rows);
    return info;
}

/* Tensors with the slots that the optimizer declares. */
static inline void golden_fill(optimizer_case *c, const lathe_optimizer_v1 *table, void *self)
{
    for (int32_t k = 0; k < GOLDEN_N_TENSORS; k++) {
        const golden_tensor *const t = &golden_tensors[k];
        const lathe_param_info info = golden_info(k);
        lathe_slot slots[LATHE_MAX_SLOTS];
        case_add(c, t->rows, t->cols ? t->cols : 1, 0, t->cols ? 1.0 : 0.0);
        const int32_t n = table->slots(self, &info, slots);
        for (int32_t s = 0; s < n; s++) {
            c->tensors[k].slots[s] = calloc((size_t)lathe_desc_bytes(&slots[s].desc) + 64, 1);
            c->tensors[k].half_slots |= slots[s].desc.dtype == LATHE_BF16 ? 1u << s : 0u;
        }
        c->tensors[k].block = LATHE_HAS(table, block) ? table->block(self, &info) : 1;
        const int64_t scratch = LATHE_HAS(table, scratch) ? table->scratch(self, &info) : 0;
        c->scratch_bytes = scratch > c->scratch_bytes ? scratch : c->scratch_bytes;
    }
    c->scratch = c->scratch_bytes ? malloc((size_t)c->scratch_bytes) : NULL;
    memset(c->scratch ? c->scratch : c, 0xa5, (size_t)c->scratch_bytes);
}

/* Number of f32 elements of slot s of tensor k; 0 if the tensor has no such slot. */
static inline int64_t golden_slot_count(const lathe_optimizer_v1 *table, void *self, int32_t k,
                                        int32_t s)
{
    const lathe_param_info info = golden_info(k);
    lathe_slot slots[LATHE_MAX_SLOTS];
    return s < table->slots(self, &info, slots) ? lathe_desc_count(&slots[s].desc) : 0;
}

static inline double golden_largest(const float *x, int64_t n)
{
    double max = 0.0;
    for (int64_t i = 0; i < n; i++)
        max = fabs((double)x[i]) > max ? fabs((double)x[i]) : max;
    return max;
}

/* The largest |got - want|/(|want| + scale). */
static inline double golden_worst(const float *got, const float *want, int64_t n, double scale)
{
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs((double)got[i] - (double)want[i]);
        const double relative = error == 0.0 ? 0.0 : error / (fabs((double)want[i]) + scale);
        worst = relative > worst || isnan(relative) ? relative : worst;
    }
    return worst;
}

/* Compares the case with the golden: parameters relative to |p| + 0.2, because in 300 steps of 1e-3
 * they move by about that much; states relative to the largest value of their tensor. Every step
 * rounds to f32 (6e-8) on both sides. */
static inline void golden_compare(const optimizer_case *c, const lathe_optimizer_v1 *table,
                                  void *self, const golden_run *run)
{
    char path[256];
    int64_t bytes;
    snprintf(path, sizeof path, "optimizers/%s", run->file);
    float *const golden = fixture_golden(path, &bytes);
    const float *want = golden;
    const double tolerance = run->tolerance > 0.0 ? run->tolerance : 1e-6;
    for (int32_t k = 0; k < c->n_tensors; want += c->tensors[k].n, k++) {
        const double worst = golden_worst(c->tensors[k].param, want, c->tensors[k].n, 0.2);
        cr_assert(worst < tolerance, "%s '%s' tensor %d: %.3g", run->file, run->settings, k, worst);
    }
    for (int32_t s = 0; s < run->n_slots; s++)
        for (int32_t k = 0; k < c->n_tensors; k++) {
            const int64_t n = golden_slot_count(table, self, k, s);
            const double scale = 0.05 * golden_largest(want, n);
            const double worst = golden_worst(c->tensors[k].slots[s], want, n, scale);
            cr_assert(worst < 1e-6, "%s '%s' slot %d of tensor %d: %.3g", run->file, run->settings,
                      s, k, worst);
            want += n;
        }
    if (run->rest != NULL)
        want += run->rest(c, table, self, want);
    cr_assert_eq((char *)golden + bytes, (const char *)want, "%s has other shapes", run->file);
    free(golden);
}

/* Repeats the script's run: lr = base*(1 - step/400). */
static inline void golden_follow(const golden_run *run)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    optimizer_case c = {0};
    void *self;
    cr_assert_eq(lathe_test_create(plugin, run->settings, &self), LATHE_OK, "%s",
                 lathe_test_message);
    golden_fill(&c, table, self);
    const int64_t steps = run->steps ? run->steps : 300;
    for (int64_t step = 1; step <= steps; step++) {
        const double part = run->constant_lr ? 1.0 : 1.0 - (double)step / 400.0;
        case_scalars(&c, table, self, step, table->base_lr(self) * part, 1.0);
        for (int32_t k = 0; k < c.n_tensors; k++) {
            case_gradient((uint64_t)k, (uint64_t)step, c.grads[k], c.tensors[k].n);
            for (int64_t i = 0; i < c.tensors[k].n; i++)
                c.grads[k][i] *= golden_tensors[k].gradient;
        }
        const int64_t allocs = lathe_test_allocs;
        cr_assert_eq(case_step(&c, table, self, step), LATHE_OK, "%s", lathe_test_message);
        cr_assert_eq(lathe_test_allocs, allocs, "a step allocated");
        if (run->after != NULL)
            run->after(&c, table, self, step);
    }
    golden_compare(&c, table, self, run);
    case_free(&c);
    plugin->destroy(self);
}

/* A NaN in the gradient of one element must not change other elements. */
static inline void case_nan_stays(const char *settings)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    optimizer_case c = {0};
    void *self;
    cr_assert_eq(lathe_test_create(plugin, settings, &self), LATHE_OK);
    golden_fill(&c, table, self);
    for (int32_t k = 0; k < c.n_tensors; k++)
        case_gradient((uint64_t)k, 11, c.grads[k], c.tensors[k].n);
    c.grads[3][17] = NAN;
    case_scalars(&c, table, self, 1, 1e-3, 1.0);
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
    for (int32_t k = 0; k < c.n_tensors; k++)
        for (int64_t i = 0; i < c.tensors[k].n; i++)
            cr_assert_eq(isnan(c.tensors[k].param[i]) != 0, k == 3 && i == 17,
                         "tensor %d element %d", k, (int)i);
    case_free(&c);
    plugin->destroy(self);
}

/* Checks that every setting of the list (NULL at its end) is refused with a message that names its
 * first key. */
static inline void golden_refuses(const char *const *settings)
{
    const lathe_plugin *const plugin = fixture_plugin();
    void *self = NULL;
    for (; *settings != NULL; settings++) {
        cr_assert_eq(lathe_test_create(plugin, *settings, &self), LATHE_E_CONFIG, "took %s",
                     *settings);
        cr_assert(strncmp(lathe_test_message, *settings, strcspn(*settings, "=")) == 0, "%s: %s",
                  *settings, lathe_test_message);
        cr_assert_null(self, "%s", *settings);
    }
    plugin->destroy(NULL);
}

#endif

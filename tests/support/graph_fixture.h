/* A graph under test: built over parameters, with derivative and passes, placed and run on the CPU
 * device; with FIXTURE_GPU on the CUDA device, of the real GPU if there is one, else of the
 * emulated one. Device memory is accessed through fixture_put and fixture_get.
 *
 * The loss of a value y is sum(y * c) with fixed uneven weights c, so that a gradient that mixes up
 * elements is detected. Gradients are compared with central differences of that loss of fourth
 * order, (8 (L(+h) - L(-h)) - (L(+2h) - L(-2h))) / 12h with h = 2^-6: the truncation is of order
 * h^4 = 6e-8, the round-off of an f32 loss near 1 is 1.5 * 2^-24 / h = 6e-6. FIXTURE_TOLERANCE
 * leaves room for forwards whose own f32 sums lose a few more bits.
 */
#ifndef LATHE_TEST_GRAPH_FIXTURE_H
#define LATHE_TEST_GRAPH_FIXTURE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "exec/program/exec.h"
#include "exec/store/transfer.h"
#include "graph/passes/passes.h"
#include "graph/passes/plan.h"
#include "lathe/rng.h"
#include "support/build_folder.h"
#include "support/plugin_override.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())

#define FIXTURE_STEP 0x1p-6
#define FIXTURE_TOLERANCE 4e-4 /* relative to the largest gradient of the parameter */

typedef struct fixture {
    lathe_registry *registry;
    lathe_arena memory;
    lathe_instance device, attention;
    lathe_machine m;
    lathe_params params;
    lathe_graph *g;
    lathe_val loss, seed;
    lathe_exec *exec; /* after fixture_finish */
    lathe_store store;
    void *arena;
    uint64_t n_random; /* number of random streams used: each tensor gets its own */
} fixture;

/* The passes that fixture_finish runs besides lathe_pass_inplace, which plans need. */
enum { FIXTURE_MERGE = 1, FIXTURE_DEAD = 2 };

static inline void fixture_instance(fixture *f, int32_t kind, const char *name, lathe_instance *out)
{
    const lathe_component *component = NULL;
    if (kind == LATHE_KIND_DEVICE)
        OK(lathe_select_device(f->registry, name, &f->memory, &component, NULL));
    else
        OK(lathe_registry_find(f->registry, kind, name, &component));
    OK(lathe_instance_init(out, component, NULL));
}

static inline const char *fixture_folder(const char *name)
{
    static char folder[384];
    (void)snprintf(folder, sizeof folder, "%s/%s", lathe_test_build(), name);
    return folder;
}

#ifdef FIXTURE_GPU
static inline void fixture_find(fixture *f)
{
    const lathe_component *gpu = NULL;
    OK(lathe_registry_create(&f->registry));
    OK(lathe_registry_add_path(f->registry, fixture_folder("lib/lathe/plugins")));
    if (lathe_select_device(f->registry, "cuda", &f->memory, &gpu, NULL) != LATHE_OK) {
        lathe_registry_destroy(f->registry);
        override_all_of(fixture_folder("tests/emulated"));
        OK(lathe_registry_create(&f->registry));
        OK(lathe_registry_add_path(f->registry, fixture_folder("tests/emulated")));
    }
    fixture_instance(f, LATHE_KIND_DEVICE, "cuda", &f->device);
    fixture_instance(f, LATHE_KIND_ATTENTION, "reference_cuda", &f->attention);
}
#else
static inline void fixture_find(fixture *f)
{
    OK(lathe_registry_create(&f->registry));
    OK(lathe_registry_add_path(f->registry, fixture_folder("lib/lathe/plugins")));
    fixture_instance(f, LATHE_KIND_DEVICE, "cpu", &f->device);
    fixture_instance(f, LATHE_KIND_ATTENTION, "reference", &f->attention);
}
#endif

static inline void fixture_open(fixture *f, int32_t compute_dtype)
{
    memset(f, 0, sizeof *f);
    /* the graphs are tiny: waiting for other threads would take most of the time */
    lathe_parallel_init(1);
    fixture_find(f);
    OK(lathe_machine_init(&f->m, &f->device, LATHE_FLAG_DETERMINISTIC));
    f->m.attention = &f->attention;
    f->m.n_attention = 1;
    lathe_params_init(&f->params, compute_dtype);
    OK(lathe_graph_create(&f->params, &f->g));
    f->loss = f->seed = LATHE_NONE;
}

/* Copies host memory to device memory; and back. */
static inline void fixture_put(fixture *f, void *to, const void *from, int64_t bytes)
{
    OK(lathe_upload(&f->m, to, from, bytes));
}

static inline void fixture_get(fixture *f, void *to, const void *from, int64_t bytes)
{
    OK(lathe_download(&f->m, to, from, bytes));
}

/* Fills device memory with NaN. */
static inline void fixture_poison(fixture *f, void *to, int64_t bytes)
{
    char *nan = malloc((size_t)bytes + 1);
    memset(nan, 0xff, (size_t)bytes);
    fixture_put(f, to, nan, bytes);
    free(nan);
}

static inline void fixture_close(fixture *f)
{
    if (f->exec) {
        lathe_exec_destroy(f->exec);
        lathe_store_fini(&f->store, &f->m);
        if (f->arena)
            f->m.dev->free(f->device.self, f->arena);
    } else {
        lathe_graph_destroy(f->g);
    }
    lathe_params_fini(&f->params);
    lathe_staging_fini(&f->m);
    lathe_machine_fini(&f->m);
    lathe_instance_fini(&f->attention);
    lathe_instance_fini(&f->device);
    lathe_registry_destroy(f->registry);
    lathe_arena_fini(&f->memory);
}

/* n numbers in [-1, 1) that depend only on the stream. */
static inline void fixture_random(uint64_t stream, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = 2.0f * lathe_uniform_f32(lathe_rng_block(5, 0, stream, (uint64_t)i / 4).v[i % 4]) -
                 1.0f;
}

static inline lathe_desc fixture_desc(int32_t dtype, int64_t rows, int64_t cols)
{
    return cols > 0 ? lathe_desc_2d(dtype, rows, cols) : lathe_desc_1d(dtype, rows);
}

/* Adds a parameter [rows, cols], or a vector if cols is 0; returns its value as computation reads
 * it. */
static inline lathe_val fixture_param(fixture *f, const char *name, int64_t rows, int64_t cols,
                                      int32_t trainable)
{
    const lathe_param row = {.name = name,
                             .desc = fixture_desc(LATHE_F32, rows, cols),
                             .layer = -1,
                             .trainable = trainable};
    int32_t index;
    lathe_val v;
    OK(lathe_params_add(&f->params, &row, &index));
    OK(lathe_graph_param(f->g, index, &v));
    return v;
}

static inline lathe_val fixture_matrix(fixture *f, const char *name, int64_t rows, int64_t cols)
{
    return fixture_param(f, name, rows, cols, 1);
}

static inline lathe_val fixture_vector(fixture *f, const char *name, int64_t n)
{
    return fixture_param(f, name, n, 0, 1);
}

static inline lathe_val fixture_ids(fixture *f, const int32_t *ids, int64_t n)
{
    lathe_val v;
    OK(lathe_graph_const(f->g, "ids", lathe_desc_1d(LATHE_I32, n), ids, &v));
    return v;
}

/* Adds a constant of this shape with uneven numbers in [-1, 1). */
static inline lathe_val fixture_const(fixture *f, lathe_desc desc)
{
    const int64_t n = lathe_desc_count(&desc);
    float *data = malloc((size_t)(n + 1) * sizeof *data);
    lathe_val v;
    desc.dtype = LATHE_F32;
    fixture_random(1000 + ++f->n_random, data, n);
    OK(lathe_graph_const(f->g, "weights", desc, data, &v));
    free(data);
    return v;
}

static inline lathe_val fixture_node(fixture *f, int32_t op, const lathe_op_attrs *attrs,
                                     lathe_val a, lathe_val b, lathe_val c)
{
    const lathe_val in[5] = {a, b, c, LATHE_NONE, LATHE_NONE};
    const int32_t n_in = c != LATHE_NONE ? 3 : b != LATHE_NONE ? 2 : 1;
    lathe_val out[LATHE_OP_MAX_OUT];
    const int32_t n_out = op == LATHE_OP_LAYERNORM                             ? 3
                          : op == LATHE_OP_RMSNORM || op == LATHE_OP_ATTENTION ? 2
                                                                               : 1;
    OK(lathe_graph_node(f->g, op, attrs, in, n_in, out, n_out, -1, "case"));
    return out[0];
}

static inline lathe_val fixture_unary(fixture *f, int32_t op, lathe_val x)
{
    return fixture_node(f, op, NULL, x, LATHE_NONE, LATHE_NONE);
}

static inline lathe_val fixture_binary(fixture *f, int32_t op, lathe_val a, lathe_val b)
{
    return fixture_node(f, op, NULL, a, b, LATHE_NONE);
}

static inline lathe_val fixture_linear(fixture *f, lathe_val x, lathe_val w, lathe_val b)
{
    return fixture_node(f, LATHE_OP_LINEAR, NULL, x, w, b);
}

static inline lathe_val fixture_attention(fixture *f, lathe_op_attrs attrs, const lathe_val in[5])
{
    lathe_val out[2];
    attrs.scale = 0.5f;
    attrs.head_dim = 4;
    attrs.batch = 2;
    OK(lathe_graph_node(f->g, LATHE_OP_ATTENTION, &attrs, in, 5, out, 2, -1, "attention"));
    return out[0];
}

static inline lathe_val fixture_head(fixture *f, lathe_val x, lathe_val w, float softcap)
{
    static const int32_t targets[] = {1, -1, 5, 0};
    const lathe_op_attrs attrs = {.softcap = softcap};
    return fixture_node(f, LATHE_OP_HEAD_LOGPROB, &attrs, x, w, fixture_ids(f, targets, 4));
}

static inline lathe_val fixture_f32(fixture *f, lathe_val x)
{
    const lathe_op_attrs to_f32 = {.dtype = LATHE_F32};
    return f->g->values[x].desc.dtype == LATHE_F32
               ? x
               : fixture_node(f, LATHE_OP_CAST, &to_f32, x, LATHE_NONE, LATHE_NONE);
}

/* sum(y * c), f32[] */
static inline lathe_val fixture_loss(fixture *f, lathe_val y)
{
    y = fixture_f32(f, y);
    const lathe_val c = fixture_const(f, f->g->values[y].desc);
    return fixture_unary(f, LATHE_OP_SUM, fixture_binary(f, LATHE_OP_MUL, y, c));
}

static inline lathe_status fixture_derive(fixture *f, lathe_val loss)
{
    f->loss = loss;
    lathe_graph_output(f->g, loss);
    OK(lathe_graph_input(f->g, "seed", (lathe_desc){LATHE_F32, 0, {1, 1, 1, 1}}, &f->seed));
    return lathe_derive(f->g, loss, f->seed);
}

/* Gives every parameter numbers that depend on its row, in its master, its compute copy, or
 * both. */
static inline void fixture_fill(fixture *f)
{
    for (int32_t i = 0; i < f->params.n; i++) {
        const int64_t n = lathe_desc_count(&f->params.rows[i]->desc);
        float *const master = lathe_store_master(&f->store, i);
        uint16_t *const shadow = lathe_store_shadow(&f->store, i);
        float *const data = malloc((size_t)(n + 1) * sizeof *data);
        uint16_t *const half = malloc((size_t)(n + 1) * sizeof *half);
        fixture_random((uint64_t)i, data, n);
        for (int64_t k = 0; k < n; k++)
            half[k] = f->params.compute_dtype == LATHE_BF16 ? lathe_f32_to_bf16(data[k])
                                                            : lathe_f32_to_f16(data[k]);
        if (master)
            fixture_put(f, master, data, n * (int64_t)sizeof *data);
        if (shadow)
            fixture_put(f, shadow, half, n * (int64_t)sizeof *half);
        free(data);
        free(half);
    }
}

/* Places a graph with or without a derivative, and sets the seed and the RNG input. */
static inline void fixture_place(fixture *f)
{
    const lathe_val rng = f->g->rng;
    lathe_graph *g = f->g;
    f->g = NULL;
    OK(lathe_exec_create(&f->m, g, &f->exec));
    OK(lathe_store_init(&f->store, &f->params, NULL, 1));
    OK(lathe_store_place(&f->store, &f->m));
    const int64_t bytes = lathe_exec_plan(f->exec)->arena_bytes;
    if (bytes > 0)
        OK(f->m.dev->alloc(f->device.self, bytes, LATHE_MEM_DEVICE, &f->arena));
    OK(lathe_staging_place(&f->m));
    OK(lathe_exec_place(f->exec, &f->store, f->arena));
    const float one = 1.0f;
    const int64_t numbers[2] = {7, 3};
    if (f->seed != LATHE_NONE)
        fixture_put(f, lathe_exec_data(f->exec, f->seed), &one, (int64_t)sizeof one);
    if (rng != LATHE_NONE)
        fixture_put(f, lathe_exec_data(f->exec, rng), numbers, (int64_t)sizeof numbers);
    fixture_fill(f);
}

static inline void fixture_passes(fixture *f, int32_t passes, int32_t recompute)
{
    if (passes & FIXTURE_MERGE)
        OK(lathe_pass_merge_head(f->g));
    OK(lathe_pass_recompute(f->g, recompute));
    if (passes & FIXTURE_DEAD)
        OK(lathe_pass_dead(f->g));
    OK(lathe_pass_inplace(f->g));
}

static inline void fixture_finish(fixture *f, lathe_val loss)
{
    OK(fixture_derive(f, loss));
    fixture_passes(f, FIXTURE_DEAD, LATHE_RECOMPUTE_NONE);
    fixture_place(f);
}

/* Runs once and returns the loss. Poisons the arena first, because nothing may read what no node
 * has written. */
static inline double fixture_run(fixture *f, int32_t accumulate)
{
    float loss = 0.0f;
    if (f->arena)
        fixture_poison(f, f->arena, lathe_exec_plan(f->exec)->arena_bytes);
    OK(lathe_exec_run(f->exec, accumulate));
    fixture_get(f, &loss, lathe_exec_data(f->exec, f->loss), (int64_t)sizeof loss);
    return (double)loss;
}

static inline double fixture_at(fixture *f, int32_t param, int64_t i, double delta)
{
    float *p = &lathe_store_master(&f->store, param)[i], was;
    fixture_get(f, &was, p, (int64_t)sizeof was);
    const float there = (float)((double)was + delta);
    fixture_put(f, p, &there, (int64_t)sizeof there);
    const double loss = fixture_run(f, 0);
    fixture_put(f, p, &was, (int64_t)sizeof was);
    return loss;
}

static inline double fixture_difference(fixture *f, int32_t param, int64_t i)
{
    const double h = FIXTURE_STEP;
    return (8.0 * (fixture_at(f, param, i, h) - fixture_at(f, param, i, -h)) -
            (fixture_at(f, param, i, 2.0 * h) - fixture_at(f, param, i, -2.0 * h))) /
           (12.0 * h);
}

/* A copy of a parameter's gradient after the last run; the caller frees it. */
static inline float *fixture_gradient(fixture *f, int32_t param)
{
    const int64_t n = lathe_desc_count(&f->params.rows[param]->desc);
    float *copy = malloc((size_t)(n + 1) * sizeof *copy);
    fixture_get(f, copy, lathe_store_grad(&f->store, param), n * (int64_t)sizeof *copy);
    return copy;
}

/* A sanitizer checks what the emulated GPU does, which is the same for each element of a
 * difference; all are compared in other builds. */
#if defined(FIXTURE_GPU) && defined(__SANITIZE_ADDRESS__)
enum { FIXTURE_STRIDE = 5 };
#else
enum { FIXTURE_STRIDE = 1 };
#endif

/* Compares the gradients of all trainable parameters with differences of the loss; f32 compute
 * only. all: every parameter must have a gradient that is not 0; else some need not reach the
 * loss. */
static inline void fixture_compare(fixture *f, int32_t all)
{
    for (int32_t p = 0; p < f->params.n; p++) {
        if (!f->params.rows[p]->trainable)
            continue;
        const int64_t n = lathe_desc_count(&f->params.rows[p]->desc);
        fixture_run(f, 0);
        float *got = fixture_gradient(f, p);
        double *want = malloc((size_t)(n + 1) * sizeof *want), scale = all ? 0.0 : 0.1;
        for (int64_t i = 0; i < n; i += FIXTURE_STRIDE) {
            want[i] = fixture_difference(f, p, i);
            scale = fmax(scale, fabs(want[i]));
        }
        cr_expect(FIXTURE_STRIDE > 1 || scale > 1e-3, "%s: no gradient to compare",
                  f->params.rows[p]->name);
        for (int64_t i = 0; i < n; i += FIXTURE_STRIDE)
            cr_expect(fabs((double)got[i] - want[i]) <= FIXTURE_TOLERANCE * scale,
                      "%s[%lld]: derivative %.8g, difference %.8g (largest %.3g)",
                      f->params.rows[p]->name, (long long)i, (double)got[i], want[i], scale);
        free(got);
        free(want);
    }
}

static inline void fixture_check(fixture *f)
{
    fixture_compare(f, 1);
}

#endif

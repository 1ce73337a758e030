/* Tests the rules of every op (core/graph/ops) against each other on the op's own cases: inference
 * against the shapes that the case states, the derivative against central differences. Everything
 * runs in double precision on the references that kernels are compared with, so a new op is tested
 * here without new code.
 *
 * A difference with step h = 1e-4 is off by about h^2 = 1e-8 times a function's third derivative,
 * and by 1e-16 / h times its value. TOLERANCE, relative to the largest gradient of the input,
 * leaves room for sums of thousands of elements.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "check/device/op_cases.h"
#include "check/harness/graph_exact.h"
#include "graph/passes/passes.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())
#define STEP 1e-4
#define TOLERANCE 2e-6
#define ELEMENTS 9 /* elements of an input that are varied */

/* A case as a graph: loss = sum(c * op(inputs)), and its derivative. */
typedef struct built {
    const lathe_op_case *c;
    lathe_op_problem p;
    lathe__subject subject;
    lathe_params params;
    lathe_graph *g;
    lathe__exact e;
    lathe_val in[LATHE_OP_MAX_IN], weights, loss, seed;
} built;

static int is_float(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_BF16 || dtype == LATHE_F16;
}

/* Whether an input may not be varied: an adapter of the head trains while its weight does not. */
static int is_fixed(const built *b, int32_t op, int32_t i)
{
    const int is_head = op == LATHE_OP_HEAD_LOGPROB || op == LATHE_OP_HEAD_ENTROPY ||
                        op == LATHE_OP_HEAD_PICK || op == LATHE_OP_HEAD_DIVERGENCE;
    const int32_t u = op == LATHE_OP_HEAD_DIVERGENCE ? 5 : 3;
    if (i == 1 && is_head && u < b->p.n_in && b->p.in[u].dtype != LATHE_ABSENT)
        return 1;
    return !is_float(b->p.in[i].dtype) || (lathe_op_info_get(op)->fixed_inputs & (1u << i)) != 0;
}

static void add_input(built *b, int32_t op, int32_t i)
{
    char name[16];
    (void)snprintf(name, sizeof name, "in%d", i);
    b->in[i] = LATHE_NONE;
    if (b->p.in[i].dtype == LATHE_ABSENT)
        return;
    if (is_fixed(b, op, i)) {
        OK(lathe_graph_input(b->g, name, b->p.in[i], &b->in[i]));
        return;
    }
    const lathe_param row = {.name = name, .desc = b->p.in[i], .layer = -1, .trainable = 1};
    int32_t index;
    OK(lathe_params_add(&b->params, &row, &index));
    OK(lathe_graph_param(b->g, index, &b->in[i]));
}

static void build(built *b, int32_t op, const lathe_op_case *c)
{
    const lathe_op_info *info = lathe_op_info_get(op);
    lathe_val out[LATHE_OP_MAX_OUT], y;
    int uses_c;
    memset(b, 0, sizeof *b);
    b->c = c;
    OK(lathe__op_case_problem(op, c, LATHE_F32, &b->p, &uses_c));
    lathe_params_init(&b->params, LATHE_F32);
    OK(lathe_graph_create(&b->params, &b->g));
    for (int32_t i = 0; i < b->p.n_in; i++)
        add_input(b, op, i);
    OK(lathe_graph_node(b->g, op, &b->p.attrs, b->in, b->p.n_in, out, info->n_out, -1, c->in));
    lathe_desc like = b->g->values[out[0]].desc;
    OK(lathe_graph_input(b->g, "weights", like, &b->weights));
    const lathe_val pair[2] = {out[0], b->weights};
    OK(lathe_graph_node(b->g, LATHE_OP_MUL, NULL, pair, 2, &y, 1, -1, ""));
    OK(lathe_graph_node(b->g, LATHE_OP_SUM, NULL, &y, 1, &b->loss, 1, -1, ""));
    OK(lathe_graph_input(b->g, "seed", b->g->values[b->loss].desc, &b->seed));
    OK(lathe_derive(b->g, b->loss, b->seed));
    OK(lathe__exact_init(&b->e, &b->subject, b->g));
    for (int32_t i = 0; i < b->p.n_in; i++)
        if (b->in[i] != LATHE_NONE)
            lathe__op_case_fill(c, &b->p, i, lathe__exact_data(&b->e, b->in[i]));
    lathe__exact_noise(&b->e, b->weights, 11, 1.0);
    lathe__exact_data(&b->e, b->seed)[0] = 1.0;
}

static double loss_at(const built *b, double *x, double value)
{
    const double kept = *x;
    *x = value;
    OK(lathe__exact_run(&b->e));
    *x = kept;
    return lathe__exact_data(&b->e, b->loss)[0];
}

static void check_input(const built *b, const lathe_op_info *info, int32_t i)
{
    lathe_val grad;
    double *x = lathe__exact_data(&b->e, b->in[i]), largest = 0.0;
    int smooth = 0;
    const int64_t n = lathe__exact_count(&b->e, b->in[i]);
    const int32_t n_values = b->g->n_values;
    OK(lathe_graph_grad(b->g, b->g->values[b->in[i]].param, &grad));
    const int has_one = grad < n_values; /* else the gradient is 0, and the differences must be 0 */
    OK(lathe__exact_run(&b->e));
    double *got = calloc((size_t)n, sizeof *got);
    if (has_one)
        memcpy(got, lathe__exact_data(&b->e, grad), (size_t)n * sizeof *got);
    for (int64_t k = 0; k < n; k++)
        largest = fmax(largest, fabs(got[k]));
    for (int64_t j = 0; j < ELEMENTS && j < n; j++) {
        const int64_t k = n <= ELEMENTS ? j : j * (n - 1) / (ELEMENTS - 1);
        const double up = loss_at(b, &x[k], x[k] + STEP), down = loss_at(b, &x[k], x[k] - STEP);
        const double want = (up - down) / (2.0 * STEP),
                     bend = up + down - 2.0 * loss_at(b, &x[k], x[k]);
        if (fabs(bend) > 0.01 * STEP * fmax(largest, 1.0)) /* a kink: no derivative exists there */
            continue;
        smooth++;
        cr_expect(fabs(got[k] - want) <= TOLERANCE * fmax(largest, 1e-3),
                  "%s of (%s): d/d input %d [%lld] is %.9g, by differences %.9g", info->name,
                  b->c->in, i, (long long)k, got[k], want);
    }
    cr_expect_gt(smooth, 0, "%s of (%s): input %d", info->name, b->c->in, i);
    free(got);
}

Test(op_rules, derivatives_are_central_differences_of_every_op)
{
    int ops = 0;
    for (int32_t op = 0; op < LATHE_N_OPS; op++) {
        const lathe_op_info *info = lathe_op_info_get(op);
        if (info->derive == NULL)
            continue;
        ops++;
        for (const lathe_op_case *c = info->cases; c->in != NULL; c++) {
            built b;
            if (c->attrs.fp8 != 0) /* rounding steps are visible in differences */
                continue;
            build(&b, op, c);
            for (int32_t i = 0; i < b.p.n_in; i++)
                if (b.in[i] != LATHE_NONE && b.g->values[b.in[i]].kind == LATHE_VALUE_PARAM)
                    check_input(&b, info, i);
            lathe_graph_destroy(b.g);
            lathe_params_fini(&b.params);
            lathe_arena_fini(&b.subject.arena);
        }
    }
    cr_expect_geq(ops, 24);
}

Test(op_rules, inference_gives_the_shapes_of_every_case)
{
    for (int32_t op = 0; op < LATHE_N_OPS; op++) {
        const lathe_op_info *info = lathe_op_info_get(op);
        if (info->derive == NULL) /* gradients get their shapes from what they are gradients of */
            continue;
        for (const lathe_op_case *c = info->cases; c->in != NULL; c++) {
            lathe_op_problem want, got;
            int uses_c;
            OK(lathe__op_case_problem(op, c, LATHE_F32, &want, &uses_c));
            got = want;
            got.label = "case";
            for (int32_t k = 0; k < LATHE_OP_MAX_OUT; k++)
                got.out[k].dtype = LATHE_ABSENT;
            OK(info->infer(&got));
            for (int32_t k = 0; k < want.n_out; k++)
                cr_expect(got.out[k].rank == want.out[k].rank &&
                              memcmp(got.out[k].dims, want.out[k].dims,
                                     (size_t)want.out[k].rank * sizeof(int64_t)) == 0,
                          "%s of (%s): output %d", info->name, c->in, k);
        }
    }
}

Test(op_rules, every_op_of_a_device_is_checked_has_a_reference_and_cases)
{
    for (int32_t op = 0; op < LATHE_N_OPS; op++) {
        const lathe_op_info *info = lathe_op_info_get(op);
        if (info->runs_on == LATHE_RUNS_QUANT)
            continue;
        cr_expect_not_null((void *)info->exact, "%s", info->name);
        cr_expect(info->cases != NULL && info->cases->in != NULL, "%s", info->name);
        cr_expect(info->runs_on == LATHE_RUNS_ATTENTION || info->check != NULL, "%s", info->name);
    }
}

Test(op_rules, a_trainable_value_must_not_reach_the_factor_of_scale_by)
{
    const lathe_op_info *info = lathe_op_info_get(LATHE_OP_SCALE_BY);
    cr_expect_eq(info->fixed_inputs, 2u);
    lathe_params params;
    lathe_graph *g;
    lathe_val in[2], y, seed;
    const lathe_param row = {
        .name = "s", .desc = {LATHE_F32, 1, {3, 1, 1, 1}}, .layer = -1, .trainable = 1};
    int32_t index;
    lathe_params_init(&params, LATHE_F32);
    OK(lathe_graph_create(&params, &g));
    OK(lathe_params_add(&params, &row, &index));
    OK(lathe_graph_param(g, index, &in[1]));
    OK(lathe_graph_input(g, "x", row.desc, &in[0]));
    OK(lathe_graph_node(g, LATHE_OP_SCALE_BY, NULL, in, 2, &y, 1, -1, "mine"));
    OK(lathe_graph_node(g, LATHE_OP_SUM, NULL, &y, 1, &y, 1, -1, ""));
    OK(lathe_graph_input(g, "seed", g->values[y].desc, &seed));
    cr_expect_eq(lathe_derive(g, y, seed), LATHE_E_UNSUPPORTED);
    cr_expect_str_eq(lathe_error_message(), "scale_by 'mine' has no derivative for its input 1, "
                                            "which a trainable value reaches");
    lathe_graph_destroy(g);
    lathe_params_fini(&params);
}

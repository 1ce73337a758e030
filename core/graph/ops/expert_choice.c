/* EXPERT_CHOICE, which selects the experts of each token by biased scores. */
#include <math.h>
#include <string.h>

#include "graph/ops/rules.h"

enum { MAX_GROUPS = 256 }; /* kernels keep the sum of each group on the stack */

/* Groups of columns; 1 if there are none. */
static int64_t groups_of(const lathe_op_attrs *a)
{
    return a->batch > 1 ? a->batch : 1;
}

/* Columns that take part in a row's choice. */
static int64_t open_columns(const lathe_op_attrs *a, int64_t columns)
{
    const int64_t groups = groups_of(a);
    return groups > 1 ? a->start * (columns / groups) : columns;
}

static int32_t fits(const lathe_op_attrs *a, int64_t columns, int64_t chosen)
{
    const int64_t groups = groups_of(a);
    if (groups > 1 && (groups > MAX_GROUPS || columns % groups != 0 || columns / groups < 2 ||
                       a->start < 1 || a->start > groups))
        return 0;
    return chosen >= 1 && chosen <= open_columns(a, columns);
}

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *bias = lathe__in(p, 1);
    if (!x || x->rank != 2 || x->dtype != LATHE_F32 ||
        (bias && (bias->dtype != LATHE_F32 || bias->rank != 1 || bias->dims[0] != x->dims[1])) ||
        !fits(&p->attrs, x->dims[1], p->attrs.count))
        return lathe__bad_inputs(p, "x f32[N,E], a bias f32[E] or none, groups of at least two "
                                    "columns and a count that the chosen groups have");
    p->out[0] = lathe_desc_2d(LATHE_F32, x->dims[0], p->attrs.count);
    p->out[1] = lathe__with_dtype(p->out[0], LATHE_I32);
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs attrs = {.count = t->g->values[n->in[0]].desc.dims[1]};
    lathe__emit_one(t, n, LATHE_OP_TOPK_BWD, &attrs, dy, n->out[1], n->in[0]);
}

static lathe_status check(const lathe_op_problem *p)
{
    const lathe_desc *x = &p->in[0], *y = &p->out[0];
    if (x->rank != 2 || y->rank != 2 || x->dims[0] != y->dims[0] ||
        !fits(&p->attrs, x->dims[1], y->dims[1]))
        return lathe__refuse_shape(p, "x must be [N, E] and y [N, K], with K experts in the groups "
                                      "that a row chooses");
    LATHE_TRY(lathe__check_in(p, 0, LATHE_F32, lathe_desc_count(x)));
    if (lathe__in(p, 1))
        LATHE_TRY(lathe__check_in(p, 1, LATHE_F32, x->dims[1]));
    LATHE_TRY(lathe__check_out(p, 0, LATHE_F32, lathe_desc_count(y)));
    return lathe__check_out(p, 1, LATHE_I32, lathe_desc_count(y));
}

/* The two largest of n numbers, added; a number that is missing is -INFINITY. */
static double two_largest(const double *x, const double *bias, int64_t n)
{
    double first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const double s = x[i] + (bias != NULL ? bias[i] : 0.0);
        if (s > first) {
            second = first;
            first = s;
        } else if (s > second) {
            second = s;
        }
    }
    return first + second;
}

/* Whether the group of column i takes part in the choice of the row x. */
static int32_t is_open(const lathe_op_problem *p, const double *x, const double *bias, int64_t i)
{
    const int64_t groups = groups_of(&p->attrs), size = p->in[0].dims[1] / groups;
    const int64_t mine = i / size;
    double sums[MAX_GROUPS];
    int64_t before = 0;
    for (int64_t g = 0; g < groups; g++)
        sums[g] = two_largest(x + g * size, bias != NULL ? bias + g * size : NULL, size);
    for (int64_t g = 0; g < groups; g++)
        before += sums[g] > sums[mine] || (sums[g] == sums[mine] && g < mine);
    return groups == 1 || before < p->attrs.start;
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t v = p->in[0].dims[1], k = p->out[0].dims[1];
    const double *bias = in[1];
    for (int64_t r = 0; r < p->in[0].dims[0]; r++) {
        const double *x = in[0] + r * v;
        double last = INFINITY;
        int64_t at = -1;
        for (int64_t j = 0; j < k; j++) {
            int64_t best = -1;
            double most = 0.0;
            for (int64_t i = 0; i < v && (j == 0 || at >= 0); i++) {
                const double s = x[i] + (bias != NULL ? bias[i] : 0.0);
                const int comes_after = j == 0 || s < last || (s == last && i > at);
                if (!isnan(s) && comes_after && (best < 0 || s > most) && is_open(p, x, bias, i)) {
                    best = i;
                    most = s;
                }
            }
            out[0][r * k + j] = best < 0 ? (double)NAN : x[best];
            if (out[1] != NULL)
                out[1][r * k + j] = (double)best;
            at = best;
            last = most;
        }
    }
}

static const lathe_op_case choice_cases[] = {
    LATHE_CASE_WITH("f32[7,64]:w f32[64]", "f32[7,6] i32[7,6]", 0, 0, .count = 6, .batch = 8,
                    .start = 3),
    LATHE_CASE_WITH("f32[5,12]:w f32[12]", "f32[5,4] i32[5,4]", 0, 0, .count = 4, .batch = 6,
                    .start = 2),
    LATHE_CASE_WITH("f32[9,301]:w f32[301]", "f32[9,8] i32[9,8]", 0, 0, .count = 8),
    LATHE_CASE_WITH("f32[3,18] -", "f32[3,18] i32[3,18]", 0, 0, .count = 18, .batch = 3,
                    .start = 3),
    LATHE_CASE_WITH("f32[2,1] f32[1]", "f32[2,1] i32[2,1]", 0, 0, .count = 1),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(EXPERT_CHOICE, .infer = infer, .derive = derive, .check = check, .exact = exact,
                .cases = choice_cases);

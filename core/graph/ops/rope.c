/* ROPE: rotates pairs of elements of each head by the angles of their position. A table of R/2
 * angles rotates the R elements of a head that follow its first `start`; the others are copied. */
#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *pos = lathe__in(p, 1), *table = lathe__in(p, 2);
    const int64_t d = p->attrs.head_dim, start = p->attrs.start;
    if (!x || !pos || !table || d < 2 || x->rank != 2 || x->dims[1] % d ||
        pos->dtype != LATHE_I32 || lathe_desc_count(pos) != x->dims[0] ||
        table->dtype != LATHE_F32 || table->rank != 3 || table->dims[1] != 2 ||
        table->dims[2] < 1 || start < 0 || 2 * table->dims[2] > d - start)
        return lathe__bad_inputs(
            p, "x c[N,H*D], positions i32[N], table f32[P,2,R/2] with start + R <= D");
    p->out[0] = *x;
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[3] = {dy, n->in[1], n->in[2]};
    lathe_op_attrs attrs = n->attrs;
    attrs.inverse = !attrs.inverse;
    if (lathe__needs(t, n->in[0]))
        lathe__emit(t, LATHE_OP_ROPE, &attrs, in, 3, n->in, 1, 1, n->label);
}

static lathe_status check(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]), rows = lathe_desc_count(&p->in[1]);
    const int64_t d = p->attrs.head_dim, start = p->attrs.start;
    const lathe_desc *table = &p->in[2];
    if (d < 2 || rows < 1 || n % (rows * d) != 0)
        return lathe__refuse_shape(p, "x must be [N, H*head_dim]");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
    LATHE_TRY(lathe__check_in(p, 1, LATHE_I32, rows));
    if (table->rank != 3 || table->dims[1] != 2 || table->dims[2] < 1 || start < 0 ||
        2 * table->dims[2] > d - start)
        return lathe__refuse_shape(p,
                                   "the table must be [P, 2, R/2] with R at most head_dim - start");
    LATHE_TRY(lathe__check_in(p, 2, LATHE_F32, lathe_desc_count(table)));
    return lathe__check_out(p, 0, p->in[0].dtype, n);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[1]), d = p->attrs.head_dim;
    const int64_t width = lathe_desc_count(&p->in[0]) / n, half = p->in[2].dims[2];
    for (int64_t r = 0; r < n; r++)
        for (int64_t e = 0; e < width; e++) {
            const int64_t of_head = e % d - p->attrs.start, stride = p->attrs.interleaved ? 2 : 1;
            if (of_head < 0 || of_head >= 2 * half) {
                out[0][r * width + e] = in[0][r * width + e];
                continue;
            }
            /* pair i of a head: elements 2i and 2i + 1 if interleaved, else i and i + half */
            const int64_t i = stride == 2 ? of_head % (2 * half) / 2 : of_head % half;
            const int64_t first = r * width + e - of_head + stride * i;
            const int64_t second = first + (stride == 2 ? 1 : half);
            const double *angles = in[2] + (int64_t)in[1][r] * 2 * half;
            const double sine = p->attrs.inverse ? -angles[half + i] : angles[half + i];
            const double x1 = in[0][first], x2 = in[0][second];
            out[0][r * width + e] =
                r * width + e == first ? x1 * angles[i] - x2 * sine : x2 * angles[i] + x1 * sine;
        }
}

static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("c[19,66] i32[19]:t31 f32[31,2,11]", "c[19,66]", 2, 0, .head_dim = 22),
    LATHE_CASE_WITH("c[7,4] i32[7]:t9 f32[9,2,1]", "c[7,4]", 2, 0, .head_dim = 2, .inverse = 1),
    LATHE_CASE_WITH("c[19,66] i32[19]:t31 f32[31,2,3]", "c[19,66]", 2, 0, .head_dim = 22),
    LATHE_CASE_WITH("c[9,96] i32[9]:t31 f32[31,2,8]", "c[9,96]", 2, 0, .head_dim = 32,
                    .inverse = 1),
    LATHE_CASE_WITH("c[9,14] i32[9]:t31 f32[31,2,2]", "c[9,14]", 2, 0, .head_dim = 7),
    LATHE_CASE_WITH("c[19,66] i32[19]:t31 f32[31,2,11]", "c[19,66]", 2, 0, .head_dim = 22,
                    .interleaved = 1),
    LATHE_CASE_WITH("c[9,96] i32[9]:t31 f32[31,2,8]", "c[9,96]", 2, 0, .head_dim = 32, .inverse = 1,
                    .interleaved = 1),
    LATHE_CASE_WITH("c[9,14] i32[9]:t31 f32[31,2,2]", "c[9,14]", 2, 0, .head_dim = 7,
                    .interleaved = 1),
    LATHE_CASE_WITH("c[9,96] i32[9]:t31 f32[31,2,4]", "c[9,96]", 2, 0, .head_dim = 32, .start = 24),
    LATHE_CASE_WITH("c[9,33] i32[9]:t31 f32[31,2,2]", "c[9,33]", 2, 0, .head_dim = 11, .start = 5,
                    .interleaved = 1),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(ROPE, .inplace = 1, .fixed_inputs = 4, .infer = infer, .derive = derive,
                .check = check, .exact = exact, .cases = cases);

/* SKEW: skew-symmetric blocks from what is above their diagonals, and back; each direction is the
 * derivative of the other. */
#include "graph/ops/rules.h"

/* Columns and number of the blocks; 0: x has no such shape. */
static int64_t side_of(const lathe_op_problem *p, int64_t *out_blocks)
{
    const lathe_desc *x = &p->in[0];
    int64_t b = 2;
    if (x->rank != 2 || x->dims[0] < 1)
        return 0;
    if (p->attrs.inverse) {
        *out_blocks = x->dims[1] / x->dims[0];
        return x->dims[0] >= 2 && *out_blocks >= 1 && x->dims[1] % x->dims[0] == 0 ? x->dims[0] : 0;
    }
    *out_blocks = x->dims[0];
    while (b * (b - 1) / 2 < x->dims[1])
        b++;
    return b * (b - 1) / 2 == x->dims[1] ? b : 0;
}

static lathe_desc result(const lathe_op_problem *p, int64_t b, int64_t blocks)
{
    const int32_t dtype = p->in[0].dtype;
    return p->attrs.inverse ? lathe_desc_2d(dtype, blocks, b * (b - 1) / 2)
                            : lathe_desc_2d(dtype, b, blocks * b);
}

static lathe_status infer(lathe_op_problem *p)
{
    int64_t blocks;
    const int64_t b = lathe__in(p, 0) ? side_of(p, &blocks) : 0;
    if (b == 0)
        return lathe__bad_inputs(p, p->attrs.inverse ? "[b, G*b], b at least 2"
                                                     : "[G, b(b-1)/2], b at least 2");
    p->out[0] = result(p, b, blocks);
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs attrs = {.inverse = !n->attrs.inverse};
    lathe__emit_one(t, n, LATHE_OP_SKEW, &attrs, dy, LATHE_NONE, n->in[0]);
}

static lathe_status check(const lathe_op_problem *p)
{
    int64_t blocks;
    const int64_t b = side_of(p, &blocks);
    if (b == 0)
        return lathe__refuse_shape(p, "x must be [G, b(b-1)/2], or [b, G*b] with `inverse`");
    const lathe_desc want = result(p, b, blocks);
    if (!lathe__same_shape(&p->out[0], &want))
        return lathe__refuse_shape(p, "y must be [b, G*b], or [G, b(b-1)/2] with `inverse`");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(&p->in[0])));
    return lathe__check_out(p, 0, p->in[0].dtype, lathe_desc_count(&want));
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    int64_t blocks = 0;
    const int64_t b = side_of(p, &blocks), width = blocks * b;
    for (int64_t g = 0; g < blocks; g++) {
        int64_t at = g * (b * (b - 1) / 2);
        for (int64_t i = 0; i < b; i++)
            for (int64_t j = i + 1; j < b; j++, at++) {
                const int64_t upper = i * width + g * b + j, lower = j * width + g * b + i;
                if (p->attrs.inverse) {
                    out[0][at] = in[0][upper] - in[0][lower];
                } else {
                    out[0][upper] = in[0][at];
                    out[0][lower] = -in[0][at];
                }
            }
    }
}

static const lathe_op_case cases[] = {
    LATHE_CASE("c[5,21]", "c[7,35]", 2, 0),
    LATHE_CASE("c[3,1]", "c[2,6]", 2, 0),
    LATHE_CASE_WITH("c[9,36]", "c[4,36]", 2, 0, .inverse = 1),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(SKEW, .accumulates = 1, .reads_anywhere = 1, .infer = infer, .derive = derive,
                .check = check, .exact = exact, .cases = cases);

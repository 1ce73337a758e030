/* DROPOUT and its derivative, which uses the same mask. */
#include "graph/ops/rules.h"
#include "lathe/rng.h"

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_DROPOUT_BWD, &n->attrs, dy, n->in[1], n->in[0]);
}

static lathe_status check(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]);
    if (!(p->attrs.p >= 0.0f && p->attrs.p < 1.0f))
        return lathe_error(LATHE_E_ARG, "%s: p is %g, expected [0, 1)", lathe__op_name(p),
                           (double)p->attrs.p);
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
    LATHE_TRY(lathe__check_in(p, 1, LATHE_I64, LATHE_RNG_COUNTER));
    return lathe__check_out(p, 0, p->in[0].dtype, n);
}

/* The backward multiplies dy by the same mask. */
static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++) {
        const int64_t e = lathe__random_index(in[1], lathe_desc_count(&p->in[0]), i);
        const lathe_u32x4 r = lathe_rng_block((uint64_t)in[1][0], (uint64_t)in[1][1],
                                              p->attrs.rng_stream, (uint64_t)(e / 4));
        const int kept = lathe_uniform_f32(r.v[e % 4]) >= p->attrs.p;
        out[0][i] = kept ? in[0][i] / (1.0 - (double)p->attrs.p) : 0.0;
    }
}

static const lathe_op_case forward_cases[] = {
    LATHE_CASE_WITH("c[5003] i64[5]:r", "c[5003]", 1, 0, .p = 0.3f, .rng_stream = 9),
    LATHE_CASE_WITH("c[5002] i64[5]:R", "c[5002]", 1, 0, .p = 0.3f, .rng_stream = 9),
    LATHE_CASE_WITH("c[5003] i64[5]:R", "c[5003]", 1, 0, .p = 0.3f, .rng_stream = 9),
    LATHE_CASE_WITH("c[5] i64[5]:r", "c[5]", 1, 0, .p = 0.0f,
                    .rng_stream = ((uint64_t)5 << 33) + 9),
    LATHE_LAST_CASE,
};

static const lathe_op_case backward_cases[] = {
    LATHE_CASE_WITH("c[5003] i64[5]:r", "c[5003]", 1, 0, .p = 0.3f, .rng_stream = 9),
    LATHE_CASE_WITH("c[5002] i64[5]:R", "c[5002]", 1, 0, .p = 0.3f, .rng_stream = 9),
    LATHE_CASE_WITH("c[5003] i64[5]:R", "c[5003]", 1, 0, .p = 0.3f, .rng_stream = 9),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(DROPOUT, .training_only = 1, .infer = lathe__infer_like, .derive = derive,
                .check = check, .exact = exact, .cases = forward_cases);
LATHE_OP_DEFINE(DROPOUT_BWD, .accumulates = 1, .infer = lathe__infer_like, .check = check,
                .exact = exact, .cases = backward_cases);

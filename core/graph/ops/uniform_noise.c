/* UNIFORM_NOISE, whose derivative is that of its input. */
#include "graph/ops/rules.h"
#include "lathe/rng.h"

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__add_to_grad(t, n->in[0], dy, n->label);
}

static lathe_status check(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]);
    if (!(p->attrs.alpha >= 0.0 && p->attrs.alpha <= 3e38))
        return lathe_error(LATHE_E_ARG, "%s: alpha is %g, expected a finite number of at least 0",
                           lathe__op_name(p), p->attrs.alpha);
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
    LATHE_TRY(lathe__check_in(p, 1, LATHE_I64, LATHE_RNG_COUNTER));
    return lathe__check_out(p, 0, p->in[0].dtype, n);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++) {
        const int64_t e = lathe__random_index(in[1], lathe_desc_count(&p->in[0]), i);
        const lathe_u32x4 r = lathe_rng_block((uint64_t)in[1][0], (uint64_t)in[1][1],
                                              p->attrs.rng_stream, (uint64_t)(e / 4));
        out[0][i] = in[0][i] + p->attrs.alpha * (2.0 * (double)lathe_uniform_f32(r.v[e % 4]) - 1.0);
    }
}

static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("c[5003] i64[5]:r", "c[5003]", 1, 0, .alpha = 0.25, .rng_stream = 9),
    LATHE_CASE_WITH("c[5002] i64[5]:R", "c[5002]", 1, 0, .alpha = 0.25, .rng_stream = 9),
    LATHE_CASE_WITH("c[5] i64[5]:r", "c[5]", 1, 0, .alpha = 0.0,
                    .rng_stream = ((uint64_t)5 << 33) + 9),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(UNIFORM_NOISE, .training_only = 1, .inplace = 1, .infer = lathe__infer_like,
                .derive = derive, .check = check, .exact = exact, .cases = cases);

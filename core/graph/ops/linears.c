/* LINEARS: two or three products of one input. */
#include "graph/ops/rules.h"

enum { MAX_PRODUCTS = 3 };

/* Product i of a problem: its weight is input 1 + 2i, its bias the one after that. */
static int32_t weight_of(int32_t i)
{
    return 1 + 2 * i;
}

static int32_t n_products(const lathe_op_problem *p)
{
    return lathe__in(p, weight_of(2)) ? 3 : 2;
}

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0);
    for (int32_t i = 0; i < n_products(p); i++) {
        const lathe_desc *w = lathe__in(p, weight_of(i)), *b = lathe__in(p, weight_of(i) + 1);
        if (!x || !w || x->rank != 2 || w->rank != 2 || x->dims[1] != w->dims[1] ||
            x->dtype != w->dtype || (b && !lathe__is_vector(b, w->dims[0])))
            return lathe__bad_inputs(p,
                                     "x c[N,I], and two or three times W c[O,I], b f32[O] or none");
        p->out[i] = lathe_desc_2d(x->dtype, x->dims[0], w->dims[0]);
    }
    return LATHE_OK;
}

static double flops(const lathe_op_problem *p)
{
    double sum = 0.0;
    for (int32_t i = 0; i < n_products(p); i++)
        sum += 2.0 * (double)lathe_desc_count(&p->in[0]) * (double)p->in[weight_of(i)].dims[0];
    return sum;
}

static lathe_status check(const lathe_op_problem *p)
{
    const int64_t k = lathe__last_dim(&p->in[0]);
    if (k < 1 || lathe_desc_count(&p->in[0]) < 1)
        return lathe__refuse_shape(p, "x must be [N, I], both at least 1");
    const int64_t n = lathe_desc_count(&p->in[0]) / k;
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n * k));
    for (int32_t i = 0; i < n_products(p); i++) {
        const lathe_desc *w = &p->in[weight_of(i)];
        if (!lathe__in(p, weight_of(i)) || w->rank != 2 || w->dims[1] != k || w->dims[0] < 1)
            return lathe__refuse_shape(p, "each W must be [O, I] for x [N, I], all at least 1");
        LATHE_TRY(lathe__check_weight(p, weight_of(i)));
        if (lathe__in(p, weight_of(i) + 1))
            LATHE_TRY(lathe__check_in(p, weight_of(i) + 1, LATHE_F32, w->dims[0]));
        LATHE_TRY(lathe__check_out(p, i, p->in[0].dtype, n * w->dims[0]));
    }
    if (n_products(p) < MAX_PRODUCTS && lathe__out(p, 2))
        return lathe__refuse_shape(p, "a third result needs a third weight");
    if (p->attrs.fp8 != 0)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s is not computed in fp8", lathe__op_name(p));
    return LATHE_OK;
}

/* Element (row, j) of product i. */
static double element(const lathe_op_problem *p, double *const *in, int32_t i, int64_t row,
                      int64_t j)
{
    const int64_t k = lathe__last_dim(&p->in[0]);
    const double *x = in[0] + row * k, *w = in[weight_of(i)] + j * k, *b = in[weight_of(i) + 1];
    double sum = b != NULL ? b[j] : 0.0;
    for (int64_t e = 0; e < k; e++)
        sum += x[e] * w[e];
    return sum;
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[0]) / lathe__last_dim(&p->in[0]);
    for (int32_t i = 0; i < n_products(p); i++) {
        const int64_t o = p->in[weight_of(i)].dims[0];
        for (int64_t e = 0; e < n * o; e++)
            out[i][e] = element(p, in, i, e / o, e % o);
    }
}

static const lathe_op_case cases[] = {
    LATHE_CASE("c[1,40] c[37,40] f32[37] c[12,40] - c[5,40] f32[5]", "c[1,37] c[1,12] c[1,5]", 40,
               0),
    LATHE_CASE("c[13,24] c[6,24] - c[41,24] f32[41] - -", "c[13,6] c[13,41] -", 24, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(LINEARS, .infer = infer, .flops = flops, .check = check, .exact = exact,
                .cases = cases);

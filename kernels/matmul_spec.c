/* The products behind LINEAR, its two derivatives and MATMUL: checks, and what they multiply.
 *
 *   y = x W^T + b        x c[N,I], W c[O,I], b f32[O], y c[N,O]
 *   dx = dy W            dy c[N,O]
 *   dW = dy^T x          f32 or c[O,I];  db = column sums of dy, f32[O]
 *   y = alpha op(a) op(b)
 *   the first two also with GELU behind them, of x's dtype throughout
 */
#include "matmul_spec.h"

#include "lathe/fp8.h"

static void add_or_overwrite(const lathe_kernel *k, matmul_spec *out)
{
    out->may_accumulate = (k->may_accumulate & 1u) != 0;
    out->may_overwrite = (k->may_overwrite & 1u) != 0;
}

/* What the attribute fp8 asks of a product of these dims. */
static lathe_status take_fp8(const lathe_kernel *k, int32_t a_fp8, matmul_spec *s)
{
    if (k->attrs.fp8 == LATHE_FP8_NONE)
        return LATHE_OK;
    if (k->attrs.fp8 < 0 || k->attrs.fp8 >= LATHE_N_FP8)
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED, "%s: fp8 recipe %d is unknown here",
                          kernel_op_name(k), (int)k->attrs.fp8);
    if (s->a_dtype != LATHE_BF16)
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED, "%s: fp8 is cast from bf16, not from %s",
                          kernel_op_name(k), lathe_dtype_name(s->a_dtype));
    if (s->m % LATHE_FP8_DIM != 0 || s->n % LATHE_FP8_DIM != 0 || s->k % LATHE_FP8_DIM != 0)
        return lathe_fail(k->host, LATHE_E_SHAPE,
                          "%s: [%lld,%lld]x[%lld,%lld] in fp8: the dims must be multiples of %d",
                          kernel_op_name(k), (long long)s->m, (long long)s->k, (long long)s->k,
                          (long long)s->n, LATHE_FP8_DIM);
    s->fp8 = k->attrs.fp8;
    s->a_fp8 = a_fp8;
    s->b_fp8 = LATHE_F8_E4M3;
    return LATHE_OK;
}

/* Width of the last dim; everything before it counts as rows. */
static int64_t width(const lathe_desc *d)
{
    return d->rank > 0 ? d->dims[d->rank - 1] : 1;
}

lathe_status kernel_product_linear(const lathe_kernel *k, matmul_spec *out)
{
    if (k->in[1].rank != 2)
        return kernel_bad_shape(k, "W must have two dims");
    const int64_t o = k->in[1].dims[0], i = k->in[1].dims[1];
    const int64_t n = width(&k->in[0]) == i && i > 0 ? lathe_desc_count(&k->in[0]) / i : -1;
    if (n < 1 || o < 1)
        return kernel_bad_shape(k, "x must be [N, I] for W [O, I], all at least 1");
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n * i));
    LATHE_TRY(kernel_check_in(k, 1, k->in[0].dtype, o * i));
    LATHE_TRY(kernel_check_out(k, 0, KERNEL_COMPUTE, n * o));
    if (kernel_has_in(k, 2))
        LATHE_TRY(kernel_check_in(k, 2, LATHE_F32, o));
    *out = (matmul_spec){.m = n,
                         .n = o,
                         .k = i,
                         .a_dtype = k->in[0].dtype,
                         .b_dtype = k->in[1].dtype,
                         .c_dtype = k->out[0].dtype,
                         .trans_b = 1,
                         .bias = kernel_has_in(k, 2),
                         .alpha = 1.0};
    add_or_overwrite(k, out);
    return take_fp8(k, LATHE_F8_E4M3, out);
}

lathe_status kernel_product_dx(const lathe_kernel *k, matmul_spec *out)
{
    if (k->in[1].rank != 2)
        return kernel_bad_shape(k, "W must have two dims");
    const int64_t o = k->in[1].dims[0], i = k->in[1].dims[1];
    const int64_t n = width(&k->in[0]) == o && o > 0 ? lathe_desc_count(&k->in[0]) / o : -1;
    if (n < 1 || i < 1)
        return kernel_bad_shape(k, "dy must be [N, O] for W [O, I], all at least 1");
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n * o));
    LATHE_TRY(kernel_check_in(k, 1, k->in[0].dtype, o * i));
    LATHE_TRY(kernel_check_out(k, 0, KERNEL_COMPUTE, n * i));
    *out = (matmul_spec){.m = n,
                         .n = i,
                         .k = o,
                         .a_dtype = k->in[0].dtype,
                         .b_dtype = k->in[1].dtype,
                         .c_dtype = k->out[0].dtype,
                         .alpha = 1.0};
    add_or_overwrite(k, out);
    return take_fp8(k, LATHE_F8_E5M2, out);
}

static lathe_status refuse_fp8(const lathe_kernel *k)
{
    if (k->attrs.fp8 == LATHE_FP8_NONE)
        return LATHE_OK;
    return lathe_fail(k->host, LATHE_E_UNSUPPORTED, "%s is not computed in fp8", kernel_op_name(k));
}

lathe_status kernel_product_linear_gelu(const lathe_kernel *k, matmul_spec *out)
{
    LATHE_TRY(refuse_fp8(k));
    LATHE_TRY(kernel_product_linear(k, out));
    for (int32_t i = 0; i < 2; i++)
        if (i == 0 || kernel_has_out(k, i))
            LATHE_TRY(kernel_check_out(k, i, out->a_dtype, out->m * out->n));
    return LATHE_OK;
}

lathe_status kernel_product_dx_gelu(const lathe_kernel *k, matmul_spec *out)
{
    LATHE_TRY(refuse_fp8(k));
    LATHE_TRY(kernel_product_dx(k, out));
    LATHE_TRY(kernel_check_out(k, 0, out->a_dtype, out->m * out->n));
    return kernel_check_in(k, 2, out->a_dtype, out->m * out->n);
}

lathe_status kernel_product_matmul(const lathe_kernel *k, matmul_spec *out)
{
    const lathe_desc *a = &k->in[0], *b = &k->in[1];
    const int ta = k->attrs.trans_a != 0, tb = k->attrs.trans_b != 0;
    if (a->rank != 2 || b->rank != 2)
        return kernel_bad_shape(k, "a and b must have two dims");
    const int64_t m = a->dims[ta], n = b->dims[!tb], kk = a->dims[!ta];
    if (b->dims[tb] != kk || m < 1 || n < 1 || kk < 1)
        return kernel_bad_shape(k, "op(a) is [m, k] and op(b) is [k, n], all at least 1");
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, m * kk));
    LATHE_TRY(kernel_check_in(k, 1, k->in[0].dtype, kk * n));
    LATHE_TRY(kernel_check_out(k, 0, KERNEL_COMPUTE, m * n));
    if (a->dtype == LATHE_F32 && k->out[0].dtype != LATHE_F32)
        return lathe_fail(k->host, LATHE_E_DTYPE, "matmul: f32 inputs give f32, not %s",
                          lathe_dtype_name(k->out[0].dtype));
    *out = (matmul_spec){.m = m,
                         .n = n,
                         .k = kk,
                         .a_dtype = a->dtype,
                         .b_dtype = b->dtype,
                         .c_dtype = k->out[0].dtype,
                         .trans_a = ta,
                         .trans_b = tb,
                         .alpha = k->attrs.alpha};
    add_or_overwrite(k, out);
    return LATHE_OK;
}

lathe_status kernel_product_dw(const lathe_kernel *k, matmul_spec *out)
{
    const int64_t o = width(&k->in[0]), i = width(&k->in[1]);
    const int64_t n = o > 0 ? lathe_desc_count(&k->in[0]) / o : 0;
    if (n < 1 || o < 1 || i < 1)
        return kernel_bad_shape(k, "dy [N, O] and x [N, I] must be at least 1 in each dim");
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n * o));
    LATHE_TRY(kernel_check_in(k, 1, k->in[0].dtype, n * i));
    const int32_t narrow = k->out[0].dtype != LATHE_F32;
    LATHE_TRY(kernel_check_out(k, 0, narrow ? k->in[0].dtype : LATHE_F32, o * i));
    if (kernel_has_out(k, 1))
        LATHE_TRY(kernel_check_out(k, 1, LATHE_F32, o));
    *out = (matmul_spec){.m = o,
                         .n = i,
                         .k = n,
                         .a_dtype = k->in[0].dtype,
                         .b_dtype = k->in[1].dtype,
                         .c_dtype = k->out[0].dtype,
                         .trans_a = 1,
                         .alpha = 1.0};
    add_or_overwrite(k, out);
    return take_fp8(k, LATHE_F8_E5M2, out);
}

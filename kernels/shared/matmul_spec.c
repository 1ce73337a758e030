/* Describes the products that LINEAR, its two derivatives and MATMUL compute.
 *
 *   y = x W^T + b        x c[N,I], W c[O,I], b f32[O], y c[N,O]
 *   dx = dy W            dy c[N,O]
 *   dW = dy^T x          f32 or c[O,I];  db = column sums of dy, f32[O]
 *   y = alpha op(a) op(b)
 *
 * LINEAR_GELU and LINEAR_DX_GELU use the first two, with one dtype for all tensors.
 */
#include "shared/matmul_spec.h"

#include "lathe/fp8.h"

/* The dtype in which W is multiplied. */
static int32_t weight_dtype(const lathe_kernel *k)
{
    return k->in[k->in[1].dtype == LATHE_PLANES ? 0 : 1].dtype;
}

static void add_or_overwrite(const lathe_kernel *k, matmul_spec *out)
{
    out->may_accumulate = (k->may_accumulate & 1u) != 0;
    out->may_overwrite = (k->may_overwrite & 1u) != 0;
}

/* If the op's attribute asks for fp8: a is cast to a_fp8, b to e4m3. */
static void take_fp8(const lathe_kernel *k, int32_t a_fp8, matmul_spec *s)
{
    if (k->attrs.fp8 == LATHE_FP8_NONE)
        return;
    s->fp8 = k->attrs.fp8;
    s->a_fp8 = a_fp8;
    s->b_fp8 = LATHE_F8_E4M3;
}

void kernel_product_linear(const lathe_kernel *k, matmul_spec *out)
{
    const int64_t o = k->in[1].dims[0], i = k->in[1].dims[1];
    *out = (matmul_spec){.m = lathe_desc_count(&k->in[0]) / i,
                         .n = o,
                         .k = i,
                         .a_dtype = k->in[0].dtype,
                         .b_dtype = weight_dtype(k),
                         .c_dtype = k->out[0].dtype,
                         .trans_b = 1,
                         .bias = kernel_has_in(k, 2),
                         .invariant = k->attrs.invariant,
                         .alpha = 1.0};
    add_or_overwrite(k, out);
    take_fp8(k, LATHE_F8_E4M3, out);
}

void kernel_product_dx(const lathe_kernel *k, matmul_spec *out)
{
    const int64_t o = k->in[1].dims[0], i = k->in[1].dims[1];
    *out = (matmul_spec){.m = lathe_desc_count(&k->in[0]) / o,
                         .n = i,
                         .k = o,
                         .a_dtype = k->in[0].dtype,
                         .b_dtype = weight_dtype(k),
                         .c_dtype = k->out[0].dtype,
                         .alpha = 1.0};
    add_or_overwrite(k, out);
    take_fp8(k, LATHE_F8_E5M2, out);
}

void kernel_product_dw(const lathe_kernel *k, matmul_spec *out)
{
    const lathe_desc *dy = &k->in[0], *x = &k->in[1];
    const int64_t o = dy->dims[dy->rank - 1], i = x->dims[x->rank - 1];
    *out = (matmul_spec){.m = o,
                         .n = i,
                         .k = lathe_desc_count(dy) / o,
                         .a_dtype = dy->dtype,
                         .b_dtype = x->dtype,
                         .c_dtype = k->out[0].dtype,
                         .trans_a = 1,
                         .alpha = 1.0};
    add_or_overwrite(k, out);
    take_fp8(k, LATHE_F8_E5M2, out);
}

void kernel_product_matmul(const lathe_kernel *k, matmul_spec *out)
{
    const lathe_desc *a = &k->in[0], *b = &k->in[1];
    const int ta = k->attrs.trans_a != 0, tb = k->attrs.trans_b != 0;
    *out = (matmul_spec){.m = a->dims[ta],
                         .n = b->dims[!tb],
                         .k = a->dims[!ta],
                         .a_dtype = a->dtype,
                         .b_dtype = b->dtype,
                         .c_dtype = k->out[0].dtype,
                         .trans_a = ta,
                         .trans_b = tb,
                         .alpha = k->attrs.alpha};
    add_or_overwrite(k, out);
}

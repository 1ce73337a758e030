/* LINEAR, its two derivatives and MATMUL: shapes and operands of the products.
 *
 *   y = x W^T + b        x c[N,I], W c[O,I], b f32[O], y c[N,O]
 *   dx = dy W            dy c[N,O]
 *   dW = dy^T x          f32[O,I];  db = column sums of dy, f32[O]
 *   y = alpha op(a) op(b)
 */
#include "product.h"

typedef struct linear {
    cpu_product *product;
    int64_t rows, cols; /* of dy, for db */
} linear;

static void release(lathe_kernel *k)
{
    linear *s = k->state;
    cpu_product_destroy(k->device, s->product);
    k->host->free(s);
}

static lathe_status make(lathe_kernel *k, cpu_matmul_spec *spec, int64_t *out_scratch)
{
    linear *s = k->host->alloc((int64_t)sizeof *s);
    if (s == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", cpu_op_name(k));
    k->state = s;
    spec->may_accumulate = (k->may_accumulate & 1u) != 0;
    spec->may_overwrite = (k->may_overwrite & 1u) != 0;
    return cpu_product_create(k->device, spec, &s->product, out_scratch);
}

/* Width of the last dim; everything before it counts as rows. */
static int64_t width(const lathe_desc *d)
{
    return d->rank > 0 ? d->dims[d->rank - 1] : 1;
}

static lathe_status prepare_linear(lathe_kernel *k, int64_t *out_scratch)
{
    if (k->in[1].rank != 2)
        return cpu_bad_shape(k, "W must have two dims");
    const int64_t o = k->in[1].dims[0], i = k->in[1].dims[1];
    const int64_t n = width(&k->in[0]) == i && i > 0 ? lathe_desc_count(&k->in[0]) / i : -1;
    if (n < 1 || o < 1)
        return cpu_bad_shape(k, "x must be [N, I] for W [O, I], all at least 1");
    LATHE_TRY(cpu_check_in(k, 0, CPU_COMPUTE, n * i));
    LATHE_TRY(cpu_check_in(k, 1, k->in[0].dtype, o * i));
    LATHE_TRY(cpu_check_out(k, 0, CPU_COMPUTE, n * o));
    if (cpu_has_in(k, 2))
        LATHE_TRY(cpu_check_in(k, 2, LATHE_F32, o));
    cpu_matmul_spec spec = {.m = n,
                            .n = o,
                            .k = i,
                            .a_dtype = k->in[0].dtype,
                            .b_dtype = k->in[1].dtype,
                            .c_dtype = k->out[0].dtype,
                            .trans_b = 1,
                            .bias = cpu_has_in(k, 2),
                            .alpha = 1.0};
    return make(k, &spec, out_scratch);
}

static lathe_status run_linear(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear *s = k->state;
    return cpu_product_run(k->device, s->product, a->in[0], a->in[1],
                           cpu_has_in(k, 2) ? a->in[2] : NULL, a->out[0], a->scratch, 0);
}

static lathe_status prepare_dx(lathe_kernel *k, int64_t *out_scratch)
{
    if (k->in[1].rank != 2)
        return cpu_bad_shape(k, "W must have two dims");
    const int64_t o = k->in[1].dims[0], i = k->in[1].dims[1];
    const int64_t n = width(&k->in[0]) == o && o > 0 ? lathe_desc_count(&k->in[0]) / o : -1;
    if (n < 1 || i < 1)
        return cpu_bad_shape(k, "dy must be [N, O] for W [O, I], all at least 1");
    LATHE_TRY(cpu_check_in(k, 0, CPU_COMPUTE, n * o));
    LATHE_TRY(cpu_check_in(k, 1, k->in[0].dtype, o * i));
    LATHE_TRY(cpu_check_out(k, 0, CPU_COMPUTE, n * i));
    cpu_matmul_spec spec = {.m = n,
                            .n = i,
                            .k = o,
                            .a_dtype = k->in[0].dtype,
                            .b_dtype = k->in[1].dtype,
                            .c_dtype = k->out[0].dtype,
                            .alpha = 1.0};
    return make(k, &spec, out_scratch);
}

static lathe_status run_two(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear *s = k->state;
    return cpu_product_run(k->device, s->product, a->in[0], a->in[1], NULL, a->out[0], a->scratch,
                           (a->accumulate & 1u) != 0);
}

static lathe_status prepare_dw(lathe_kernel *k, int64_t *out_scratch)
{
    const int64_t o = width(&k->in[0]), i = width(&k->in[1]);
    const int64_t n = o > 0 ? lathe_desc_count(&k->in[0]) / o : 0;
    if (n < 1 || o < 1 || i < 1)
        return cpu_bad_shape(k, "dy [N, O] and x [N, I] must be at least 1 in each dim");
    LATHE_TRY(cpu_check_in(k, 0, CPU_COMPUTE, n * o));
    LATHE_TRY(cpu_check_in(k, 1, k->in[0].dtype, n * i));
    LATHE_TRY(cpu_check_out(k, 0, LATHE_F32, o * i));
    cpu_matmul_spec spec = {.m = o,
                            .n = i,
                            .k = n,
                            .a_dtype = k->in[0].dtype,
                            .b_dtype = k->in[1].dtype,
                            .c_dtype = LATHE_F32,
                            .trans_a = 1,
                            .alpha = 1.0};
    LATHE_TRY(make(k, &spec, out_scratch));
    linear *s = k->state;
    s->rows = n;
    s->cols = o;
    if (cpu_has_out(k, 1)) {
        LATHE_TRY(cpu_check_out(k, 1, LATHE_F32, o));
        const int64_t partials = cpu_colsum_scratch(n, o);
        if (partials > *out_scratch) /* db is finished before the product starts */
            *out_scratch = partials;
    }
    return LATHE_OK;
}

static lathe_status run_dw(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear *s = k->state;
    if (cpu_has_out(k, 1))
        cpu_colsum(k->host, a->in[0], k->in[0].dtype, s->rows, s->cols, a->out[1],
                   (a->accumulate & 2u) != 0, a->scratch);
    return run_two(k, a);
}

static lathe_status prepare_matmul(lathe_kernel *k, int64_t *out_scratch)
{
    const lathe_desc *a = &k->in[0], *b = &k->in[1];
    const int ta = k->attrs.trans_a != 0, tb = k->attrs.trans_b != 0;
    if (a->rank != 2 || b->rank != 2)
        return cpu_bad_shape(k, "a and b must have two dims");
    const int64_t m = a->dims[ta], n = b->dims[!tb], kk = a->dims[!ta];
    if (b->dims[tb] != kk || m < 1 || n < 1 || kk < 1)
        return cpu_bad_shape(k, "op(a) is [m, k] and op(b) is [k, n], all at least 1");
    LATHE_TRY(cpu_check_in(k, 0, CPU_COMPUTE, m * kk));
    LATHE_TRY(cpu_check_in(k, 1, k->in[0].dtype, kk * n));
    LATHE_TRY(cpu_check_out(k, 0, CPU_COMPUTE, m * n));
    if (a->dtype == LATHE_F32 && k->out[0].dtype != LATHE_F32)
        return lathe_fail(k->host, LATHE_E_DTYPE, "matmul: f32 inputs give f32, not %s",
                          lathe_dtype_name(k->out[0].dtype));
    cpu_matmul_spec spec = {.m = m,
                            .n = n,
                            .k = kk,
                            .a_dtype = a->dtype,
                            .b_dtype = b->dtype,
                            .c_dtype = k->out[0].dtype,
                            .trans_a = ta,
                            .trans_b = tb,
                            .alpha = k->attrs.alpha};
    return make(k, &spec, out_scratch);
}

const cpu_op cpu_op_linear = {prepare_linear, run_linear, release, 0};
const cpu_op cpu_op_linear_dx = {prepare_dx, run_two, release, 1};
const cpu_op cpu_op_linear_dw = {prepare_dw, run_dw, release, 3};
const cpu_op cpu_op_matmul = {prepare_matmul, run_two, release, 1};

/* LINEAR, its two derivatives and MATMUL by oneDNN; matmul_spec.c describes the products.
 *
 * LINEAR_GELU and LINEAR_DX_GELU apply GELU in place, to the result of the product, which saves the
 * memory of one tensor. oneDNN's post-ops cannot do this: its gelu has one result, but training
 * also needs z, and no post-op multiplies by the derivative of gelu.
 */
#include "ops/gelu.h"
#include "products/column_sums.h"
#include "products/fp8_gemm.h"
#include "products/product.h"
#include "products/quantized_product.h"

typedef struct linear {
    cpu_product *product;
    cpu_fp8_product *fp8;     /* used instead of `product` */
    cpu_quantized *quantized; /* likewise */
    int64_t rows, cols;       /* of dy, for db */
} linear;

static void release(lathe_kernel *k)
{
    linear *s = k->state;
    cpu_product_destroy(k->device, s->product);
    cpu_fp8_product_destroy(k->device, s->fp8);
    cpu_quantized_destroy(k->device, s->quantized);
    k->host->free(s);
}

static lathe_status make(lathe_kernel *k, const matmul_spec *spec, int64_t *out_scratch)
{
    linear *s = k->host->alloc((int64_t)sizeof *s);
    if (s == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    if (k->in[1].dtype == LATHE_PLANES)
        return cpu_quantized_create(k->device, spec, &k->weights[1], &s->quantized, out_scratch);
    if (spec->fp8 != 0)
        return cpu_fp8_product_create(k->device, spec, &s->fp8, out_scratch);
    return cpu_product_create(k->device, spec, &s->product, out_scratch);
}

/* One of the functions kernel_product_*(). */
typedef void (*spec_fn)(const lathe_kernel *k, matmul_spec *out);
static lathe_status prepare(lathe_kernel *k, spec_fn say, int64_t *out_scratch)
{
    matmul_spec spec;
    say(k, &spec);
    return make(k, &spec, out_scratch);
}

static lathe_status prepare_linear(lathe_kernel *k, int64_t *out_scratch)
{
    return prepare(k, kernel_product_linear, out_scratch);
}

static lathe_status prepare_dx(lathe_kernel *k, int64_t *out_scratch)
{
    return prepare(k, kernel_product_dx, out_scratch);
}

static lathe_status prepare_matmul(lathe_kernel *k, int64_t *out_scratch)
{
    return prepare(k, kernel_product_matmul, out_scratch);
}

static lathe_status prepare_dw(lathe_kernel *k, int64_t *out_scratch)
{
    matmul_spec spec;
    kernel_product_dw(k, &spec);
    LATHE_TRY(make(k, &spec, out_scratch));
    linear *s = k->state;
    s->rows = spec.k;
    s->cols = spec.m;
    if (kernel_has_out(k, 1)) {
        const int64_t partials = cpu_column_sums_scratch(s->rows, s->cols);
        if (partials > *out_scratch) /* the sums for db are complete before the product starts */
            *out_scratch = partials;
    }
    return LATHE_OK;
}

/* y = in[0] by in[1], in the way that was prepared. */
static lathe_status multiply(lathe_kernel *k, const lathe_kernel_args *a, const void *bias, void *y,
                             int adds)
{
    const linear *s = k->state;
    if (s->quantized != NULL)
        return cpu_quantized_run(k->device, s->quantized, a->in[0], a->in[1], bias, y, a->scratch,
                                 adds);
    if (s->fp8 != NULL)
        return cpu_fp8_product_run(k->device, s->fp8, a->in[0], a->in[1], bias, y, a->scratch,
                                   adds);
    return cpu_product_run(k->device, s->product, a->in[0], a->in[1], bias, y, a->scratch, adds);
}

static const void *bias_of(const lathe_kernel *k, const lathe_kernel_args *a)
{
    return kernel_has_in(k, 2) ? a->in[2] : NULL;
}

static lathe_status run_linear_gelu(lathe_kernel *k, const lathe_kernel_args *a)
{
    void *z = kernel_has_out(k, 1) ? a->out[1] : a->out[0];
    LATHE_TRY(multiply(k, a, bias_of(k, a), z, 0));
    cpu_gelu(k->host, z, a->out[0], k->out[0].dtype, lathe_desc_count(&k->out[0]));
    return LATHE_OK;
}

static lathe_status run_dx_gelu(lathe_kernel *k, const lathe_kernel_args *a)
{
    LATHE_TRY(multiply(k, a, NULL, a->out[0], 0));
    cpu_gelu_bwd(k->host, a->out[0], a->in[2], a->out[0], k->out[0].dtype,
                 lathe_desc_count(&k->out[0]), 0);
    return LATHE_OK;
}

static lathe_status run_linear(lathe_kernel *k, const lathe_kernel_args *a)
{
    return multiply(k, a, bias_of(k, a), a->out[0], 0);
}

static lathe_status run_two(lathe_kernel *k, const lathe_kernel_args *a)
{
    return multiply(k, a, NULL, a->out[0], (a->accumulate & 1u) != 0);
}

static lathe_status run_dw(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linear *s = k->state;
    if (kernel_has_out(k, 1))
        cpu_column_sums(k->host, a->in[0], k->in[0].dtype, s->rows, s->cols, a->out[1],
                        (a->accumulate & 2u) != 0, a->scratch);
    return run_two(k, a);
}

const kernel_op CPU_OP(LINEAR) = {prepare_linear, run_linear, release, KERNEL_TAKES_PLANES};
const kernel_op CPU_OP(LINEAR_DX) = {prepare_dx, run_two, release, 1 | KERNEL_TAKES_PLANES};
const kernel_op CPU_OP(LINEAR_DW) = {prepare_dw, run_dw, release, 3};
const kernel_op CPU_OP(MATMUL) = {prepare_matmul, run_two, release, 1};
const kernel_op CPU_OP(LINEAR_GELU) = {prepare_linear, run_linear_gelu, release,
                                       KERNEL_TAKES_PLANES};
const kernel_op CPU_OP(LINEAR_DX_GELU) = {prepare_dx, run_dx_gelu, release, KERNEL_TAKES_PLANES};

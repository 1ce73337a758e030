/* LINEARS: several products of one input. Products of a few rows run in one parallel loop (rows.c).
 * Products of more rows, for which the start of a loop costs next to nothing, run one by one. */
#include "product.h"
#include "rows.h"

typedef struct linears {
    matmul_spec specs[CPU_ROWS_JOINED];
    cpu_product *products[CPU_ROWS_JOINED]; /* NULL: by rows.c */
    int32_t n, by_rows;
} linears;

static void release(lathe_kernel *k)
{
    linears *s = k->state;
    for (int32_t i = 0; i < s->n; i++)
        cpu_product_destroy(k->device, s->products[i]);
    k->host->free(s);
}

/* The product of x and the weight that is input `w`. */
static matmul_spec spec_of(const lathe_kernel *k, int32_t w)
{
    const int32_t dtype = k->in[0].dtype;
    return (matmul_spec){.m = lathe_desc_count(&k->in[0]) / k->in[w].dims[1],
                         .n = k->in[w].dims[0],
                         .k = k->in[w].dims[1],
                         .a_dtype = dtype,
                         .b_dtype = dtype,
                         .c_dtype = dtype,
                         .trans_b = 1,
                         .bias = kernel_has_in(k, w + 1),
                         .invariant = k->attrs.invariant,
                         .may_overwrite = 1,
                         .alpha = 1.0};
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    linears *s = k->host->alloc((int64_t)sizeof *s);
    if (s == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    while (s->n < CPU_ROWS_JOINED && kernel_has_in(k, 1 + 2 * s->n)) {
        s->specs[s->n] = spec_of(k, 1 + 2 * s->n);
        s->n++;
    }
    s->by_rows = cpu_rows_serves(&s->specs[0]);
    if (s->by_rows) {
        *out_scratch = cpu_rows_scratch(&s->specs[0]);
        return LATHE_OK;
    }
    for (int32_t i = 0; i < s->n; i++) {
        int64_t bytes = 0;
        LATHE_TRY(cpu_product_create(k->device, &s->specs[i], &s->products[i], &bytes));
        *out_scratch = bytes > *out_scratch ? bytes : *out_scratch;
    }
    return LATHE_OK;
}

static const float *bias_of(const lathe_kernel *k, const lathe_kernel_args *a, int32_t i)
{
    return kernel_has_in(k, 2 + 2 * i) ? a->in[2 + 2 * i] : NULL;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linears *s = k->state;
    cpu_rows_product products[CPU_ROWS_JOINED];
    for (int32_t i = 0; i < s->n; i++) {
        const void *const w = a->in[1 + 2 * i];
        products[i] = (cpu_rows_product){&s->specs[i], w, bias_of(k, a, i), a->out[i]};
        if (!s->by_rows)
            LATHE_TRY(cpu_product_run(k->device, s->products[i], a->in[0], w, products[i].bias,
                                      a->out[i], a->scratch, 0));
    }
    if (s->by_rows)
        cpu_rows_run_joined(k->host, products, s->n, a->in[0], a->scratch);
    return LATHE_OK;
}

const kernel_op CPU_OP(LINEARS) = {prepare, run, release, 0};

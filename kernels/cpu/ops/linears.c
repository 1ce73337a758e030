/* LINEARS: several products of one input. With a few rows, all products run in one parallel loop
 * (gemv.c; quantized_gemv.c for packed weights), because starting a loop takes as long as a part of
 * such a product. With more rows the start does not matter, and they run one by one. */
#include "products/gemv.h"
#include "products/int8_product.h"
#include "products/product.h"
#include "products/quantized_gemv.h"
#include "products/quantized_product.h"

/* One of the products. With few rows, a packed weight uses `int8` or `rows`, and any other weight
 * needs no member; with more rows, a packed weight uses `quantized`, and any other `whole`. */
typedef struct one_product {
    matmul_spec spec;
    int32_t is_packed, is_int8; /* is_int8: packed, and x is quantized */
    cpu_product *whole;
    cpu_quantized *quantized;
    cpu_quantized_gemv rows;
    cpu_int8 int8;
} one_product;

typedef struct linears {
    one_product products[CPU_GEMV_JOINED];
    int32_t n, by_rows;
} linears;

static void release(lathe_kernel *k)
{
    linears *s = k->state;
    for (int32_t i = 0; i < s->n; i++) {
        cpu_product_destroy(k->device, s->products[i].whole);
        cpu_quantized_destroy(k->device, s->products[i].quantized);
    }
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

static lathe_status prepare_one(lathe_kernel *k, int32_t i, int64_t *out_scratch)
{
    linears *s = k->state;
    one_product *p = &s->products[i];
    const lathe_packed_weight *w = &k->weights[1 + 2 * i];
    if (s->by_rows && p->is_int8)
        return cpu_int8_init(k->host, &p->spec, w, &p->int8, out_scratch);
    if (s->by_rows && p->is_packed)
        cpu_quantized_gemv_init(&p->spec, w, k->host->n_threads(), &p->rows, out_scratch);
    else if (s->by_rows)
        *out_scratch = cpu_gemv_scratch(&p->spec);
    else if (p->is_packed)
        return cpu_quantized_create(k->device, &p->spec, w, &p->quantized, out_scratch);
    else
        return cpu_product_create(k->device, &p->spec, &p->whole, out_scratch);
    return LATHE_OK;
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    linears *s = k->host->alloc((int64_t)sizeof *s);
    if (s == NULL)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    while (s->n < CPU_GEMV_JOINED && kernel_has_in(k, 1 + 2 * s->n)) {
        one_product *p = &s->products[s->n];
        p->spec = spec_of(k, 1 + 2 * s->n);
        p->is_packed = k->in[1 + 2 * s->n].dtype == LATHE_PLANES;
        if (p->is_packed && !LATHE_HAS(k->weights[1 + 2 * s->n].table, decode_part))
            return lathe_fail(k->host, LATHE_E_UNSUPPORTED,
                              "%s: the format of weight %d decodes no parts", kernel_op_name(k),
                              (int)s->n);
        p->is_int8 = p->is_packed && cpu_int8_serves(&p->spec, &k->weights[1 + 2 * s->n]);
        s->n++;
    }
    s->by_rows = cpu_gemv_serves(&s->products[0].spec);
    int64_t forms = 0, int8 = 0;
    for (int32_t i = 0; i < s->n; i++) {
        int64_t bytes = 0;
        LATHE_TRY(prepare_one(k, i, &bytes));
        int8 += s->by_rows && s->products[i].is_int8 ? bytes : 0;
        *out_scratch = bytes > *out_scratch ? bytes : *out_scratch;
        forms += s->products[i].rows.layout_bytes;
    }
    *out_scratch += forms;
    *out_scratch = int8 > *out_scratch ? int8 : *out_scratch;
    return LATHE_OK;
}

static const float *bias_of(const lathe_kernel *k, const lathe_kernel_args *a, int32_t i)
{
    return kernel_has_in(k, 2 + 2 * i) ? a->in[2 + 2 * i] : NULL;
}

static lathe_status run_by_rows(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linears *s = k->state;
    cpu_gemv_product plain[CPU_GEMV_JOINED];
    cpu_quantized_gemv_use packed[CPU_GEMV_JOINED];
    cpu_int8_use int8[CPU_GEMV_JOINED];
    int32_t n_plain = 0, n_packed = 0, n_int8 = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const one_product *p = &s->products[i];
        const void *const w = a->in[1 + 2 * i];
        const float *const bias = bias_of(k, a, i);
        if (p->is_int8)
            int8[n_int8++] = (cpu_int8_use){&p->int8, w, bias, a->out[i]};
        else if (p->is_packed)
            packed[n_packed++] = (cpu_quantized_gemv_use){&p->rows, w, bias, a->out[i]};
        else
            plain[n_plain++] = (cpu_gemv_product){&p->spec, w, bias, a->out[i]};
    }
    if (n_plain > 0)
        cpu_gemv_run_joined(k->host, plain, n_plain, a->in[0], a->scratch);
    if (n_int8 > 0)
        LATHE_TRY(cpu_int8_run(k->host, int8, n_int8, a->in[0], a->scratch));
    return n_packed > 0 ? cpu_quantized_gemv_run(k->host, packed, n_packed, a->in[0], a->scratch, 0)
                        : LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const linears *s = k->state;
    if (s->by_rows)
        return run_by_rows(k, a);
    for (int32_t i = 0; i < s->n; i++) {
        const one_product *p = &s->products[i];
        const void *const w = a->in[1 + 2 * i];
        const float *const bias = bias_of(k, a, i);
        if (p->is_packed)
            LATHE_TRY(cpu_quantized_run(k->device, p->quantized, a->in[0], w, bias, a->out[i],
                                        a->scratch, 0));
        else
            LATHE_TRY(
                cpu_product_run(k->device, p->whole, a->in[0], w, bias, a->out[i], a->scratch, 0));
    }
    return LATHE_OK;
}

const kernel_op CPU_OP(LINEARS) = {prepare, run, release, KERNEL_TAKES_PLANES};

/* Times plain oneDNN products (2.x and 3.x). */
#include "product_rate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Small values of both signs, in bf16 or f32. */
static void *fill(int64_t n, dnnl_data_type_t type)
{
    const size_t each = type == dnnl_f32 ? 4 : 2;
    char *m = aligned_alloc((size_t)2 << 20, ((size_t)n * each + ((size_t)2 << 20)) >> 21 << 21);
    uint32_t state = 12345;
    if (!m)
        return NULL;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = (float)(int32_t)(state >> 8) / 8388608.0f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if (each == 4) {
            memcpy(m + 4 * i, &x, 4);
        } else {
            const uint16_t half = (uint16_t)(bits >> 16);
            memcpy(m + 2 * i, &half, 2);
        }
    }
    return m;
}

/* Describes a matrix, and a product of two; descriptions live as long as the process. */
#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t describe(dnnl_memory_desc_t *out, const dnnl_dim_t *dims,
                              dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(out, 2, dims, type, tag);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, const dnnl_memory_desc_t md[3])
{
    return dnnl_matmul_primitive_desc_create(out, engine, md[0], md[1], NULL, md[2], NULL);
}
#define MEMORY_DESC(md) (md)
#else
static dnnl_status_t describe(dnnl_memory_desc_t *out, const dnnl_dim_t *dims,
                              dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(out, 2, dims, type, tag);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, const dnnl_memory_desc_t md[3])
{
    dnnl_matmul_desc_t desc;
    const dnnl_status_t s = dnnl_matmul_desc_init(&desc, &md[0], &md[1], NULL, &md[2]);
    return s == dnnl_success ? dnnl_primitive_desc_create(out, &desc, NULL, engine, NULL) : s;
}
#define MEMORY_DESC(md) (&(md))
#endif

static dnnl_status_t prepare(product *p, dnnl_data_type_t type, void *const data[3])
{
    const dnnl_data_type_t out = p->f32_out ? dnnl_f32 : type;
    const dnnl_dims_t a_dims = {p->m, p->k}, b_dims = {p->k, p->n}, c_dims = {p->m, p->n};
    dnnl_memory_desc_t md[3];
    dnnl_primitive_desc_t pd;
    dnnl_status_t s = describe(&md[0], a_dims, type, p->trans_a ? dnnl_ba : dnnl_ab);
    if (s == dnnl_success)
        s = describe(&md[1], b_dims, type, p->trans_b ? dnnl_ba : dnnl_ab);
    if (s == dnnl_success)
        s = describe(&md[2], c_dims, out, dnnl_ab);
    if (s == dnnl_success)
        s = describe_product(&pd, md);
    if (s != dnnl_success)
        return s;
    const char *name = "";
    (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
    if (strncmp(name, "ref", 3) == 0) { /* the scalar reference is not a useful limit */
        (void)dnnl_primitive_desc_destroy(pd);
        return dnnl_unimplemented;
    }
    s = dnnl_primitive_create(&p->primitive, pd);
    (void)dnnl_primitive_desc_destroy(pd);
    for (int i = 0; i < 3 && s == dnnl_success; i++)
        s = dnnl_memory_create(&p->memory[i], MEMORY_DESC(md[i]), engine, data[i]);
    return s;
}

int product_rate_open(product *products, int n, dnnl_data_type_t type)
{
    int64_t max[3] = {0, 0, 0};
    void *data[3];
    dnnl_status_t s = dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (s == dnnl_success)
        s = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    for (int i = 0; i < n; i++) {
        const product *p = &products[i];
        const int64_t size[3] = {p->m * p->k, p->k * p->n, p->m * p->n};
        for (int j = 0; j < 3; j++)
            max[j] = size[j] > max[j] ? size[j] : max[j];
    }
    for (int j = 0; j < 3; j++) {
        data[j] = fill(max[j], j == 2 ? dnnl_f32 : type);
        if (!data[j])
            return (int)dnnl_out_of_memory;
    }
    for (int i = 0; i < n && s == dnnl_success; i++)
        s = prepare(&products[i], type, data);
    return (int)s;
}

double product_rate_measure(product *products, int n)
{
    double operations = 0.0, seconds = 0.0;
    for (int i = 0; i < n; i++) {
        product *p = &products[i];
        const dnnl_exec_arg_t args[3] = {{DNNL_ARG_SRC, p->memory[0]},
                                         {DNNL_ARG_WEIGHTS, p->memory[1]},
                                         {DNNL_ARG_DST, p->memory[2]}};
        const double begun = now();
        (void)dnnl_primitive_execute(p->primitive, stream, 3, args);
        (void)dnnl_stream_wait(stream);
        p->seconds = now() - begun;
        operations += 2.0 * (double)p->m * (double)p->n * (double)p->k * p->count;
        seconds += p->seconds * p->count;
    }
    return operations / seconds;
}

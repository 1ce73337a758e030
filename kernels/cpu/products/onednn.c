/* Matrix products by oneDNN, for both versions of its API (2.x and 3.x). */
#include "products/onednn.h"

#include <dnnl.h>
#include <string.h>

/* A prepared primitive. The layers of a model have the same few products, and oneDNN takes 0.2 ms
 * to choose an implementation for one, so all products of one spec share it. */
typedef struct shared_primitive {
    matmul_spec spec;
    int accumulate;
    int n_users;
    dnnl_primitive_t primitive;
    struct shared_primitive *next;
} shared_primitive;

struct cpu_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    shared_primitive *primitives;
};

/* A primitive and the memory object of the scratchpad for one product. */
typedef struct variant {
    shared_primitive *shared;
    dnnl_memory_t scratchpad;
} variant;

struct cpu_matmul {
    variant variants[2]; /* [0] overwrites c, [1] adds to c */
    dnnl_memory_t a, b, c, bias;
};

#define GEMM "gemm:jit"

/* Whether the implementation that oneDNN chose in pd has this name. */
static int is_called(const_dnnl_primitive_desc_t pd, const char *name)
{
    const char *impl = "";
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl) ==
               dnnl_success &&
           strstr(impl, name) != NULL;
}

/* ---- differences between the two versions ---- */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t md_owned;
typedef const_dnnl_memory_desc_t md_view;

static dnnl_status_t md_strided(md_owned *out, int ndims, const dnnl_dim_t *dims,
                                dnnl_data_type_t type, const dnnl_dim_t *strides)
{
    return dnnl_memory_desc_create_with_strides(out, ndims, dims, type, strides);
}

static void md_release(md_owned *md)
{
    if (*md != NULL)
        (void)dnnl_memory_desc_destroy(*md);
}

static dnnl_status_t make_memory(dnnl_memory_t *out, const md_owned *md, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, *md, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_memory_view(dnnl_memory_t *out, md_view md, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, md, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t append_scale(dnnl_post_ops_t ops, float alpha)
{
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, alpha, 0.0f);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

/* Selects the implementation called `name`, or the first one. */
static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                 const md_owned *a, const md_owned *b, const md_owned *bias,
                                 const md_owned *c, dnnl_primitive_attr_t attr, const char *name)
{
    const dnnl_memory_desc_t bias_md = bias == NULL ? NULL : *bias;
    dnnl_status_t status =
        dnnl_matmul_primitive_desc_create(out, engine, *a, *b, bias_md, *c, attr);
    if (name == NULL || status != dnnl_success || is_called(*out, name))
        return status;
    while (dnnl_primitive_desc_next_impl(*out) == dnnl_success)
        if (is_called(*out, name))
            return dnnl_success;
    (void)dnnl_primitive_desc_destroy(*out);
    return dnnl_matmul_primitive_desc_create(out, engine, *a, *b, bias_md, *c, attr);
}
#else
typedef dnnl_memory_desc_t md_owned;
typedef const dnnl_memory_desc_t *md_view;

static dnnl_status_t md_strided(md_owned *out, int ndims, const dnnl_dim_t *dims,
                                dnnl_data_type_t type, const dnnl_dim_t *strides)
{
    return dnnl_memory_desc_init_by_strides(out, ndims, dims, type, strides);
}

static void md_release(md_owned *md)
{
    (void)md; /* a plain struct in 2.x */
}

static dnnl_status_t make_memory(dnnl_memory_t *out, const md_owned *md, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, md, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_memory_view(dnnl_memory_t *out, md_view md, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, md, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t append_scale(dnnl_post_ops_t ops, float alpha)
{
    return dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_linear, alpha, 0.0f);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

/* Selects the implementation called `name`, or the first one. */
static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                 const md_owned *a, const md_owned *b, const md_owned *bias,
                                 const md_owned *c, dnnl_primitive_attr_t attr, const char *name)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, a, b, bias, c);
    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
    if (name == NULL || status != dnnl_success || is_called(*out, name))
        return status;
    dnnl_primitive_desc_iterator_t it = NULL;
    if (dnnl_primitive_desc_iterator_create(&it, &desc, attr, engine, NULL) != dnnl_success)
        return dnnl_success; /* keep the first one */
    do {
        dnnl_primitive_desc_t other = dnnl_primitive_desc_iterator_fetch(it);
        const int found = other != NULL && is_called(other, name);
        dnnl_primitive_desc_t drop = found ? *out : other;
        if (found)
            *out = other;
        if (drop != NULL)
            (void)dnnl_primitive_desc_destroy(drop);
        if (found)
            break;
    } while (dnnl_primitive_desc_iterator_next(it) == dnnl_success);
    (void)dnnl_primitive_desc_iterator_destroy(it);
    return dnnl_success;
}
#endif

/* ---- engine ---- */
lathe_status cpu_onednn_create(const lathe_host *host, cpu_onednn **out)
{
    cpu_onednn *o = host->alloc((int64_t)sizeof *o);
    if (o == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the oneDNN engine");
    if (dnnl_engine_create(&o->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&o->stream, o->engine, dnnl_stream_default_flags) != dnnl_success) {
        cpu_onednn_destroy(host, o);
        return lathe_fail(host, LATHE_E_DEVICE, "oneDNN %d.%d gives no CPU engine",
                          DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR);
    }
    *out = o;
    return LATHE_OK;
}

void cpu_onednn_destroy(const lathe_host *host, cpu_onednn *o)
{
    if (o == NULL)
        return;
    if (o->stream != NULL)
        (void)dnnl_stream_destroy(o->stream);
    if (o->engine != NULL)
        (void)dnnl_engine_destroy(o->engine);
    host->free(o);
}

/* ---- matmul ---- */
typedef struct operands {
    md_owned a, b, c, bias;
} operands;

static dnnl_data_type_t type_of(int32_t dtype)
{
    return dtype == LATHE_F32 ? dnnl_f32 : dnnl_bf16;
}

static dnnl_status_t strided(md_owned *out, int64_t rows, int64_t cols, int32_t dtype,
                             int64_t stride)
{
    const dnnl_dim_t dims[DNNL_MAX_NDIMS] = {rows, cols};
    const dnnl_dim_t strides[DNNL_MAX_NDIMS] = {stride, 1};
    return md_strided(out, 2, dims, type_of(dtype), strides);
}

static dnnl_status_t matrix(md_owned *out, int64_t rows, int64_t cols, int32_t dtype, int trans)
{
    const dnnl_dim_t dims[DNNL_MAX_NDIMS] = {rows, cols}, turned[DNNL_MAX_NDIMS] = {1, rows};
    return trans ? md_strided(out, 2, dims, type_of(dtype), turned)
                 : strided(out, rows, cols, dtype, cols);
}

static dnnl_status_t make_operands(const matmul_spec *s, operands *o)
{
    dnnl_status_t status = matrix(&o->a, s->m, s->k, s->a_dtype, s->trans_a);
    if (status == dnnl_success)
        status = matrix(&o->b, s->k, s->n, s->b_dtype, s->trans_b);
    if (status == dnnl_success)
        status = strided(&o->c, s->m, s->n, s->c_dtype, matmul_c_stride(s));
    if (status == dnnl_success && s->bias)
        status = matrix(&o->bias, 1, s->n, LATHE_F32, 0);
    return status;
}

static void release_operands(const matmul_spec *s, operands *o)
{
    md_release(&o->a);
    md_release(&o->b);
    md_release(&o->c);
    if (s->bias)
        md_release(&o->bias);
}

static dnnl_status_t make_attr(const matmul_spec *s, int accumulate, dnnl_primitive_attr_t *attr)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success && s->alpha != 1.0)
        status = append_scale(ops, (float)s->alpha);
    if (status == dnnl_success && accumulate)
        status = append_sum(ops);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attr, ops);
    if (ops != NULL)
        (void)dnnl_post_ops_destroy(ops);
    return status;
}

/* Creates a primitive. Returns dnnl_unimplemented also if oneDNN has only its scalar reference for
 * bf16. */
static dnnl_status_t make_primitive(cpu_onednn *o, const matmul_spec *s, const operands *ops,
                                    int accumulate, dnnl_primitive_t *out)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = make_attr(s, accumulate, &attr);
    if (status == dnnl_success)
        status = matmul_desc(&pd, o->engine, &ops->a, &ops->b, s->bias ? &ops->bias : NULL, &ops->c,
                             attr, s->prefer_gemm ? GEMM : NULL);
    if (status == dnnl_success && s->a_dtype == LATHE_BF16 && is_called(pd, "ref"))
        status = dnnl_unimplemented;
    if (status == dnnl_success)
        status = dnnl_primitive_create(out, pd);
    if (pd != NULL)
        (void)dnnl_primitive_desc_destroy(pd);
    if (attr != NULL)
        (void)dnnl_primitive_attr_destroy(attr);
    return status;
}

/* Whether the descriptions that oneDNN gets for both are equal. */
static int is_same_product(const matmul_spec *x, const matmul_spec *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->a_dtype == y->a_dtype &&
           x->b_dtype == y->b_dtype && x->c_dtype == y->c_dtype && x->trans_a == y->trans_a &&
           x->trans_b == y->trans_b && x->bias == y->bias && x->prefer_gemm == y->prefer_gemm &&
           x->alpha == y->alpha && matmul_c_stride(x) == matmul_c_stride(y);
}

/* Finds or makes the primitive of a spec, and counts a user. */
static dnnl_status_t take_primitive(cpu_device *device, const matmul_spec *s, const operands *ops,
                                    int accumulate, shared_primitive **out)
{
    cpu_onednn *o = device->onednn;
    shared_primitive *p = o->primitives;
    while (p != NULL && (p->accumulate != accumulate || !is_same_product(&p->spec, s)))
        p = p->next;
    if (p == NULL) {
        p = device->host->alloc((int64_t)sizeof *p);
        if (p == NULL)
            return dnnl_out_of_memory;
        *p = (shared_primitive){.spec = *s, .accumulate = accumulate, .next = o->primitives};
        const dnnl_status_t status = make_primitive(o, s, ops, accumulate, &p->primitive);
        if (status != dnnl_success) {
            device->host->free(p);
            return status;
        }
        o->primitives = p;
    }
    p->n_users++;
    *out = p;
    return dnnl_success;
}

static void drop_primitive(cpu_device *device, shared_primitive *p)
{
    if (p == NULL || --p->n_users > 0)
        return;
    shared_primitive **at = &device->onednn->primitives;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    (void)dnnl_primitive_destroy(p->primitive);
    device->host->free(p);
}

static dnnl_status_t make_variant(cpu_device *device, const matmul_spec *s, const operands *ops,
                                  int accumulate, variant *v, int64_t *io_scratch)
{
    const_dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = take_primitive(device, s, ops, accumulate, &v->shared);
    if (status == dnnl_success)
        status = dnnl_primitive_get_primitive_desc(v->shared->primitive, &pd);
    if (status == dnnl_success) {
        const md_view pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        const int64_t bytes = pad == NULL ? 0 : (int64_t)dnnl_memory_desc_get_size(pad);
        if (bytes > 0)
            status = make_memory_view(&v->scratchpad, pad, device->onednn->engine);
        if (bytes > *io_scratch)
            *io_scratch = bytes;
    }
    return status;
}

static dnnl_status_t build(cpu_device *device, const matmul_spec *s, const operands *ops,
                           cpu_matmul *mm, int64_t *io_scratch)
{
    const dnnl_engine_t engine = device->onednn->engine;
    dnnl_status_t status = dnnl_success;
    if (s->may_overwrite)
        status = make_variant(device, s, ops, 0, &mm->variants[0], io_scratch);
    if (status == dnnl_success && s->may_accumulate)
        status = make_variant(device, s, ops, 1, &mm->variants[1], io_scratch);
    if (status == dnnl_success)
        status = make_memory(&mm->a, &ops->a, engine);
    if (status == dnnl_success)
        status = make_memory(&mm->b, &ops->b, engine);
    if (status == dnnl_success)
        status = make_memory(&mm->c, &ops->c, engine);
    if (status == dnnl_success && s->bias)
        status = make_memory(&mm->bias, &ops->bias, engine);
    return status;
}

lathe_status cpu_matmul_create(cpu_device *device, const matmul_spec *spec, cpu_matmul **out,
                               int64_t *out_scratch)
{
    const lathe_host *host = device->host;
    *out = NULL;
    *out_scratch = 0;
    if (spec->a_dtype == LATHE_F16 || spec->b_dtype == LATHE_F16 || spec->c_dtype == LATHE_F16)
        return LATHE_OK; /* oneDNN 2.6 has no such product; see product.c */
    cpu_matmul *mm = host->alloc((int64_t)sizeof *mm);
    if (mm == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a matrix product");
    operands ops;
    memset(&ops, 0, sizeof ops);
    dnnl_status_t status = make_operands(spec, &ops);
    if (status == dnnl_success)
        status = build(device, spec, &ops, mm, out_scratch);
    release_operands(spec, &ops);
    if (status == dnnl_success) {
        *out = mm;
        return LATHE_OK;
    }
    cpu_matmul_destroy(device, mm);
    *out_scratch = 0;
    if (status == dnnl_unimplemented)
        return LATHE_OK;
    return lathe_fail(host, status == dnnl_out_of_memory ? LATHE_E_NOMEM : LATHE_E_DEVICE,
                      "oneDNN refuses the product %lld x %lld x %lld (m x n x k): code %d",
                      (long long)spec->m, (long long)spec->n, (long long)spec->k, (int)status);
}

void cpu_matmul_destroy(cpu_device *device, cpu_matmul *mm)
{
    if (mm == NULL)
        return;
    for (int i = 0; i < 2; i++) {
        drop_primitive(device, mm->variants[i].shared);
        if (mm->variants[i].scratchpad != NULL)
            (void)dnnl_memory_destroy(mm->variants[i].scratchpad);
    }
    dnnl_memory_t const memories[4] = {mm->a, mm->b, mm->c, mm->bias};
    for (int i = 0; i < 4; i++)
        if (memories[i] != NULL)
            (void)dnnl_memory_destroy(memories[i]);
    device->host->free(mm);
}

/* oneDNN takes inputs through non-const pointers. */
static void *unconst(const void *p)
{
    union {
        const void *in;
        void *out;
    } u = {p};
    return u.out;
}

lathe_status cpu_matmul_run(cpu_device *device, cpu_matmul *mm, const void *a, const void *b,
                            const void *bias, void *c, void *scratch, int accumulate)
{
    variant *v = &mm->variants[accumulate ? 1 : 0];
    dnnl_exec_arg_t args[5];
    int n = 0;
    dnnl_status_t status = dnnl_memory_set_data_handle(mm->a, unconst(a));
    args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SRC, mm->a};
    if (status == dnnl_success)
        status = dnnl_memory_set_data_handle(mm->b, unconst(b));
    args[n++] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, mm->b};
    if (status == dnnl_success)
        status = dnnl_memory_set_data_handle(mm->c, c);
    args[n++] = (dnnl_exec_arg_t){DNNL_ARG_DST, mm->c};
    if (status == dnnl_success && mm->bias != NULL) {
        status = dnnl_memory_set_data_handle(mm->bias, unconst(bias));
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, mm->bias};
    }
    if (status == dnnl_success && v->scratchpad != NULL) {
        status = dnnl_memory_set_data_handle(v->scratchpad, scratch);
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, v->scratchpad};
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(v->shared->primitive, device->onednn->stream, n, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(device->onednn->stream);
    if (status != dnnl_success)
        return lathe_fail(device->host, LATHE_E_DEVICE, "oneDNN failed to run a product: code %d",
                          (int)status);
    return LATHE_OK;
}

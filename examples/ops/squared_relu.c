/* squared_relu: y = factor * max(x, 0)^2, of each element (arXiv:2109.08668, section 4.1).
 *
 * The derivative is a graph of the core's ops, dx = dy * 2 factor max(x, 0): it runs on every
 * device, and only the op itself needs a kernel.
 */
#include <float.h>

#include <lathe/kit/op_kit.h>

typedef struct squared_relu {
    const lathe_host *host;
    double factor;
} squared_relu;

static const lathe_field fields[] = {
    LATHE_FIELD_FLOAT("factor", "1.0", 0, 1e6, "1", "factor of the square"),
};

static lathe_status squared_relu_read(const lathe_host *host, squared_relu *out,
                                      const lathe_value *values)
{
    (void)host;
    out->factor = values[0].f;
    return LATHE_OK;
}

LATHE_INSTANCE(squared_relu, squared_relu_read)

static lathe_status shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    if (!lathe_op_computes(in[0].dtype))
        return lathe_fail(lathe_op_host(self), LATHE_E_DTYPE, "x is %s; expected f32, bf16 or f16",
                          lathe_dtype_name(in[0].dtype));
    out[0] = in[0];
    return LATHE_OK;
}

static double flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    (void)self, (void)in;
    return 2.0 * (double)lathe_desc_count(out);
}

static void exact(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                  double *const *y)
{
    const squared_relu *const s = self;
    (void)in;
    for (int64_t i = 0; i < lathe_desc_count(out); i++)
        y[0][i] = x[0][i] > 0.0 ? s->factor * x[0][i] * x[0][i] : 0.0;
}

static lathe_status derive(void *self, const lathe_op_derivative *d, lathe_val *dx)
{
    const squared_relu *const s = self;
    const lathe_op_attrs positive = {.alpha = 0.0, .beta = FLT_MAX};
    const lathe_op_attrs twice = {.alpha = 2.0 * s->factor};
    lathe_val slope, in[2] = {d->dy[0], LATHE_NONE};
    LATHE_TRY(d->api->node(d->graph, LATHE_OP_CLAMP, &positive, d->in, 1, &slope, 1, -1, d->label));
    LATHE_TRY(d->api->node(d->graph, LATHE_OP_SCALE, &twice, &slope, 1, &in[1], 1, -1, d->label));
    return d->api->node(d->graph, LATHE_OP_MUL, NULL, in, 2, &dx[0], 1, -1, d->label);
}

/* ---- in host memory ---- */

typedef struct work {
    const void *x;
    void *y;
    float factor;
    int32_t dtype, adds;
} work;

static void some(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    enum { AT_A_TIME = 256 };
    const work *const w = arg;
    float part[AT_A_TIME];
    (void)worker;
    for (int64_t i = begin; i < end; i += AT_A_TIME) {
        const int64_t n = end - i < AT_A_TIME ? end - i : AT_A_TIME;
        lathe_op_read(w->x, w->dtype, i, n, part);
        for (int64_t j = 0; j < n; j++)
            part[j] = part[j] > 0.0f ? w->factor * part[j] * part[j] : 0.0f;
        lathe_op_write(w->y, w->dtype, i, n, part, w->adds);
    }
}

static lathe_status run(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    const squared_relu *const s = self;
    work w = {.x = args->in[0],
              .y = args->out[0],
              .factor = (float)s->factor,
              .dtype = call->in[0].dtype,
              .adds = args->accumulate & 1u};
    s->host->parallel_for(lathe_desc_count(&call->out[0]), 4096, some, &w);
    return LATHE_OK;
}

/* ---- the table ---- */

static const lathe_op_tensor inputs[] = {
    {"x", "c[..]", LATHE_TENSOR_IN_PLACE | LATHE_TENSOR_BATCHED, 0}};
static const lathe_op_tensor outputs[] = {{"y", "c[..]", LATHE_TENSOR_BATCHED, 0}};

static const lathe_op_test tests[] = {
    {"c[1025]:2", "c[1025]", NULL, 4, 1, 205, 0},
    {"c[3,7]", "c[3,7]", "factor = 0.5", 4, 1, 1, 0},
    {"c[2,3,4111]:2", "c[2,3,4111]", "factor = 3.0", 4, 1, 1, 0},
};

static const lathe_op_kernel kernels[] = {
    {.name = "portable", .score = lathe_op_score_portable, .run = run},
};

static const lathe_op_v1 squared_relu_table = {
    LATHE_OP_HEADER,  LATHE_OP_LISTS,     .traits = LATHE_OP_CHEAP | LATHE_OP_ACCUMULATES,
    .shape = shape,   .flops = flops,     .exact = exact,
    .derive = derive, .kernels = kernels, .n_kernels = LATHE_OP_COUNT(kernels),
};

LATHE_OP_ENTRY(squared_relu, LATHE_PLUGIN_FIELDS, .version = "0.1.0",
               .summary = "square of the positive part of each element",
               .source = "arXiv:2109.08668", .license = "Apache-2.0");

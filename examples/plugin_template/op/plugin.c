/* @NAME@: a weighted gate, y[n,j] = x[n,j] * sigmoid(slope * w[j] * x[n,j]).
 *
 * Replace the formulas by yours. The op has one input of tokens and one of parameters, an
 * attribute, its own backward, and a kernel for host memory. A backward that is a graph of other
 * ops is shorter: set `derive` instead (lathe/op_plugin.h; examples/ops/squared_relu.c). A kernel
 * for CUDA is a row of `kernels` with `queue` and `image` (plugins/ops/short_conv).
 */
#include <math.h>

#include <lathe/kit/op_kit.h>

enum { X, W, N_IN };

typedef struct @NAME@ {
    const lathe_host *host;
    double slope;
} @NAME@;

/* Attributes of a node: lathe_graph_api.op gives them by name, and the core checks them. */
static const lathe_field fields[] = {
    LATHE_FIELD_FLOAT("slope", "1.0", 0, 100, "1", "factor within the sigmoid"),
};

static lathe_status @NAME@_read(const lathe_host *host, @NAME@ *out, const lathe_value *values)
{
    (void)host;
    out->slope = values[0].f;
    return LATHE_OK;
}

LATHE_INSTANCE(@NAME@, @NAME@_read)

/* ---- rules ---- */

static lathe_status shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    if (!lathe_op_computes(in[X].dtype) || in[X].rank != 2 || in[W].dtype != LATHE_F32 ||
        in[W].rank != 1 || in[W].dims[0] != in[X].dims[1])
        return lathe_fail(lathe_op_host(self), LATHE_E_SHAPE, "expected x c[N,C] and w f32[C]");
    out[0] = in[X];
    return LATHE_OK;
}

static double flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    (void)self, (void)in;
    return 4.0 * (double)lathe_desc_count(out);
}

static double backward_flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    (void)self, (void)out;
    return 10.0 * (double)lathe_desc_count(&in[0]);
}

/* ---- in double precision: the truth that kernels and derivative are compared with ---- */

static void exact(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                  double *const *y)
{
    const @NAME@ *const s = self;
    const int64_t width = in[X].dims[1];
    for (int64_t i = 0; i < lathe_desc_count(out); i++)
        y[0][i] = x[X][i] / (1.0 + exp(-s->slope * x[W][i % width] * x[X][i]));
}

/* x[0] is the gradient of y, then come the op's inputs; y[i] is the gradient of input i. */
static void backward_exact(void *self, const lathe_desc *in, const lathe_desc *out,
                           const double *const *x, double *const *y)
{
    const @NAME@ *const s = self;
    const int64_t width = in[1 + X].dims[1];
    (void)out;
    for (int64_t i = 0; i < lathe_desc_count(&in[0]); i++) {
        const double at = x[1 + X][i], k = s->slope * x[1 + W][i % width];
        const double p = 1.0 / (1.0 + exp(-k * at)), bend = p * (1.0 - p);
        if (y[X] != NULL)
            y[X][i] = x[0][i] * (p + k * at * bend);
        if (y[W] != NULL)
            y[W][i % width] += x[0][i] * s->slope * at * at * bend;
    }
}

/* ---- in host memory ---- */

typedef struct work {
    const void *x, *dy;
    const float *w;
    void *y; /* or dx */
    float *dw;
    int64_t n_rows, width;
    float slope;
    int32_t dtype;
    uint32_t adds;
} work;

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Rows begin .. end - 1: each is computed alone, so bits depend on no other row. */
static void forward_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *const a = arg;
    (void)worker;
    for (int64_t i = begin * a->width; i < end * a->width; i++) {
        float x;
        lathe_op_read(a->x, a->dtype, i, 1, &x);
        x *= sigmoid(a->slope * a->w[i % a->width] * x);
        lathe_op_write(a->y, a->dtype, i, 1, &x, a->adds & 1u);
    }
}

/* Columns begin .. end - 1: one worker adds up a column, so the order of a sum is always that of
 * the rows. */
static void backward_columns(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *const a = arg;
    (void)worker;
    for (int64_t j = begin; j < end; j++) {
        const float k = a->slope * a->w[j];
        double sum = 0.0;
        for (int64_t r = 0; r < a->n_rows; r++) {
            float x, dy;
            lathe_op_read(a->x, a->dtype, r * a->width + j, 1, &x);
            lathe_op_read(a->dy, a->dtype, r * a->width + j, 1, &dy);
            const float p = sigmoid(k * x), bend = p * (1.0f - p);
            const float dx = dy * (p + k * x * bend);
            sum += (double)(dy * a->slope * x * x * bend);
            if (a->y != NULL)
                lathe_op_write(a->y, a->dtype, r * a->width + j, 1, &dx, a->adds >> X & 1u);
        }
        if (a->dw != NULL)
            a->dw[j] = (a->adds >> W & 1u ? a->dw[j] : 0.0f) + (float)sum;
    }
}

static lathe_status forward(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    const @NAME@ *const s = self;
    work a = {.x = args->in[X],
              .w = args->in[W],
              .y = args->out[0],
              .n_rows = call->in[X].dims[0],
              .width = call->in[X].dims[1],
              .slope = (float)s->slope,
              .dtype = call->in[X].dtype,
              .adds = args->accumulate};
    s->host->parallel_for(a.n_rows, 16, forward_rows, &a);
    return LATHE_OK;
}

static lathe_status backward(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    const @NAME@ *const s = self;
    work a = {.x = args->in[1 + X],
              .dy = args->in[0],
              .w = args->in[1 + W],
              .y = args->out[X],
              .dw = args->out[W],
              .n_rows = call->in[0].dims[0],
              .width = call->in[0].dims[1],
              .slope = (float)s->slope,
              .dtype = call->in[0].dtype,
              .adds = args->accumulate};
    s->host->parallel_for(a.width, 4, backward_columns, &a);
    return LATHE_OK;
}

/* ---- the table ---- */

static const lathe_op_tensor inputs[N_IN] = {
    {"x", "c[N,C]", LATHE_TENSOR_BATCHED, 0},
    {"w", "f32[C]", LATHE_TENSOR_PARAMETER, 0},
};
static const lathe_op_tensor outputs[] = {{"y", "c[N,C]", LATHE_TENSOR_BATCHED, 0}};

/* Odd sizes, every attribute, and a batch: `lathe plugin check` runs these in every dtype. */
static const lathe_op_test tests[] = {
    {"c[6,5]:2 f32[5]", "c[6,5]", NULL, 8, 2, 3, 0},
    {"c[7,131] f32[131]", "c[7,131]", "slope = 2.5", 8, 2, 1, 0},
    {"c[1,1] f32[1]", "c[1,1]", "slope = 0.0", 8, 2, 0, 0},
};

static const lathe_op_kernel kernels[] = {
    {.name = "portable", .score = lathe_op_score_portable, .run = forward},
};
static const lathe_op_kernel backward_kernels[] = {
    {.name = "portable", .score = lathe_op_score_portable, .run = backward},
};
static const lathe_op_backward own_backward = {
    .reads_in = 1u << X | 1u << W,
    .accumulates = 1,
    .kernels = backward_kernels,
    .n_kernels = LATHE_OP_COUNT(backward_kernels),
    .flops = backward_flops,
    .exact = backward_exact,
};

static const lathe_op_v1 @NAME@_table = {
    LATHE_OP_HEADER,
    LATHE_OP_LISTS,
    .traits = LATHE_OP_CHEAP | LATHE_OP_ACCUMULATES,
    .shape = shape,
    .flops = flops,
    .exact = exact,
    .backward = &own_backward,
    .kernels = kernels,
    .n_kernels = LATHE_OP_COUNT(kernels),
};

LATHE_OP_ENTRY(@NAME@, LATHE_PLUGIN_FIELDS, .version = "0.1.0",
               .summary = "a sigmoid gate with a weight for each channel", .source = "ours",
               .license = "Apache-2.0");

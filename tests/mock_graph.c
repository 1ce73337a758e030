/* A substitute for the graph: building with checks, evaluation in double, finite differences. Above
 * 500 lines because all of it works on the private struct below. */
#include "mock_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/rng.h"

typedef struct value {
    lathe_desc desc;
    double *data;
    int is_param;
    char name[160];
    lathe_param_decl decl;
} value;

struct lathe_graph {
    int32_t compute;
    int rounds, hold_detached;
    int n_values, n_nodes;
    lathe_val rng;
    uint64_t next_stream;
    value values[MOCK_MAX];
    mock_node nodes[MOCK_MAX];
    char error[512];
};

/* Recorded instead of an op when detach() is called. */
enum { OP_DETACH = LATHE_N_OPS };

static void *must(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

static lathe_status refuse(lathe_graph *g, lathe_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static lathe_status refuse(lathe_graph *g, lathe_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(g->error, sizeof g->error, format, args);
    va_end(args);
    return code;
}

static lathe_val new_value(lathe_graph *g, lathe_desc desc, const char *name)
{
    if (g->n_values == MOCK_MAX)
        abort();
    value *v = &g->values[g->n_values];
    for (int i = desc.rank; i < LATHE_MAX_RANK; i++)
        desc.dims[i] = 1;
    v->desc = desc;
    v->data = must(calloc((size_t)lathe_desc_count(&desc) + 1, sizeof *v->data));
    (void)snprintf(v->name, sizeof v->name, "%s", name ? name : "");
    return g->n_values++;
}

static const lathe_desc *desc_of(const lathe_graph *g, lathe_val v)
{
    return &g->values[v].desc;
}

static int same_dims(const lathe_desc *a, const lathe_desc *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static const char *op_name(int32_t op)
{
    static const char *const names[] = {
#define LATHE_X(name, text, n_in, n_out) text,
        LATHE_OP_TABLE(LATHE_X)
#undef LATHE_X
    };
    return op >= 0 && op < LATHE_N_OPS ? names[op] : "?";
}

/* ---- shape rules ---- */

static lathe_status infer_matrix(lathe_graph *g, int32_t op, const lathe_op_attrs *at,
                                 const lathe_desc *a, const lathe_desc *b, lathe_desc *y)
{
    if (a->rank != 2 || (b != NULL && b->rank != 2))
        return refuse(g, LATHE_E_SHAPE, "%s: inputs must have rank 2", op_name(op));
    if (op == LATHE_OP_TRANSPOSE) {
        *y = lathe_desc_2d(a->dtype, a->dims[1], a->dims[0]);
        return LATHE_OK;
    }
    const int ta = op == LATHE_OP_MATMUL && at->trans_a;
    const int tb = op == LATHE_OP_LINEAR || at->trans_b;
    const int64_t inner_a = a->dims[ta ? 0 : 1], inner_b = b->dims[tb ? 1 : 0];
    if (inner_a != inner_b)
        return refuse(g, LATHE_E_SHAPE, "%s: [%lld,%lld] by [%lld,%lld]", op_name(op),
                      (long long)a->dims[0], (long long)a->dims[1], (long long)b->dims[0],
                      (long long)b->dims[1]);
    if (a->dtype != b->dtype)
        return refuse(g, LATHE_E_DTYPE, "%s: %s by %s", op_name(op), lathe_dtype_name(a->dtype),
                      lathe_dtype_name(b->dtype));
    *y = lathe_desc_2d(a->dtype, a->dims[ta ? 1 : 0], b->dims[tb ? 0 : 1]);
    return LATHE_OK;
}

/* BLOCK_MATMUL without a transposed input, and SKEW in the forward direction. */
static lathe_status infer_blocks(lathe_graph *g, int32_t op, const lathe_op_attrs *at,
                                 const lathe_desc *a, const lathe_desc *b, lathe_desc *y)
{
    int64_t k = 2;
    if (a->rank != 2 || (b != NULL && b->rank != 2) || at->trans_a || at->trans_b || at->inverse)
        return refuse(g, LATHE_E_UNSUPPORTED, "the mock has no such %s", op_name(op));
    if (op == LATHE_OP_BLOCK_MATMUL) {
        if (at->count < 1 || a->dims[1] != at->count * b->dims[0] || b->dims[1] % at->count != 0)
            return refuse(g, LATHE_E_SHAPE, "block_matmul: %lld blocks of [%lld,%lld], [%lld,%lld]",
                          (long long)at->count, (long long)a->dims[0], (long long)a->dims[1],
                          (long long)b->dims[0], (long long)b->dims[1]);
        *y = lathe_desc_2d(a->dtype, a->dims[0], b->dims[1]);
        return LATHE_OK;
    }
    while (k * (k - 1) / 2 < a->dims[1])
        k++;
    if (k * (k - 1) / 2 != a->dims[1])
        return refuse(g, LATHE_E_SHAPE, "skew: %lld columns", (long long)a->dims[1]);
    *y = lathe_desc_2d(a->dtype, k, a->dims[0] * k);
    return LATHE_OK;
}

static lathe_status infer_pair(lathe_graph *g, int32_t op, const lathe_desc *a, const lathe_desc *b,
                               int32_t inplace_in, lathe_desc *y)
{
    const lathe_desc *keep = inplace_in == 1 ? b : a;
    if (!same_dims(a, b))
        return refuse(g, LATHE_E_SHAPE, "%s: the shapes differ", op_name(op));
    const int mixed = op == LATHE_OP_LINCOMB || op == LATHE_OP_APPLY_UPDATE;
    if (!mixed && a->dtype != b->dtype)
        return refuse(g, LATHE_E_DTYPE, "%s: %s and %s", op_name(op), lathe_dtype_name(a->dtype),
                      lathe_dtype_name(b->dtype));
    *y = *keep;
    return LATHE_OK;
}

static lathe_status infer_rows(lathe_graph *g, int32_t op, const lathe_op_attrs *at,
                               const lathe_desc *x, lathe_desc *y)
{
    const int64_t n = lathe_desc_count(x);
    *y = *x;
    if (op == LATHE_OP_SLICE) {
        if (x->rank < 1 || at->start < 0 || at->count < 1 || at->start + at->count > x->dims[0])
            return refuse(g, LATHE_E_SHAPE, "slice: rows %lld+%lld of %lld", (long long)at->start,
                          (long long)at->count, (long long)x->dims[0]);
        y->dims[0] = at->count;
        return LATHE_OK;
    }
    if (x->dtype != LATHE_F32)
        return refuse(g, LATHE_E_DTYPE, "%s: input is %s, not f32", op_name(op),
                      lathe_dtype_name(x->dtype));
    if (op == LATHE_OP_SUM) {
        const lathe_desc scalar = {LATHE_F32, 0, {1, 1, 1, 1}};
        *y = scalar;
        return LATHE_OK;
    }
    if (at->count < 1 || (op == LATHE_OP_ROW_SUM && n % at->count != 0))
        return refuse(g, LATHE_E_SHAPE, "%s: %lld elements by %lld", op_name(op), (long long)n,
                      (long long)at->count);
    *y = lathe_desc_1d(LATHE_F32, op == LATHE_OP_ROW_SUM ? n / at->count : n * at->count);
    return LATHE_OK;
}

/* BROADCAST_ROW, and the sums that take a matrix to a vector. */
static lathe_status infer_spread(lathe_graph *g, int32_t op, const lathe_op_attrs *at,
                                 const lathe_desc *x, lathe_desc *y)
{
    const int is_sum = op != LATHE_OP_BROADCAST_ROW;
    if (x->rank != (is_sum ? 2 : 1) || (!is_sum && (x->dtype != LATHE_F32 || at->count < 1)))
        return refuse(g, LATHE_E_SHAPE, "%s: input of rank %d", op_name(op), x->rank);
    *y = is_sum ? lathe_desc_1d(LATHE_F32, x->dims[op == LATHE_OP_SUM_ROWS ? 1 : 0])
                : lathe_desc_2d(at->dtype, at->count, x->dims[0]);
    return LATHE_OK;
}

static lathe_status infer(lathe_graph *g, int32_t op, const lathe_op_attrs *at, const lathe_val *in,
                          int32_t inplace_in, lathe_desc *y)
{
    const lathe_desc *a = desc_of(g, in[0]);
    *y = *a;
    switch (op) {
    case LATHE_OP_LINEAR:
    case LATHE_OP_MATMUL:
        return infer_matrix(g, op, at, a, desc_of(g, in[1]), y);
    case LATHE_OP_TRANSPOSE:
        return infer_matrix(g, op, at, a, NULL, y);
    case LATHE_OP_BLOCK_MATMUL:
        return infer_blocks(g, op, at, a, desc_of(g, in[1]), y);
    case LATHE_OP_SKEW:
        return infer_blocks(g, op, at, a, NULL, y);
    case LATHE_OP_ADD:
    case LATHE_OP_SUB:
    case LATHE_OP_MUL:
    case LATHE_OP_DIV:
    case LATHE_OP_MAX:
    case LATHE_OP_MIN:
    case LATHE_OP_LESS:
    case LATHE_OP_LINCOMB:
    case LATHE_OP_APPLY_UPDATE:
        return infer_pair(g, op, a, desc_of(g, in[1]), inplace_in, y);
    case LATHE_OP_SUM:
    case LATHE_OP_ROW_SUM:
    case LATHE_OP_SLICE:
    case LATHE_OP_BROADCAST:
        return infer_rows(g, op, at, a, y);
    case LATHE_OP_BROADCAST_ROW:
    case LATHE_OP_SUM_ROWS:
    case LATHE_OP_SUM_COLUMNS:
        return infer_spread(g, op, at, a, y);
    case LATHE_OP_SCALE:
    case LATHE_OP_COPY:
        return LATHE_OK;
    case LATHE_OP_CLAMP: /* between alpha and beta; the limit of input 1 is not in the mock */
        return at->alpha <= at->beta
                   ? LATHE_OK
                   : refuse(g, LATHE_E_ARG, "clamp: %g is above %g", at->alpha, at->beta);
    case LATHE_OP_DROPOUT:
        if (in[1] != g->rng)
            return refuse(g, LATHE_E_ARG, "dropout: input 1 is not the RNG input");
        return at->p >= 0 && at->p < 1 ? LATHE_OK : refuse(g, LATHE_E_ARG, "dropout: bad p");
    case LATHE_OP_CAST:
        y->dtype = at->dtype;
        return LATHE_OK;
    case LATHE_OP_SCALE_BY:
    case LATHE_OP_LOGSIGMOID:
    case LATHE_OP_SIGMOID:
    case LATHE_OP_EXP:
    case LATHE_OP_LOG:
    case LATHE_OP_TANH:
    case LATHE_OP_L2_NORMALIZE:
        if (op == LATHE_OP_L2_NORMALIZE)
            y->dtype = at->dtype;
        if (a->dtype != LATHE_F32)
            return refuse(g, LATHE_E_DTYPE, "%s: input is %s, not f32", op_name(op),
                          lathe_dtype_name(a->dtype));
        return LATHE_OK;
    default:
        return refuse(g, LATHE_E_UNSUPPORTED, "the mock has no op %s", op_name(op));
    }
}

/* ---- evaluation ---- */

static double rounded(double x, int32_t dtype)
{
    if (dtype == LATHE_BF16)
        return (double)lathe_bf16_to_f32(lathe_f32_to_bf16((float)x));
    if (dtype == LATHE_F16)
        return (double)(_Float16)(float)x;
    return dtype == LATHE_F32 ? (double)(float)x : x;
}

static void product(const double *a, int64_t ra, int64_t ca, const double *b, int64_t cb, int ta,
                    int tb, double alpha, double *y)
{
    /* ra, cb: rows and columns of y; ca: inner size */
    for (int64_t i = 0; i < ra; i++)
        for (int64_t j = 0; j < cb; j++) {
            double sum = 0;
            for (int64_t k = 0; k < ca; k++)
                sum += (ta ? a[k * ra + i] : a[i * ca + k]) * (tb ? b[j * ca + k] : b[k * cb + j]);
            y[i * cb + j] = alpha * sum;
        }
}

static void eval_matrix(lathe_graph *g, const mock_node *n, double *y)
{
    const lathe_desc *a = desc_of(g, n->in[0]), *out = desc_of(g, n->out[0]);
    const double *x = g->values[n->in[0]].data;
    if (n->op == LATHE_OP_TRANSPOSE) {
        for (int64_t i = 0; i < a->dims[0]; i++)
            for (int64_t j = 0; j < a->dims[1]; j++)
                y[j * a->dims[0] + i] = x[i * a->dims[1] + j];
        return;
    }
    const int linear = n->op == LATHE_OP_LINEAR;
    const int ta = !linear && n->attrs.trans_a, tb = linear || n->attrs.trans_b;
    product(x, out->dims[0], a->dims[ta ? 0 : 1], g->values[n->in[1]].data, out->dims[1], ta, tb,
            linear ? 1.0 : n->attrs.alpha, y);
    if (!linear || n->in[2] == LATHE_NONE)
        return;
    const double *bias = g->values[n->in[2]].data;
    for (int64_t i = 0; i < lathe_desc_count(out); i++)
        y[i] += bias[i % out->dims[1]];
}

static void eval_blocks(lathe_graph *g, const mock_node *n, const double *x, double *y)
{
    const lathe_desc *a = desc_of(g, n->in[0]), *out = desc_of(g, n->out[0]);
    const int64_t width = out->dims[1];
    memset(y, 0, (size_t)lathe_desc_count(out) * sizeof *y);
    if (n->op == LATHE_OP_SKEW) {
        const int64_t k = out->dims[0];
        for (int64_t e = 0; e < a->dims[0] * k; e++) /* row i of block e / k */
            for (int64_t i = e % k, j = i + 1; j < k; j++) {
                const double v = x[e / k * a->dims[1] + i * (2 * k - i - 1) / 2 + j - i - 1];
                y[i * width + e / k * k + j] = v;
                y[j * width + e / k * k + i] = -v;
            }
        return;
    }
    const double *b = g->values[n->in[1]].data;
    const int64_t inner = a->dims[1] / n->attrs.count, cols = width / n->attrs.count;
    for (int64_t e = 0; e < lathe_desc_count(out); e++)
        for (int64_t k = 0; k < inner; k++)
            y[e] += n->attrs.alpha * b[k * width + e % width] *
                    x[e / width * a->dims[1] + e % width / cols * inner + k];
}

static void eval_dropout(lathe_graph *g, const mock_node *n, const double *x, double *y,
                         int64_t count)
{
    const double *key = g->values[n->in[1]].data;
    for (int64_t e = 0; e < count; e++) {
        const lathe_u32x4 block = lathe_rng_block((uint64_t)key[0], (uint64_t)key[1],
                                                  n->attrs.rng_stream, (uint64_t)(e / 4));
        const int kept = lathe_uniform_f32(block.v[e % 4]) >= n->attrs.p;
        y[e] = kept ? x[e] / (1.0 - (double)n->attrs.p) : 0.0;
    }
}

static double eval_one(const mock_node *n, double a, double b, double s)
{
    const lathe_op_attrs *at = &n->attrs;
    switch (n->op) {
    case LATHE_OP_ADD:
        return a + b;
    case LATHE_OP_SUB:
        return a - b;
    case LATHE_OP_MUL:
        return a * b;
    case LATHE_OP_DIV:
        return a / b;
    case LATHE_OP_MAX:
        return a > b ? a : b;
    case LATHE_OP_MIN:
        return a < b ? a : b;
    case LATHE_OP_LESS:
        return a < b;
    case LATHE_OP_CLAMP:
        return fmin(fmax(a, at->alpha), at->beta);
    case LATHE_OP_SCALE:
        return at->alpha * a + at->beta;
    case LATHE_OP_SCALE_BY:
        return a * s;
    case LATHE_OP_LINCOMB:
        return at->alpha * a + at->beta * b;
    case LATHE_OP_APPLY_UPDATE:
        return a - s * (at->alpha * b + at->beta * a);
    case LATHE_OP_LOGSIGMOID:
        return a < 0 ? a - log1p(exp(a)) : -log1p(exp(-a));
    case LATHE_OP_SIGMOID:
        return a < 0 ? exp(a) / (1 + exp(a)) : 1 / (1 + exp(-a));
    case LATHE_OP_EXP:
        return exp(a);
    case LATHE_OP_LOG:
        return log(a);
    case LATHE_OP_TANH:
        return tanh(a);
    default: /* CAST, COPY, detach */
        return a;
    }
}

static void eval_rows(lathe_graph *g, const mock_node *n, const double *x, double *y)
{
    const lathe_desc *in = desc_of(g, n->in[0]);
    const int64_t n_in = lathe_desc_count(in), n_out = mock_elements(g, n->out[0]);
    if (n->op == LATHE_OP_SLICE) {
        const int64_t stride = n_in / in->dims[0];
        memcpy(y, x + n->attrs.start * stride, (size_t)n_out * sizeof *y);
    } else if (n->op == LATHE_OP_BROADCAST) {
        for (int64_t i = 0; i < n_out; i++)
            y[i] = x[i / n->attrs.count];
    } else { /* SUM, ROW_SUM */
        memset(y, 0, (size_t)n_out * sizeof *y);
        for (int64_t i = 0; i < n_in; i++)
            y[i / (n_in / n_out)] += x[i];
    }
}

static void eval_spread(lathe_graph *g, const mock_node *n, const double *x, double *y)
{
    const int is_sum = n->op != LATHE_OP_BROADCAST_ROW;
    const lathe_desc *matrix = desc_of(g, is_sum ? n->in[0] : n->out[0]);
    const int64_t cols = matrix->dims[1];
    memset(y, 0, (size_t)mock_elements(g, n->out[0]) * sizeof *y);
    for (int64_t i = 0; i < matrix->dims[0] * cols; i++) {
        if (is_sum)
            y[n->op == LATHE_OP_SUM_ROWS ? i % cols : i / cols] += x[i];
        else
            y[i] = x[i % cols];
    }
}

static void eval_node(lathe_graph *g, const mock_node *n)
{
    const double *x = g->values[n->in[0]].data;
    double *y = g->values[n->out[0]].data;
    const int64_t count = mock_elements(g, n->out[0]);
    switch (n->op) {
    case LATHE_OP_LINEAR:
    case LATHE_OP_MATMUL:
    case LATHE_OP_TRANSPOSE:
        eval_matrix(g, n, y);
        break;
    case LATHE_OP_BLOCK_MATMUL:
    case LATHE_OP_SKEW:
        eval_blocks(g, n, x, y);
        break;
    case LATHE_OP_SLICE:
    case LATHE_OP_SUM:
    case LATHE_OP_ROW_SUM:
    case LATHE_OP_BROADCAST:
        eval_rows(g, n, x, y);
        break;
    case LATHE_OP_BROADCAST_ROW:
    case LATHE_OP_SUM_ROWS:
    case LATHE_OP_SUM_COLUMNS:
        eval_spread(g, n, x, y);
        break;
    case LATHE_OP_DROPOUT:
        eval_dropout(g, n, x, y, count);
        break;
    case LATHE_OP_L2_NORMALIZE: {
        double square = 0;
        for (int64_t i = 0; i < count; i++)
            square += x[i] * x[i];
        for (int64_t i = 0; i < count; i++)
            y[i] = x[i] / fmax(sqrt(square), (double)n->attrs.eps);
        break;
    }
    default: {
        const int by = n->op == LATHE_OP_SCALE_BY ? 1 : n->op == LATHE_OP_APPLY_UPDATE ? 2 : -1;
        const double s = by < 0 ? 0 : g->values[n->in[by]].data[n->attrs.start];
        const double *b = n->n_in > 1 && by != 1 ? g->values[n->in[1]].data : NULL;
        for (int64_t i = 0; i < count; i++)
            y[i] = eval_one(n, x[i], b ? b[i] : 0, s);
    }
    }
    for (int64_t i = 0; g->rounds && i < count; i++)
        y[i] = rounded(y[i], desc_of(g, n->out[0])->dtype);
}

void mock_eval(lathe_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!(g->hold_detached && g->nodes[i].op == OP_DETACH))
            eval_node(g, &g->nodes[i]);
}

double mock_gradient(lathe_graph *g, lathe_val out, lathe_val at, int64_t i, double h)
{
    double *x = &g->values[at].data[i];
    const double *y = g->values[out].data;
    const double kept = *x;
    mock_eval(g);
    g->hold_detached = 1;
    *x = kept + h;
    mock_eval(g);
    const double above = y[0];
    *x = kept - h;
    mock_eval(g);
    const double below = y[0];
    g->hold_detached = 0;
    *x = kept;
    mock_eval(g);
    return (above - below) / (2 * h);
}

/* ---- the table ---- */

static lathe_status api_desc(lathe_graph *g, lathe_val v, lathe_desc *out)
{
    if (v < 0 || v >= g->n_values)
        return refuse(g, LATHE_E_ARG, "no value %d", v);
    *out = *desc_of(g, v);
    return LATHE_OK;
}

static lathe_status record(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs,
                           const lathe_val *in, int32_t n_in, lathe_val *out, int32_t inplace_in,
                           const char *label)
{
    static const lathe_op_attrs none;
    lathe_desc y;
    for (int32_t i = 0; i < n_in; i++)
        if (in[i] < LATHE_NONE || in[i] >= g->n_values || (in[i] == LATHE_NONE && i < 2))
            return refuse(g, LATHE_E_ARG, "%s: input %d is no value", op_name(op), i);
    if (op == OP_DETACH)
        y = *desc_of(g, in[0]);
    else
        LATHE_TRY(infer(g, op, attrs ? attrs : &none, in, inplace_in, &y));
    if (inplace_in >= 0 && !same_dims(&y, desc_of(g, in[inplace_in])))
        return refuse(g, LATHE_E_SHAPE, "%s: cannot take the memory of input %d", op_name(op),
                      inplace_in);
    if (g->n_nodes == MOCK_MAX)
        abort();
    mock_node *n = &g->nodes[g->n_nodes++];
    n->op = op;
    n->n_in = n_in;
    n->n_out = 1;
    n->inplace_in = inplace_in;
    n->attrs = attrs ? *attrs : none;
    memcpy(n->in, in, (size_t)n_in * sizeof *in);
    (void)snprintf(n->label, sizeof n->label, "%s", label ? label : "");
    *out = n->out[0] = new_value(g, y, label);
    return LATHE_OK;
}

static lathe_status api_node(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs,
                             const lathe_val *in, int32_t n_in, lathe_val *out, int32_t n_out,
                             int32_t inplace_in, const char *label)
{
    static const int8_t want_in[] = {
#define LATHE_X(name, text, n_inputs, n_outputs) n_inputs,
        LATHE_OP_TABLE(LATHE_X)
#undef LATHE_X
    };
    const int is_short = op == LATHE_OP_CLAMP && n_in == 1; /* without its limit */
    if (op < 0 || op >= LATHE_N_OPS || (n_in != want_in[op] && !is_short) || n_out != 1)
        return refuse(g, LATHE_E_ARG, "%s: %d inputs and %d outputs", op_name(op), n_in, n_out);
    return record(g, op, attrs, in, n_in, out, inplace_in, label);
}

/* w: the weight [out, in] whose row norms a parameter begins with. */
static void init_norms(value *v, const value *w)
{
    for (int64_t o = 0; o < w->desc.dims[0]; o++) {
        double square = 0;
        for (int64_t i = 0; i < w->desc.dims[1]; i++)
            square += pow(w->data[o * w->desc.dims[1] + i], 2);
        v->data[o] = sqrt(square);
    }
}

static void init_param(value *v, uint64_t stream)
{
    const double scale = v->decl.init == LATHE_INIT_KAIMING_UNIFORM
                             ? 1 / sqrt((double)v->desc.dims[1])
                             : v->decl.init_scale;
    for (int64_t i = 0; i < lathe_desc_count(&v->desc); i++) {
        const lathe_u32x4 w = lathe_rng_block(1, 0, stream, (uint64_t)i);
        const double u = lathe_uniform_f64(w.v[0], w.v[1]), t = lathe_uniform_f64(w.v[2], w.v[3]);
        if (v->decl.init == LATHE_INIT_ZERO || v->decl.init == LATHE_INIT_ONE)
            v->data[i] = v->decl.init == LATHE_INIT_ONE;
        else if (v->decl.init == LATHE_INIT_NORMAL)
            v->data[i] = scale * sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * t);
        else
            v->data[i] = scale * (2 * u - 1);
    }
}

static lathe_status api_param(lathe_graph *g, const lathe_param_decl *decl, lathe_val *out)
{
    if (decl->size != sizeof *decl || decl->desc.dtype != LATHE_F32)
        return refuse(g, LATHE_E_ARG, "param %s: size %u, dtype %s", decl->name, decl->size,
                      lathe_dtype_name(decl->desc.dtype));
    lathe_val v = mock_param(g, decl->name);
    if (v == LATHE_NONE) {
        lathe_desc desc = decl->desc;
        desc.dtype = desc.rank >= 2 ? g->compute : LATHE_F32;
        v = new_value(g, desc, decl->name);
        g->values[v].is_param = 1;
        g->values[v].decl = *decl;
        g->values[v].decl.name = g->values[v].name;
        if (decl->init == LATHE_INIT_ROW_NORMS)
            init_norms(&g->values[v], &g->values[decl->init_from]);
        else
            init_param(&g->values[v], (uint64_t)v);
    } else if (!same_dims(&decl->desc, desc_of(g, v))) {
        return refuse(g, LATHE_E_SHAPE, "param %s was declared with another shape", decl->name);
    }
    *out = v;
    return LATHE_OK;
}

static lathe_status api_linear(lathe_graph *g, lathe_val x, lathe_val w, lathe_val bias,
                               const char *label, lathe_val *out)
{
    const lathe_val in[3] = {x, w, bias};
    return record(g, LATHE_OP_LINEAR, NULL, in, 3, out, -1, label);
}

static lathe_status api_detach(lathe_graph *g, lathe_val x, lathe_val *out)
{
    return record(g, OP_DETACH, NULL, &x, 1, out, -1, "detach");
}

static lathe_status api_rng(lathe_graph *g, lathe_val *out)
{
    static const double key[LATHE_RNG_COUNTER] = {42, 7, 0, 1, 1};
    if (g->rng == LATHE_NONE)
        g->rng = mock_input(g, "rng", lathe_desc_1d(LATHE_I64, LATHE_RNG_COUNTER), key);
    *out = g->rng;
    return LATHE_OK;
}

static uint64_t api_rng_stream(lathe_graph *g)
{
    return ++g->next_stream;
}

/* An op of the core without attributes. */
static lathe_status api_op(lathe_graph *g, const char *name, const lathe_op_attr *attrs,
                           int32_t n_attrs, const lathe_val *in, int32_t n_in, lathe_val *out,
                           int32_t n_out, const char *label)
{
    (void)attrs;
    for (int32_t op = 0; op < LATHE_N_OPS && n_attrs == 0; op++)
        if (strcmp(op_name(op), name) == 0)
            return api_node(g, op, NULL, in, n_in, out, n_out, -1, label);
    return refuse(g, LATHE_E_NOT_FOUND, "op '%s' is none of the mock's", name);
}

const lathe_graph_api *mock_api(void)
{
    static const lathe_graph_api api = {sizeof api, 1,          api_desc, api_node,       api_param,
                                        api_linear, api_detach, api_rng,  api_rng_stream, api_op};
    return &api;
}

/* ---- functions for tests ---- */

lathe_graph *mock_create(int32_t compute)
{
    lathe_graph *g = must(calloc(1, sizeof *g));
    g->compute = compute;
    g->rng = LATHE_NONE;
    return g;
}

void mock_destroy(lathe_graph *g)
{
    for (int i = 0; g != NULL && i < g->n_values; i++)
        free(g->values[i].data);
    free(g);
}

lathe_val mock_input(lathe_graph *g, const char *name, lathe_desc desc, const double *data)
{
    const lathe_val v = new_value(g, desc, name);
    if (data != NULL)
        memcpy(g->values[v].data, data, (size_t)mock_elements(g, v) * sizeof *data);
    return v;
}

lathe_val mock_param(const lathe_graph *g, const char *name)
{
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].is_param && strcmp(g->values[i].name, name) == 0)
            return i;
    return LATHE_NONE;
}

const lathe_param_decl *mock_param_decl(const lathe_graph *g, const char *name)
{
    const lathe_val v = mock_param(g, name);
    return v == LATHE_NONE ? NULL : &g->values[v].decl;
}

int mock_n_params(const lathe_graph *g)
{
    int n = 0;
    for (int i = 0; i < g->n_values; i++)
        n += g->values[i].is_param;
    return n;
}

int mock_n_nodes(const lathe_graph *g)
{
    return g->n_nodes;
}

const mock_node *mock_node_at(const lathe_graph *g, int i)
{
    return i >= 0 && i < g->n_nodes ? &g->nodes[i] : NULL;
}

int mock_count_op(const lathe_graph *g, int32_t op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == op;
    return n;
}

lathe_desc mock_desc(const lathe_graph *g, lathe_val v)
{
    return *desc_of(g, v);
}

int64_t mock_elements(const lathe_graph *g, lathe_val v)
{
    return lathe_desc_count(desc_of(g, v));
}

double *mock_data(lathe_graph *g, lathe_val v)
{
    return g->values[v].data;
}

void mock_round(lathe_graph *g, int on)
{
    g->rounds = on;
}

const char *mock_error(const lathe_graph *g)
{
    return g->error;
}

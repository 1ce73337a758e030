/* The logits of one model's head over the vocabulary, a chunk of rows at a time. */
#include "head/head_logits.cuh"

#include "base/launch.cuh"

#define LOGITS_BYTES ((int64_t)256 << 20) /* maximum, except for vocabularies beyond a million */
#define LEAST_ROWS 64

void cuda_head_logits_find(const lathe_kernel *k, head_logits *t, int32_t in_x, int32_t in_u,
                           int32_t backward)
{
    const int has_more = kernel_has_in(k, in_u);
    head_pair *first = &t->pairs[0], *more = &t->pairs[1];
    *t = {};
    t->v = k->in[in_x + 1].dims[0];
    t->stride = cuda_round_up(t->v, 64);
    t->dtype = k->in[in_x].dtype;
    t->n_pairs = has_more ? 2 : 1;
    t->in_s = kernel_has_in(k, in_u + 2) ? in_u + 2 : -1;
    t->out_ds = t->in_s >= 0 && backward && kernel_has_out(k, 4) ? 4 : -1;
    first->c = k->in[in_x + 1].dims[1];
    first->in_x = in_x;
    first->in_w = in_x + 1;
    first->out_dx = backward && kernel_has_out(k, 1) ? 1 : -1;
    first->out_dw = backward && kernel_has_out(k, 2) ? 2 : -1;
    if (!has_more)
        return;
    more->c = k->in[in_u + 1].dims[1];
    more->in_x = in_u;
    more->in_w = in_u + 1;
    more->out_dx = backward && kernel_has_out(k, 3) ? 3 : -1;
    more->out_dw = backward && kernel_has_out(k, 5) ? 5 : -1;
}

int64_t cuda_head_logits_row_bytes(const head_logits *t)
{
    return t->stride * (lathe_dtype_bytes(t->dtype) + (t->in_s >= 0 ? 4 : 0));
}

/* A multiple of 8 rows, so that slices of x are as aligned as x. */
int64_t cuda_head_logits_choose_rows(const lathe_kernel *k, int64_t n, int64_t row_bytes)
{
    int64_t rows = k->attrs.chunk_rows;
    if (rows > 0)
        return rows < n ? rows : n;
    rows = LOGITS_BYTES / row_bytes / LEAST_ROWS * LEAST_ROWS;
    rows = rows < LEAST_ROWS ? LEAST_ROWS : rows;
    const int64_t chunks = (n + rows - 1) / rows;
    rows = cuda_round_up((n + chunks - 1) / chunks, 8);
    return rows < n ? rows : n;
}

/* Prepares a pair's products of chunks of `rows` rows; raises *io_scratch to the largest need. */
static lathe_status make_products(lathe_kernel *k, const head_logits *t, head_pair *pair, int i,
                                  int64_t rows, int64_t *io_scratch)
{
    int64_t bytes[3] = {0, 0, 0};
    matmul_spec spec = {};
    spec.a_dtype = spec.b_dtype = spec.c_dtype = t->dtype;
    spec.alpha = 1.0;
    spec.m = rows;
    spec.n = t->v;
    spec.k = pair->c;
    spec.trans_b = 1;
    spec.c_stride = t->stride;
    spec.may_accumulate = pair != t->pairs; /* added to the first pair's products */
    if (!k->attrs.invariant)
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &pair->logits[i], &bytes[0]));
    else if (pair->invariant == nullptr)
        LATHE_TRY(cuda_invariant_product_create(k, &spec, &pair->invariant, &bytes[0]));
    spec.may_accumulate = 0;
    spec.n = pair->c;
    spec.k = t->v;
    spec.trans_b = 0;
    spec.c_stride = 0;
    spec.a_stride = t->stride;
    if (pair->out_dx >= 0)
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &pair->dx[i], &bytes[1]));
    spec.m = t->v;
    spec.k = rows;
    spec.trans_a = 1;
    spec.c_dtype = LATHE_F32;
    if (pair->out_dw >= 0)
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &pair->dw[i], &bytes[2]));
    for (int j = 0; j < 3; j++)
        *io_scratch = bytes[j] > *io_scratch ? bytes[j] : *io_scratch;
    return LATHE_OK;
}

lathe_status cuda_head_logits_products(lathe_kernel *k, head_logits *t, int64_t n,
                                       int64_t *io_scratch)
{
    for (int p = 0; p < t->n_pairs; p++) {
        LATHE_TRY(make_products(k, t, &t->pairs[p], HEAD_WHOLE, t->rows, io_scratch));
        if (n % t->rows != 0)
            LATHE_TRY(make_products(k, t, &t->pairs[p], HEAD_LAST, n % t->rows, io_scratch));
    }
    return LATHE_OK;
}

void cuda_head_logits_lay_out(head_logits *t, int64_t *io_at)
{
    t->products_at = cuda_round_up(*io_at, 64);
    t->scaled_at = t->products_at + t->rows * t->stride * lathe_dtype_bytes(t->dtype);
    *io_at = t->scaled_at + (t->in_s >= 0 ? t->rows * t->stride * 4 : 0);
}

void cuda_head_logits_fini(lathe_kernel *k, head_logits *t)
{
    for (head_pair &pair : t->pairs) {
        for (int i = 0; i < HEAD_SIZES; i++) {
            cuda_product_destroy(cuda_of(k), pair.logits[i]);
            cuda_product_destroy(cuda_of(k), pair.dx[i]);
            cuda_product_destroy(cuda_of(k), pair.dw[i]);
        }
        cuda_invariant_product_destroy(k, pair.invariant);
    }
}

void *cuda_head_logits_logits(const head_logits *t, const lathe_kernel_args *a, int32_t *out_dtype)
{
    *out_dtype = t->in_s >= 0 ? LATHE_F32 : t->dtype;
    return (char *)a->scratch + (t->in_s >= 0 ? t->scaled_at : t->products_at);
}

/* ---- s ---- */

/* scaled[r,v] = s[v] * l[r,v]; columns from v on are padding. One block a row. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    head_scale(const T *logits, const float *s, float *scaled, int64_t v, int64_t stride)
{
    const int64_t row = (int64_t)blockIdx.x * stride;
    for (int64_t i = threadIdx.x; i < stride; i += blockDim.x)
        scaled[row + i] = i < v ? s[i] * cuda_float(logits[row + i]) : 0.0f;
}

/* ds[v] (+)= sum over the rows of g[r,v] * l[r,v], in row order; l = g * s. A thread processes a
 * column. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    head_unscale(T *logits, const float *g, const float *s, float *ds, int add, int64_t rows,
                 int64_t v, int64_t stride)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= stride)
        return;
    double sum = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t e = r * stride + i;
        if (i < v)
            sum += (double)g[e] * (double)cuda_float(logits[e]);
        logits[e] = cuda_as<T>::from(i < v ? g[e] * s[i] : 0.0f);
    }
    if (i < v && ds != nullptr)
        cuda_put(&ds[i], add, (float)sum);
}

static lathe_status scale(lathe_kernel *k, const lathe_kernel_args *a, const head_logits *t,
                          int64_t n)
{
    const char *products = (const char *)a->scratch + t->products_at;
    float *scaled = (float *)((char *)a->scratch + t->scaled_at);
    CUDA_BY_DTYPE(t->dtype, T, {
        return cuda_run(k, a, n, CUDA_THREADS, head_scale<T>, (const T *)(const void *)products,
                        (const float *)a->in[t->in_s], scaled, t->v, t->stride);
    });
}

static lathe_status unscale(lathe_kernel *k, const lathe_kernel_args *a, const head_logits *t,
                            int64_t first, int64_t n)
{
    char *products = (char *)a->scratch + t->products_at;
    const float *gradient = (const float *)((const char *)a->scratch + t->scaled_at);
    float *ds = t->out_ds >= 0 ? (float *)a->out[t->out_ds] : nullptr;
    const int add = first > 0 || (t->out_ds >= 0 && (a->accumulate >> t->out_ds & 1u) != 0);
    CUDA_BY_DTYPE(t->dtype, T, {
        return cuda_run(k, a, (t->stride + CUDA_THREADS - 1) / CUDA_THREADS, CUDA_THREADS,
                        head_unscale<T>, (T *)(void *)products, gradient,
                        (const float *)a->in[t->in_s], ds, add, n, t->v, t->stride);
    });
}

/* ---- products ---- */

static const char *rows_of_x(const head_logits *t, const head_pair *pair,
                             const lathe_kernel_args *a, int64_t first)
{
    return (const char *)a->in[pair->in_x] + first * pair->c * lathe_dtype_bytes(t->dtype);
}

static int size_of(const head_logits *t, int64_t n)
{
    return n < t->rows ? HEAD_LAST : HEAD_WHOLE;
}

lathe_status cuda_head_logits_forward(lathe_kernel *k, const lathe_kernel_args *a,
                                      const head_logits *t, int64_t first, int64_t n)
{
    char *products = (char *)a->scratch + t->products_at;
    for (int p = 0; p < t->n_pairs; p++) {
        const head_pair *pair = &t->pairs[p];
        const char *x = rows_of_x(t, pair, a, first);
        if (pair->invariant != nullptr)
            LATHE_TRY(cuda_invariant_product_run(k, a, pair->invariant, x, n, a->in[pair->in_w],
                                                 nullptr, products, t->stride));
        else
            LATHE_TRY(cuda_product_run(cuda_of(k), pair->logits[size_of(t, n)], x,
                                       a->in[pair->in_w], nullptr, products, a->scratch, p > 0,
                                       a->stream));
    }
    return t->in_s >= 0 ? scale(k, a, t, n) : LATHE_OK;
}

/* Computes dx of the chunk's rows and adds to dW of a pair. */
static lathe_status pair_backward(lathe_kernel *k, const lathe_kernel_args *a, const head_logits *t,
                                  const head_pair *pair, int64_t first, int i)
{
    const char *gradient = (const char *)a->scratch + t->products_at;
    if (pair->dx[i] != nullptr)
        LATHE_TRY(cuda_product_run(
            cuda_of(k), pair->dx[i], gradient, a->in[pair->in_w], nullptr,
            (char *)a->out[pair->out_dx] + first * pair->c * lathe_dtype_bytes(t->dtype),
            a->scratch, (a->accumulate >> pair->out_dx & 1u) != 0, a->stream));
    if (pair->dw[i] != nullptr)
        LATHE_TRY(cuda_product_run(cuda_of(k), pair->dw[i], gradient, rows_of_x(t, pair, a, first),
                                   nullptr, a->out[pair->out_dw], a->scratch,
                                   first > 0 || (a->accumulate >> pair->out_dw & 1u) != 0,
                                   a->stream));
    return LATHE_OK;
}

lathe_status cuda_head_logits_backward(lathe_kernel *k, const lathe_kernel_args *a,
                                       const head_logits *t, int64_t first, int64_t n)
{
    if (t->in_s >= 0)
        LATHE_TRY(unscale(k, a, t, first, n));
    for (int p = 0; p < t->n_pairs; p++)
        LATHE_TRY(pair_backward(k, a, t, &t->pairs[p], first, size_of(t, n)));
    return LATHE_OK;
}

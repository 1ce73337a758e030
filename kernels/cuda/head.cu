/* HEAD_LOGPROB, its derivative, HEAD_EVAL and HEAD_SAMPLE: log softmax(softcap(s * (x W^T + u
 * v^T)))[target];
 * HEAD_ENTROPY, the entropy of that softmax, and its derivative. The logits of all rows are never
 * in memory at once.
 *
 * Rows are processed in chunks. A product gives the logits of a chunk. One kernel
 * (head_softmax.cuh) computes the log-probabilities and, in place, the gradient of the logits. From
 * it two products compute dx and dW, which is summed over the chunks. Logits have the compute
 * dtype, as on the CPU. Their rows are padded to 64 elements, so that products and kernels can use
 * wide loads even if the vocabulary is odd. The terms x W^T and u v^T are pairs of operands that
 * are treated alike; without u and v there is one pair. With s, the logits are the products alone,
 * and s times them, or the gradient of that, are f32 numbers beside them.
 *
 *   scratch: | product | logits [rows, stride] | scaled f32 [rows, stride] |
 *
 * Only the GPU knows which rows have a target, so rows without one take the same time; they get
 * logp 0 and no gradient. A target outside the vocabulary gives logp NaN and no gradient.
 */
#include "blas.h"
#include "fixed_product.h"
#include "head_entropy.cuh"

#define LOGITS_BYTES ((int64_t)256 << 20) /* maximum, except for vocabularies beyond a million */
#define LEAST_ROWS 64

static int is_entropy(const lathe_kernel *k)
{
    return k->op_id == LATHE_OP_HEAD_ENTROPY || k->op_id == LATHE_OP_HEAD_ENTROPY_BWD;
}

static int is_backward(const lathe_kernel *k)
{
    return k->op_id == LATHE_OP_HEAD_LOGPROB_BWD || k->op_id == LATHE_OP_HEAD_ENTROPY_BWD;
}

enum { WHOLE, LAST, N_SIZES }; /* sizes of chunks; the last may be smaller */

enum { MOST_PAIRS = 2 };

/* A term x W^T of the logits: x [N,c], W [V,c]. */
struct head_pair {
    int64_t c;
    int32_t in_x, in_w, out_dx, out_dw; /* numbers of inputs and outputs; -1: not wanted */
    cuda_product *logits[N_SIZES], *dx[N_SIZES], *dw[N_SIZES]; /* NULL: not wanted */
    cuda_fixed_product *fixed; /* of the logits, with attrs.invariant: instead of `logits` */
};

struct head {
    int64_t n, v, stride;
    int64_t rows; /* of a chunk */
    int32_t dtype, n_pairs;
    int32_t in_s, out_ds; /* numbers of s and its gradient; -1: none */
    head_pair pairs[MOST_PAIRS];
    int64_t logits_at, scaled_at; /* offsets in scratch */
};

static void release(lathe_kernel *k)
{
    head *s = (head *)k->state;
    for (int i = 0; i < N_SIZES * MOST_PAIRS; i++) {
        const head_pair *pair = &s->pairs[i / N_SIZES];
        cuda_product_destroy(cuda_of(k), pair->logits[i % N_SIZES]);
        cuda_product_destroy(cuda_of(k), pair->dx[i % N_SIZES]);
        cuda_product_destroy(cuda_of(k), pair->dw[i % N_SIZES]);
    }
    for (head_pair &pair : s->pairs)
        cuda_fixed_product_destroy(k, pair.fixed);
    k->host->free(s);
}

/* Chunks of equal size, a multiple of 8 rows, so that slices of x are as aligned as x. */
static int64_t choose_rows(const lathe_kernel *k, const head *s)
{
    int64_t rows = k->attrs.chunk_rows;
    if (rows > 0)
        return rows < s->n ? rows : s->n;
    const int64_t element = lathe_dtype_bytes(s->dtype) + (s->in_s >= 0 ? 4 : 0);
    rows = LOGITS_BYTES / (s->stride * element) / LEAST_ROWS * LEAST_ROWS;
    rows = rows < LEAST_ROWS ? LEAST_ROWS : rows;
    const int64_t chunks = (s->n + rows - 1) / rows;
    rows = cuda_round_up((s->n + chunks - 1) / chunks, 8);
    return rows < s->n ? rows : s->n;
}

/* Prepares a pair's products of chunks of `rows` rows; raises *io_scratch to the largest need. */
static lathe_status make_products(lathe_kernel *k, const head *s, head_pair *pair, int i,
                                  int64_t rows, int64_t *io_scratch)
{
    int64_t bytes[3] = {0, 0, 0};
    matmul_spec spec = {};
    spec.a_dtype = spec.b_dtype = spec.c_dtype = s->dtype;
    spec.alpha = 1.0;
    spec.m = rows;
    spec.n = s->v;
    spec.k = pair->c;
    spec.trans_b = 1;
    spec.c_stride = s->stride;
    spec.may_accumulate = pair != s->pairs; /* added to the first pair's logits */
    if (!k->attrs.invariant)
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &pair->logits[i], &bytes[0]));
    else if (pair->fixed == nullptr)
        LATHE_TRY(cuda_fixed_product_create(k, &spec, &pair->fixed, &bytes[0]));
    spec.may_accumulate = 0;
    spec.n = pair->c;
    spec.k = s->v;
    spec.trans_b = 0;
    spec.c_stride = 0;
    spec.a_stride = s->stride;
    if (pair->out_dx >= 0)
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &pair->dx[i], &bytes[1]));
    spec.m = s->v;
    spec.k = rows;
    spec.trans_a = 1;
    spec.c_dtype = LATHE_F32;
    if (pair->out_dw >= 0)
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &pair->dw[i], &bytes[2]));
    for (int j = 0; j < 3; j++)
        *io_scratch = bytes[j] > *io_scratch ? bytes[j] : *io_scratch;
    return LATHE_OK;
}

/* Finds the terms of the logits, and where their gradients go. */
static void find_pairs(const lathe_kernel *k, head *s)
{
    const int32_t u = is_backward(k) || k->op_id == LATHE_OP_HEAD_SAMPLE ? 4 : 3;
    const int has_more = kernel_has_in(k, u);
    const int32_t dw = is_backward(k) && kernel_has_out(k, 2) ? 2 : -1;
    head_pair *first = &s->pairs[0], *more = &s->pairs[1];
    s->n_pairs = has_more ? 2 : 1;
    s->in_s = kernel_has_in(k, u + 2) ? u + 2 : -1;
    s->out_ds = s->in_s >= 0 && is_backward(k) && kernel_has_out(k, 4) ? 4 : -1;
    first->c = k->in[1].dims[1];
    first->in_x = 0;
    first->in_w = 1;
    first->out_dx = is_backward(k) && kernel_has_out(k, 1) ? 1 : -1;
    first->out_dw = has_more ? -1 : dw;
    if (!has_more)
        return;
    more->c = k->in[u + 1].dims[1];
    more->in_x = u;
    more->in_w = u + 1;
    more->out_dx = is_backward(k) && kernel_has_out(k, 3) ? 3 : -1;
    more->out_dw = dw;
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    head *s = (head *)k->host->alloc((int64_t)sizeof *s);
    if (s == nullptr)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    s->n = lathe_desc_count(&k->in[2]);
    s->v = k->in[1].dims[0];
    s->dtype = k->in[0].dtype;
    s->stride = cuda_round_up(s->v, 64);
    find_pairs(k, s);
    s->rows = choose_rows(k, s);
    int64_t product_bytes = 0;
    for (int p = 0; p < s->n_pairs; p++) {
        LATHE_TRY(make_products(k, s, &s->pairs[p], WHOLE, s->rows, &product_bytes));
        if (s->n % s->rows != 0)
            LATHE_TRY(make_products(k, s, &s->pairs[p], LAST, s->n % s->rows, &product_bytes));
    }
    s->logits_at = cuda_round_up(product_bytes, 64);
    s->scaled_at = s->logits_at + s->rows * s->stride * lathe_dtype_bytes(s->dtype);
    *out_scratch = s->scaled_at + (s->in_s >= 0 ? s->rows * s->stride * 4 : 0);
    return LATHE_OK;
}

/* The op's arguments from row `first` on. */
static head_rows rows_at(const lathe_kernel *k, const lathe_kernel_args *a, int64_t first)
{
    const head *s = (const head *)k->state;
    head_rows out = {};
    out.v = s->v;
    out.stride = s->stride;
    out.cap = k->attrs.softcap;
    out.targets = (const int32_t *)a->in[2] + first;
    out.first = first;
    out.n = lathe_desc_count(&k->in[2]);
    if (k->op_id == LATHE_OP_HEAD_SAMPLE) {
        out.sampled = (int32_t *)a->out[0] + first;
        out.rng = (const int64_t *)a->in[3];
        out.rng_stream = k->attrs.rng_stream;
        return out;
    }
    out.logp = (float *)a->out[0] + first;
    out.accumulate_logp = (a->accumulate & 1u) != 0;
    if (is_backward(k))
        out.dlogp = (const float *)a->in[3] + first;
    if (k->op_id == LATHE_OP_HEAD_EVAL) {
        out.top_logp = (float *)a->out[1] + first;
        out.top = (int32_t *)a->out[2] + first;
    }
    return out;
}

template <typename T>
static lathe_status run_rows(const lathe_kernel *k, const lathe_kernel_args *a, T *logits,
                             head_rows rows, int64_t n)
{
    if (is_entropy(k))
        return cuda_run(k, a, n, CUDA_THREADS, head_entropy<T>, logits, rows);
    if (rows.sampled != nullptr)
        return cuda_run(k, a, n, CUDA_THREADS, head_draw<T>, (const T *)logits, rows);
    if (rows.top != nullptr)
        return cuda_run(k, a, n, CUDA_THREADS, head_logprob<T, 1>, logits, rows);
    return cuda_run(k, a, n, CUDA_THREADS, head_logprob<T, 0>, logits, rows);
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

template <typename T>
static lathe_status run_scaled_rows(const lathe_kernel *k, const lathe_kernel_args *a, T *logits,
                                    head_rows rows, int64_t n)
{
    const head *s = (const head *)k->state;
    const float *factors = (const float *)a->in[s->in_s];
    float *scaled = (float *)((char *)a->scratch + s->scaled_at);
    float *ds = s->out_ds >= 0 ? (float *)a->out[s->out_ds] : nullptr;
    const int add = rows.first > 0 || (s->out_ds >= 0 && (a->accumulate >> s->out_ds & 1u) != 0);
    LATHE_TRY(cuda_run(k, a, n, CUDA_THREADS, head_scale<T>, (const T *)logits, factors, scaled,
                       s->v, s->stride));
    LATHE_TRY(run_rows(k, a, scaled, rows, n));
    if (!is_backward(k))
        return LATHE_OK;
    return cuda_run(k, a, (s->stride + CUDA_THREADS - 1) / CUDA_THREADS, CUDA_THREADS,
                    head_unscale<T>, logits, (const float *)scaled, factors, ds, add, n, s->v,
                    s->stride);
}

static const char *rows_of_x(const head *s, const head_pair *pair, const lathe_kernel_args *a,
                             int64_t first)
{
    return (const char *)a->in[pair->in_x] + first * pair->c * lathe_dtype_bytes(s->dtype);
}

/* Computes dx of the chunk's rows and adds to dW of a pair, from the gradients of the logits. */
static lathe_status pair_backward(lathe_kernel *k, const lathe_kernel_args *a,
                                  const head_pair *pair, int i, int64_t first, const char *logits)
{
    const head *s = (const head *)k->state;
    if (pair->dx[i] != nullptr)
        LATHE_TRY(cuda_product_run(
            cuda_of(k), pair->dx[i], logits, a->in[pair->in_w], nullptr,
            (char *)a->out[pair->out_dx] + first * pair->c * lathe_dtype_bytes(s->dtype),
            a->scratch, (a->accumulate >> pair->out_dx & 1u) != 0, a->stream));
    if (pair->dw[i] != nullptr)
        LATHE_TRY(cuda_product_run(cuda_of(k), pair->dw[i], logits, rows_of_x(s, pair, a, first),
                                   nullptr, a->out[pair->out_dw], a->scratch,
                                   first > 0 || (a->accumulate >> pair->out_dw & 1u) != 0,
                                   a->stream));
    return LATHE_OK;
}

static lathe_status run_chunk(lathe_kernel *k, const lathe_kernel_args *a, int64_t first, int64_t n)
{
    const head *s = (const head *)k->state;
    const int i = n < s->rows ? LAST : WHOLE;
    char *logits = (char *)a->scratch + s->logits_at;
    for (int p = 0; p < s->n_pairs; p++) {
        const head_pair *pair = &s->pairs[p];
        const char *x = rows_of_x(s, pair, a, first);
        if (pair->fixed != nullptr)
            LATHE_TRY(cuda_fixed_product_run(k, a, pair->fixed, x, n, a->in[pair->in_w], nullptr,
                                             logits, s->stride));
        else
            LATHE_TRY(cuda_product_run(cuda_of(k), pair->logits[i], x, a->in[pair->in_w], nullptr,
                                       logits, a->scratch, p > 0, a->stream));
    }
    CUDA_BY_DTYPE(s->dtype, T, {
        LATHE_TRY(s->in_s >= 0 ? run_scaled_rows(k, a, (T *)(void *)logits, rows_at(k, a, first), n)
                               : run_rows(k, a, (T *)(void *)logits, rows_at(k, a, first), n));
    });
    for (int p = 0; p < s->n_pairs; p++)
        LATHE_TRY(pair_backward(k, a, &s->pairs[p], i, first, logits));
    return LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const head *s = (const head *)k->state;
    for (int64_t first = 0; first < s->n; first += s->rows)
        LATHE_TRY(run_chunk(k, a, first, s->n - first < s->rows ? s->n - first : s->rows));
    return LATHE_OK;
}

const kernel_op CUDA_OP(HEAD_LOGPROB) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_EVAL) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_SAMPLE) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_LOGPROB_BWD) = {prepare, run, release, 31};
const kernel_op CUDA_OP(HEAD_ENTROPY) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_ENTROPY_BWD) = {prepare, run, release, 31};

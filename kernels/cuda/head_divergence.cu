/* HEAD_DIVERGENCE and its derivative. The logits of all rows are never in memory at once.
 *
 * Rows are processed in chunks. Two products give the logits of both models for a chunk; one kernel
 * (head_divergence.cuh) computes the divergences and, in place of the first model's logits, their
 * gradient. From it two products compute dx and dW, which is summed over the chunks. Logits have
 * the dtype of their model. Their rows are padded to 64 elements, as in head.cu.
 *
 *   scratch: | product | logits [rows, stride] | other logits [rows, stride] |
 *
 * Rows without a target take the same time; they get 0 and no gradient. A target outside the
 * vocabulary gives NaN and no gradient.
 */
#include "blas.h"
#include "head_divergence.cuh"

#define LOGITS_BYTES ((int64_t)256 << 20) /* of both models, about */
#define LEAST_ROWS 64

enum { WHOLE, LAST, N_SIZES }; /* sizes of chunks; the last may be smaller */

struct divergence_side {
    int64_t c;
    int32_t dtype;
    cuda_product *logits[N_SIZES];
    int64_t at; /* offset of the logits in scratch */
};

struct divergence {
    int64_t n, v, stride, rows;
    divergence_side own, other;
    cuda_product *dx[N_SIZES], *dw[N_SIZES]; /* NULL: not wanted */
};

static int is_backward(const lathe_kernel *k)
{
    return k->op_id == LATHE_OP_HEAD_DIVERGENCE_BWD;
}

static void release(lathe_kernel *k)
{
    divergence *s = (divergence *)k->state;
    for (int i = 0; i < N_SIZES; i++) {
        cuda_product_destroy(cuda_of(k), s->own.logits[i]);
        cuda_product_destroy(cuda_of(k), s->other.logits[i]);
        cuda_product_destroy(cuda_of(k), s->dx[i]);
        cuda_product_destroy(cuda_of(k), s->dw[i]);
    }
    k->host->free(s);
}

static int64_t choose_rows(const lathe_kernel *k, const divergence *s)
{
    const int64_t each =
        s->stride * (lathe_dtype_bytes(s->own.dtype) + lathe_dtype_bytes(s->other.dtype));
    int64_t rows = k->attrs.chunk_rows;
    if (rows > 0)
        return rows < s->n ? rows : s->n;
    rows = LOGITS_BYTES / each / LEAST_ROWS * LEAST_ROWS;
    rows = rows < LEAST_ROWS ? LEAST_ROWS : rows;
    const int64_t chunks = (s->n + rows - 1) / rows;
    rows = cuda_round_up((s->n + chunks - 1) / chunks, 8);
    return rows < s->n ? rows : s->n;
}

static lathe_status make_logits(lathe_kernel *k, const divergence *s, divergence_side *of, int i,
                                int64_t rows, int64_t *io_scratch)
{
    int64_t bytes = 0;
    matmul_spec spec = {};
    spec.a_dtype = spec.b_dtype = spec.c_dtype = of->dtype;
    spec.alpha = 1.0;
    spec.m = rows;
    spec.n = s->v;
    spec.k = of->c;
    spec.trans_b = 1;
    spec.c_stride = s->stride;
    LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &of->logits[i], &bytes));
    *io_scratch = bytes > *io_scratch ? bytes : *io_scratch;
    return LATHE_OK;
}

static lathe_status make_gradients(lathe_kernel *k, divergence *s, int i, int64_t rows,
                                   int64_t *io_scratch)
{
    int64_t bytes[2] = {0, 0};
    matmul_spec spec = {};
    spec.a_dtype = spec.b_dtype = spec.c_dtype = s->own.dtype;
    spec.alpha = 1.0;
    spec.m = rows;
    spec.n = s->own.c;
    spec.k = s->v;
    spec.a_stride = s->stride;
    if (is_backward(k) && kernel_has_out(k, 1))
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &s->dx[i], &bytes[0]));
    spec.m = s->v;
    spec.k = rows;
    spec.trans_a = 1;
    spec.c_dtype = LATHE_F32;
    if (is_backward(k) && kernel_has_out(k, 2))
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &s->dw[i], &bytes[1]));
    for (int j = 0; j < 2; j++)
        *io_scratch = bytes[j] > *io_scratch ? bytes[j] : *io_scratch;
    return LATHE_OK;
}

static lathe_status make_products(lathe_kernel *k, divergence *s, int i, int64_t rows,
                                  int64_t *io_scratch)
{
    LATHE_TRY(make_logits(k, s, &s->own, i, rows, io_scratch));
    LATHE_TRY(make_logits(k, s, &s->other, i, rows, io_scratch));
    return make_gradients(k, s, i, rows, io_scratch);
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    divergence *s = (divergence *)k->host->alloc((int64_t)sizeof *s);
    if (s == nullptr)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    *s = {};
    k->state = s;
    s->n = lathe_desc_count(&k->in[4]);
    s->v = k->in[1].dims[0];
    s->stride = cuda_round_up(s->v, 64);
    s->own.c = k->in[1].dims[1];
    s->own.dtype = k->in[0].dtype;
    s->other.c = k->in[3].dims[1];
    s->other.dtype = k->in[2].dtype;
    s->rows = choose_rows(k, s);
    int64_t product_bytes = 0;
    LATHE_TRY(make_products(k, s, WHOLE, s->rows, &product_bytes));
    if (s->n % s->rows != 0)
        LATHE_TRY(make_products(k, s, LAST, s->n % s->rows, &product_bytes));
    s->own.at = cuda_round_up(product_bytes, 64);
    s->other.at =
        cuda_round_up(s->own.at + s->rows * s->stride * lathe_dtype_bytes(s->own.dtype), 64);
    *out_scratch = s->other.at + s->rows * s->stride * lathe_dtype_bytes(s->other.dtype);
    return LATHE_OK;
}

/* The op's arguments from row `first` on. */
static divergence_rows rows_at(const lathe_kernel *k, const lathe_kernel_args *a, int64_t first)
{
    const divergence *s = (const divergence *)k->state;
    divergence_rows out = {};
    out.v = s->v;
    out.stride = s->stride;
    out.cap = k->attrs.softcap;
    out.other_cap = k->attrs.scale;
    out.scale = (float)(1.0 / k->attrs.alpha);
    out.beta = (float)k->attrs.beta;
    out.targets = (const int32_t *)a->in[4] + first;
    out.dy = is_backward(k) ? (const float *)a->in[5] + first : nullptr;
    out.out = (float *)a->out[0] + first;
    out.accumulate = (a->accumulate & 1u) != 0;
    return out;
}

/* Logits of a chunk of one model. */
static lathe_status run_logits(lathe_kernel *k, const lathe_kernel_args *a,
                               const divergence_side *of, int i, int32_t in, int64_t first)
{
    const int64_t row_bytes = of->c * lathe_dtype_bytes(of->dtype);
    return cuda_product_run(cuda_of(k), of->logits[i], (const char *)a->in[in] + first * row_bytes,
                            a->in[in + 1], nullptr, (char *)a->scratch + of->at, a->scratch, 0,
                            a->stream);
}

template <typename T>
static lathe_status run_rows(const lathe_kernel *k, const lathe_kernel_args *a, T *logits,
                             int64_t first, int64_t n)
{
    const divergence *s = (const divergence *)k->state;
    const char *other = (const char *)a->scratch + s->other.at;
    CUDA_BY_DTYPE(s->other.dtype, U, {
        LATHE_TRY(cuda_run(k, a, n, CUDA_THREADS, head_divergence<T, U>, logits,
                           (const U *)(const void *)other, rows_at(k, a, first)));
    });
    return LATHE_OK;
}

static lathe_status run_chunk(lathe_kernel *k, const lathe_kernel_args *a, int64_t first, int64_t n)
{
    const divergence *s = (const divergence *)k->state;
    const int i = n < s->rows ? LAST : WHOLE;
    const int64_t row_bytes = s->own.c * lathe_dtype_bytes(s->own.dtype);
    char *logits = (char *)a->scratch + s->own.at;
    LATHE_TRY(run_logits(k, a, &s->own, i, 0, first));
    LATHE_TRY(run_logits(k, a, &s->other, i, 2, first));
    CUDA_BY_DTYPE(s->own.dtype, T, { LATHE_TRY(run_rows(k, a, (T *)(void *)logits, first, n)); });
    if (s->dx[i] != nullptr)
        LATHE_TRY(cuda_product_run(cuda_of(k), s->dx[i], logits, a->in[1], nullptr,
                                   (char *)a->out[1] + first * row_bytes, a->scratch,
                                   (a->accumulate & 2u) != 0, a->stream));
    if (s->dw[i] != nullptr)
        LATHE_TRY(cuda_product_run(cuda_of(k), s->dw[i], logits,
                                   (const char *)a->in[0] + first * row_bytes, nullptr, a->out[2],
                                   a->scratch, first > 0 || (a->accumulate & 4u) != 0, a->stream));
    return LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const divergence *s = (const divergence *)k->state;
    for (int64_t first = 0; first < s->n; first += s->rows)
        LATHE_TRY(run_chunk(k, a, first, s->n - first < s->rows ? s->n - first : s->rows));
    return LATHE_OK;
}

const kernel_op CUDA_OP(HEAD_DIVERGENCE) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_DIVERGENCE_BWD) = {prepare, run, release, 7};

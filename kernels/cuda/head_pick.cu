/* HEAD_PICK and its derivative. The logits of all rows are never in memory at once.
 *
 * Rows are processed in chunks. A product gives the logits of a chunk; one kernel (head_pick.cuh)
 * computes the log-probabilities of the tokens that each row picks and, in place, the gradient of
 * the logits. From it two products compute dx and dW, which is summed over the chunks. Rows of
 * logits are padded to 64 elements, as in head.cu.
 *
 *   scratch: | product | logits [rows, stride] | marks u8 [rows, stride] |
 *
 * Rows that pick nothing take the same time; they get 0 and no gradient. A row with an id outside
 * the vocabulary gets NaN and no gradient.
 */
#include "blas.h"
#include "head_pick.cuh"

#define LOGITS_BYTES ((int64_t)256 << 20) /* about */
#define LEAST_ROWS 64

enum { WHOLE, LAST, N_SIZES }; /* sizes of chunks; the last may be smaller */

struct pick {
    int64_t n, c, v, k, stride, rows;
    int32_t dtype, has_rest;
    cuda_product *logits[N_SIZES], *dx[N_SIZES], *dw[N_SIZES]; /* NULL: not wanted */
    int64_t logits_at, marks_at;                               /* offsets in scratch */
};

static int is_backward(const lathe_kernel *k)
{
    return k->op_id == LATHE_OP_HEAD_PICK_BWD;
}

static void release(lathe_kernel *k)
{
    pick *s = (pick *)k->state;
    for (int i = 0; i < N_SIZES; i++) {
        cuda_product_destroy(cuda_of(k), s->logits[i]);
        cuda_product_destroy(cuda_of(k), s->dx[i]);
        cuda_product_destroy(cuda_of(k), s->dw[i]);
    }
    k->host->free(s);
}

static int64_t choose_rows(const lathe_kernel *k, const pick *s)
{
    int64_t rows = k->attrs.chunk_rows;
    if (rows > 0)
        return rows < s->n ? rows : s->n;
    rows = LOGITS_BYTES / (s->stride * lathe_dtype_bytes(s->dtype)) / LEAST_ROWS * LEAST_ROWS;
    rows = rows < LEAST_ROWS ? LEAST_ROWS : rows;
    const int64_t chunks = (s->n + rows - 1) / rows;
    rows = cuda_round_up((s->n + chunks - 1) / chunks, 8);
    return rows < s->n ? rows : s->n;
}

/* Prepares the products of chunks of `rows` rows; raises *io_scratch to the largest need. */
static lathe_status make_products(lathe_kernel *k, pick *s, int i, int64_t rows,
                                  int64_t *io_scratch)
{
    int64_t bytes[3] = {0, 0, 0};
    matmul_spec spec = {};
    spec.a_dtype = spec.b_dtype = spec.c_dtype = s->dtype;
    spec.alpha = 1.0;
    spec.m = rows;
    spec.n = s->v;
    spec.k = s->c;
    spec.trans_b = 1;
    spec.c_stride = s->stride;
    LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &s->logits[i], &bytes[0]));
    spec.n = s->c;
    spec.k = s->v;
    spec.trans_b = 0;
    spec.c_stride = 0;
    spec.a_stride = s->stride;
    if (is_backward(k) && kernel_has_out(k, 1))
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &s->dx[i], &bytes[1]));
    spec.m = s->v;
    spec.k = rows;
    spec.trans_a = 1;
    spec.c_dtype = LATHE_F32;
    if (is_backward(k) && kernel_has_out(k, 2))
        LATHE_TRY(cuda_product_create(cuda_of(k), &spec, &s->dw[i], &bytes[2]));
    for (int j = 0; j < 3; j++)
        *io_scratch = bytes[j] > *io_scratch ? bytes[j] : *io_scratch;
    return LATHE_OK;
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    pick *s = (pick *)k->host->alloc((int64_t)sizeof *s);
    if (s == nullptr)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    *s = {};
    k->state = s;
    s->n = k->in[2].dims[0];
    s->k = k->in[2].dims[1];
    s->v = k->in[1].dims[0];
    s->c = k->in[1].dims[1];
    s->dtype = k->in[0].dtype;
    s->has_rest = k->attrs.beta <= 0.0;
    s->stride = cuda_round_up(s->v, 64);
    s->rows = choose_rows(k, s);
    int64_t product_bytes = 0;
    LATHE_TRY(make_products(k, s, WHOLE, s->rows, &product_bytes));
    if (s->n % s->rows != 0)
        LATHE_TRY(make_products(k, s, LAST, s->n % s->rows, &product_bytes));
    s->logits_at = cuda_round_up(product_bytes, 64);
    s->marks_at =
        cuda_round_up(s->logits_at + s->rows * s->stride * lathe_dtype_bytes(s->dtype), 64);
    *out_scratch = s->marks_at + s->rows * s->stride;
    return LATHE_OK;
}

/* The op's arguments from row `first` on. */
static pick_rows rows_at(const lathe_kernel *k, const lathe_kernel_args *a, int64_t first)
{
    const pick *s = (const pick *)k->state;
    pick_rows out = {};
    out.v = s->v;
    out.stride = s->stride;
    out.k = s->k;
    out.columns = s->k + s->has_rest;
    out.cap = k->attrs.softcap;
    out.scale = (float)(1.0 / k->attrs.alpha);
    out.ids = (const int32_t *)a->in[2] + first * s->k;
    out.dy = is_backward(k) ? (const float *)a->in[3] + first * out.columns : nullptr;
    out.y = (float *)a->out[0] + first * out.columns;
    out.marks = (uint8_t *)a->scratch + s->marks_at;
    out.accumulate = (a->accumulate & 1u) != 0;
    return out;
}

template <typename T>
static lathe_status run_rows(const lathe_kernel *k, const lathe_kernel_args *a, T *logits,
                             int64_t first, int64_t n)
{
    const pick_rows rows = rows_at(k, a, first);
    if (((const pick *)k->state)->has_rest)
        return cuda_run(k, a, n, CUDA_THREADS, head_pick<T, 1>, logits, rows);
    return cuda_run(k, a, n, CUDA_THREADS, head_pick<T, 0>, logits, rows);
}

static lathe_status run_chunk(lathe_kernel *k, const lathe_kernel_args *a, int64_t first, int64_t n)
{
    const pick *s = (const pick *)k->state;
    const int i = n < s->rows ? LAST : WHOLE;
    const int64_t row_bytes = s->c * lathe_dtype_bytes(s->dtype);
    const char *x = (const char *)a->in[0] + first * row_bytes;
    char *logits = (char *)a->scratch + s->logits_at;
    LATHE_TRY(cuda_product_run(cuda_of(k), s->logits[i], x, a->in[1], nullptr, logits, a->scratch,
                               0, a->stream));
    CUDA_BY_DTYPE(s->dtype, T, { LATHE_TRY(run_rows(k, a, (T *)(void *)logits, first, n)); });
    if (s->dx[i] != nullptr)
        LATHE_TRY(cuda_product_run(cuda_of(k), s->dx[i], logits, a->in[1], nullptr,
                                   (char *)a->out[1] + first * row_bytes, a->scratch,
                                   (a->accumulate & 2u) != 0, a->stream));
    if (s->dw[i] != nullptr)
        LATHE_TRY(cuda_product_run(cuda_of(k), s->dw[i], logits, x, nullptr, a->out[2], a->scratch,
                                   first > 0 || (a->accumulate & 4u) != 0, a->stream));
    return LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const pick *s = (const pick *)k->state;
    for (int64_t first = 0; first < s->n; first += s->rows)
        LATHE_TRY(run_chunk(k, a, first, s->n - first < s->rows ? s->n - first : s->rows));
    return LATHE_OK;
}

const kernel_op CUDA_OP(HEAD_PICK) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_PICK_BWD) = {prepare, run, release, 7};

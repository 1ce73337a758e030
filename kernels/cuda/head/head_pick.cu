/* HEAD_PICK and its derivative. The logits of all rows are never in memory at once.
 *
 * Rows are processed in chunks. Products give the logits of a chunk (head_logits.cuh); one kernel
 * (head_pick.cuh) computes the log-probabilities of the tokens that each row picks and, in place,
 * the gradient of the logits. From it products compute the gradients of the operands.
 *
 *   scratch: | product | head_logits | marks u8 [rows, stride] |
 *
 * Rows that pick nothing take the same time; they get 0 and no gradient. A row with an id outside
 * the vocabulary gets NaN and no gradient.
 */
#include "head/head_logits.cuh"
#include "head/head_pick.cuh"

struct pick {
    int64_t n, k;
    int32_t has_rest;
    head_logits terms;
    int64_t marks_at; /* offset in scratch */
};

static int is_backward(const lathe_kernel *k)
{
    return k->op_id == LATHE_OP_HEAD_PICK_BWD;
}

static void release(lathe_kernel *k)
{
    pick *s = (pick *)k->state;
    cuda_head_logits_fini(k, &s->terms);
    k->host->free(s);
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
    s->has_rest = k->attrs.beta <= 0.0;
    cuda_head_logits_find(k, &s->terms, 0, is_backward(k) ? 4 : 3, is_backward(k));
    s->terms.rows = cuda_head_logits_choose_rows(k, s->n, cuda_head_logits_row_bytes(&s->terms));
    int64_t end = 0;
    LATHE_TRY(cuda_head_logits_products(k, &s->terms, s->n, &end));
    cuda_head_logits_lay_out(&s->terms, &end);
    s->marks_at = cuda_round_up(end, 64);
    *out_scratch = s->marks_at + s->terms.rows * s->terms.stride;
    return LATHE_OK;
}

/* The op's arguments from row `first` on. */
static pick_rows rows_at(const lathe_kernel *k, const lathe_kernel_args *a, int64_t first)
{
    const pick *s = (const pick *)k->state;
    pick_rows out = {};
    out.v = s->terms.v;
    out.stride = s->terms.stride;
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
    int32_t dtype;
    void *logits = cuda_head_logits_logits(&s->terms, a, &dtype);
    LATHE_TRY(cuda_head_logits_forward(k, a, &s->terms, first, n));
    CUDA_BY_DTYPE(dtype, T, { LATHE_TRY(run_rows(k, a, (T *)logits, first, n)); });
    return is_backward(k) ? cuda_head_logits_backward(k, a, &s->terms, first, n) : LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const pick *s = (const pick *)k->state;
    const int64_t rows = s->terms.rows;
    for (int64_t first = 0; first < s->n; first += rows)
        LATHE_TRY(run_chunk(k, a, first, s->n - first < rows ? s->n - first : rows));
    return LATHE_OK;
}

const kernel_op CUDA_OP(HEAD_PICK) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_PICK_BWD) = {prepare, run, release, 63};

/* HEAD_LOGPROB, its derivative, HEAD_EVAL and HEAD_SAMPLE: log softmax(softcap(s * (x W^T + u
 * v^T)))[target];
 * HEAD_ENTROPY, the entropy of that softmax, and its derivative. The logits of all rows are never
 * in memory at once.
 *
 * Rows are processed in chunks. Products give the logits of a chunk (head_logits.cuh). One kernel
 * (head_softmax.cuh) computes the log-probabilities and, in place, the gradient of the logits. From
 * it products compute the gradients of the operands, which are summed over the chunks where they
 * belong to the vocabulary. Products have the compute dtype, as on the CPU.
 *
 *   scratch: | product | head_logits |
 *
 * Only the GPU knows which rows have a target, so rows without one take the same time; they get
 * logp 0 and no gradient. A target outside the vocabulary gives logp NaN and no gradient.
 */
#include "head/head_entropy.cuh"
#include "head/head_logits.cuh"

static int is_entropy(const lathe_kernel *k)
{
    return k->op_id == LATHE_OP_HEAD_ENTROPY || k->op_id == LATHE_OP_HEAD_ENTROPY_BWD;
}

static int is_backward(const lathe_kernel *k)
{
    return k->op_id == LATHE_OP_HEAD_LOGPROB_BWD || k->op_id == LATHE_OP_HEAD_ENTROPY_BWD;
}

struct head {
    int64_t n;
    head_logits terms;
};

static void release(lathe_kernel *k)
{
    head *s = (head *)k->state;
    cuda_head_logits_fini(k, &s->terms);
    k->host->free(s);
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    head *s = (head *)k->host->alloc((int64_t)sizeof *s);
    if (s == nullptr)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    k->state = s;
    s->n = lathe_desc_count(&k->in[2]);
    cuda_head_logits_find(k, &s->terms, 0,
                          is_backward(k) || k->op_id == LATHE_OP_HEAD_SAMPLE ? 4 : 3,
                          is_backward(k));
    s->terms.rows = cuda_head_logits_choose_rows(k, s->n, cuda_head_logits_row_bytes(&s->terms));
    *out_scratch = 0;
    LATHE_TRY(cuda_head_logits_products(k, &s->terms, s->n, out_scratch));
    cuda_head_logits_lay_out(&s->terms, out_scratch);
    return LATHE_OK;
}

/* The op's arguments from row `first` on. */
static head_rows rows_at(const lathe_kernel *k, const lathe_kernel_args *a, int64_t first)
{
    const head *s = (const head *)k->state;
    head_rows out = {};
    out.v = s->terms.v;
    out.stride = s->terms.stride;
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

static lathe_status run_chunk(lathe_kernel *k, const lathe_kernel_args *a, int64_t first, int64_t n)
{
    const head *s = (const head *)k->state;
    int32_t dtype;
    void *logits = cuda_head_logits_logits(&s->terms, a, &dtype);
    LATHE_TRY(cuda_head_logits_forward(k, a, &s->terms, first, n));
    CUDA_BY_DTYPE(dtype, T, { LATHE_TRY(run_rows(k, a, (T *)logits, rows_at(k, a, first), n)); });
    return is_backward(k) ? cuda_head_logits_backward(k, a, &s->terms, first, n) : LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const head *s = (const head *)k->state;
    const int64_t rows = s->terms.rows;
    for (int64_t first = 0; first < s->n; first += rows)
        LATHE_TRY(run_chunk(k, a, first, s->n - first < rows ? s->n - first : rows));
    return LATHE_OK;
}

const kernel_op CUDA_OP(HEAD_LOGPROB) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_EVAL) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_SAMPLE) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_LOGPROB_BWD) = {prepare, run, release, 63};
const kernel_op CUDA_OP(HEAD_ENTROPY) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_ENTROPY_BWD) = {prepare, run, release, 63};

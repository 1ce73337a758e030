/* HEAD_DIVERGENCE and its derivative. The logits of all rows are never in memory at once.
 *
 * Rows are processed in chunks. Products give the logits of both models for a chunk
 * (head_logits.cuh); one kernel (head_divergence.cuh) computes the divergences and, in place of the
 * first model's logits, their gradient. From it products compute the gradients of the operands.
 * Logits have the dtype of their model.
 *
 *   scratch: | product | head_logits | those of the other model |
 *
 * Rows without a target take the same time; they get 0 and no gradient. A target outside the
 * vocabulary gives NaN and no gradient.
 */
#include "head/head_divergence.cuh"
#include "head/head_logits.cuh"

struct divergence {
    int64_t n;
    head_logits own, other;
};

static int is_backward(const lathe_kernel *k)
{
    return k->op_id == LATHE_OP_HEAD_DIVERGENCE_BWD;
}

static void release(lathe_kernel *k)
{
    divergence *s = (divergence *)k->state;
    cuda_head_logits_fini(k, &s->own);
    cuda_head_logits_fini(k, &s->other);
    k->host->free(s);
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    divergence *s = (divergence *)k->host->alloc((int64_t)sizeof *s);
    if (s == nullptr)
        return lathe_fail(k->host, LATHE_E_NOMEM, "%s: no memory for its state", kernel_op_name(k));
    *s = {};
    k->state = s;
    s->n = lathe_desc_count(&k->in[4]);
    const int32_t in_u = is_backward(k) ? 6 : 5;
    cuda_head_logits_find(k, &s->own, 0, in_u, is_backward(k));
    cuda_head_logits_find(k, &s->other, 2, in_u + 3, 0);
    s->own.rows = s->other.rows = cuda_head_logits_choose_rows(
        k, s->n, cuda_head_logits_row_bytes(&s->own) + cuda_head_logits_row_bytes(&s->other));
    *out_scratch = 0;
    LATHE_TRY(cuda_head_logits_products(k, &s->own, s->n, out_scratch));
    LATHE_TRY(cuda_head_logits_products(k, &s->other, s->n, out_scratch));
    cuda_head_logits_lay_out(&s->own, out_scratch);
    cuda_head_logits_lay_out(&s->other, out_scratch);
    return LATHE_OK;
}

/* The op's arguments from row `first` on. */
static divergence_rows rows_at(const lathe_kernel *k, const lathe_kernel_args *a, int64_t first)
{
    const divergence *s = (const divergence *)k->state;
    divergence_rows out = {};
    out.v = s->own.v < s->other.v ? s->own.v : s->other.v;
    out.own_v = s->own.v;
    out.stride = s->own.stride;
    out.other_stride = s->other.stride;
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

template <typename T>
static lathe_status run_rows(const lathe_kernel *k, const lathe_kernel_args *a, T *logits,
                             int64_t first, int64_t n)
{
    const divergence *s = (const divergence *)k->state;
    int32_t dtype;
    const void *other = cuda_head_logits_logits(&s->other, a, &dtype);
    CUDA_BY_DTYPE(dtype, U, {
        LATHE_TRY(cuda_run(k, a, n, CUDA_THREADS, head_divergence<T, U>, logits, (const U *)other,
                           rows_at(k, a, first)));
    });
    return LATHE_OK;
}

static lathe_status run_chunk(lathe_kernel *k, const lathe_kernel_args *a, int64_t first, int64_t n)
{
    const divergence *s = (const divergence *)k->state;
    int32_t dtype;
    void *logits = cuda_head_logits_logits(&s->own, a, &dtype);
    LATHE_TRY(cuda_head_logits_forward(k, a, &s->own, first, n));
    LATHE_TRY(cuda_head_logits_forward(k, a, &s->other, first, n));
    CUDA_BY_DTYPE(dtype, T, { LATHE_TRY(run_rows(k, a, (T *)logits, first, n)); });
    return is_backward(k) ? cuda_head_logits_backward(k, a, &s->own, first, n) : LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const divergence *s = (const divergence *)k->state;
    const int64_t rows = s->own.rows;
    for (int64_t first = 0; first < s->n; first += rows)
        LATHE_TRY(run_chunk(k, a, first, s->n - first < rows ? s->n - first : rows));
    return LATHE_OK;
}

const kernel_op CUDA_OP(HEAD_DIVERGENCE) = {prepare, run, release, 0};
const kernel_op CUDA_OP(HEAD_DIVERGENCE_BWD) = {prepare, run, release, 63};

/* What each op asks of its problem, the same on every device: shapes and dtypes.
 *
 * The functions have the form of kernel_op.prepare, so that an op without state or scratch names its check
 * in its row; *out_scratch is left alone.
 */
#include "op_checks.h"

/* x and, for binary ops, y: the same count; all of one dtype. */
lathe_status kernel_check_unary(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]);
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n));
    return kernel_check_out(k, 0, k->in[0].dtype, n);
}

lathe_status kernel_check_binary(lathe_kernel *k, int64_t *out_scratch)
{
    LATHE_TRY(kernel_check_unary(k, out_scratch));
    return kernel_check_in(k, 1, k->in[0].dtype, lathe_desc_count(&k->in[0]));
}

/* Two inputs of either dtype; the output has the dtype of one of them. */
lathe_status kernel_check_lincomb(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]);
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n));
    LATHE_TRY(kernel_check_in(k, 1, KERNEL_COMPUTE, n));
    return kernel_check_out(k, 0,
                            k->out[0].dtype == k->in[1].dtype ? k->in[1].dtype : k->in[0].dtype, n);
}

lathe_status kernel_check_scale_by(lathe_kernel *k, int64_t *out_scratch)
{
    LATHE_TRY(kernel_check_unary(k, out_scratch));
    const int64_t n = lathe_desc_count(&k->in[1]);
    LATHE_TRY(kernel_check_in(k, 1, LATHE_F32, n));
    return k->attrs.start >= 0 && k->attrs.start < n
               ? LATHE_OK
               : kernel_bad_shape(k, "start is outside the scalars");
}

lathe_status kernel_check_cast(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]);
    const int32_t from = k->in[0].dtype, to = k->out[0].dtype;
    if (!kernel_computes(from) || !kernel_computes(to))
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED, "cast: %s to %s; f32, bf16 and f16 only",
                          lathe_dtype_name(from), lathe_dtype_name(to));
    return kernel_check_out(k, 0, to, n);
}

lathe_status kernel_check_copy(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int32_t dtype = k->in[0].dtype;
    if (k->may_accumulate && !kernel_computes(dtype))
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED, "copy: %s cannot be added to",
                          lathe_dtype_name(dtype));
    LATHE_TRY(kernel_check_in(k, 0, dtype, lathe_desc_count(&k->in[0])));
    return kernel_check_out(k, 0, dtype, lathe_desc_count(&k->in[0]));
}

lathe_status kernel_check_sum(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    LATHE_TRY(kernel_check_in(k, 0, LATHE_F32, lathe_desc_count(&k->in[0])));
    return kernel_check_out(k, 0, LATHE_F32, 1);
}

lathe_status kernel_check_row_sum(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    if (k->attrs.count < 1)
        return kernel_bad_shape(k, "count, the elements of a row, must be at least 1");
    const int64_t rows = lathe_desc_count(&k->out[0]);
    LATHE_TRY(kernel_check_in(k, 0, LATHE_F32, rows * k->attrs.count));
    return kernel_check_out(k, 0, LATHE_F32, rows);
}

lathe_status kernel_check_broadcast(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    if (k->attrs.count < 1)
        return kernel_bad_shape(k, "count, the copies of an element, must be at least 1");
    const int64_t n = lathe_desc_count(&k->in[0]);
    LATHE_TRY(kernel_check_in(k, 0, LATHE_F32, n));
    return kernel_check_out(k, 0, LATHE_F32, n * k->attrs.count);
}

lathe_status kernel_check_l2_normalize(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]);
    LATHE_TRY(kernel_check_in(k, 0, LATHE_F32, n));
    return kernel_check_out(k, 0, KERNEL_COMPUTE, n);
}

/* y and n_stats figures a group, from x, weights and maybe a bias: a group has as many elements as there are
 * weights. */
static lathe_status check_norm(lathe_kernel *k, int32_t n_stats, int32_t adds)
{
    const int64_t n = lathe_desc_count(&k->in[0]), d = lathe_desc_count(&k->in[1 + adds]);
    if (d < 1 || n % d != 0)
        return kernel_bad_shape(k, "x must be whole groups of as many elements as w has");
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n));
    if (adds)
        LATHE_TRY(kernel_check_in(k, 1, k->in[0].dtype, n));
    for (int32_t i = 1 + adds; i < 3 + adds; i++)
        if (kernel_has_in(k, i))
            LATHE_TRY(kernel_check_in(k, i, LATHE_F32, d));
    for (int32_t i = 0; i <= adds; i++)
        LATHE_TRY(kernel_check_out(k, i, k->in[0].dtype, n));
    for (int32_t i = 1 + adds; i <= n_stats + adds; i++)
        LATHE_TRY(kernel_check_out(k, i, LATHE_F32, n / d));
    return LATHE_OK;
}

/* dx, and where wanted the gradients of weights and bias, from dy, x, weights and the n_stats figures. */
static lathe_status check_norm_bwd(lathe_kernel *k, int32_t n_stats)
{
    const int64_t n = lathe_desc_count(&k->in[1]), d = lathe_desc_count(&k->in[2]);
    if (d < 1 || n % d != 0)
        return kernel_bad_shape(k, "x must be whole groups of as many elements as w has");
    LATHE_TRY(kernel_check_in(k, 1, KERNEL_COMPUTE, n));
    LATHE_TRY(kernel_check_in(k, 0, k->in[1].dtype, n));
    LATHE_TRY(kernel_check_in(k, 2, LATHE_F32, d));
    for (int32_t i = 3; i < 3 + n_stats; i++)
        LATHE_TRY(kernel_check_in(k, i, LATHE_F32, n / d));
    LATHE_TRY(kernel_check_out(k, 0, k->in[1].dtype, n));
    for (int32_t i = 1; i < k->n_out; i++)
        if (kernel_has_out(k, i))
            LATHE_TRY(kernel_check_out(k, i, LATHE_F32, d));
    return LATHE_OK;
}

lathe_status kernel_check_rmsnorm(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    return check_norm(k, 1, 0);
}

lathe_status kernel_check_add_rmsnorm(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    return check_norm(k, 1, 1);
}

lathe_status kernel_check_rmsnorm_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    return check_norm_bwd(k, 1);
}

lathe_status kernel_check_layernorm(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    return check_norm(k, 2, 0);
}

lathe_status kernel_check_add_layernorm(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    return check_norm(k, 2, 1);
}

lathe_status kernel_check_layernorm_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    return check_norm_bwd(k, 2);
}

lathe_status kernel_check_rope(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]), rows = lathe_desc_count(&k->in[1]);
    const int64_t d = k->attrs.head_dim;
    if (d < 2 || d % 2 != 0 || rows < 1 || n % (rows * d) != 0)
        return kernel_bad_shape(k, "x must be [N, H*head_dim] with an even head_dim");
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n));
    LATHE_TRY(kernel_check_in(k, 1, LATHE_I32, rows));
    if (k->in[2].rank < 1)
        return kernel_bad_shape(k, "the table must be [P, 2, head_dim/2]");
    LATHE_TRY(kernel_check_in(k, 2, LATHE_F32, k->in[2].dims[0] * d));
    return kernel_check_out(k, 0, k->in[0].dtype, n);
}

/* All tensors have the first input's dtype and count. */
lathe_status kernel_check_swiglu(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]);
    for (int32_t i = 0; i < k->n_in; i++)
        LATHE_TRY(kernel_check_in(k, i, i == 0 ? KERNEL_COMPUTE : k->in[0].dtype, n));
    for (int32_t i = 0; i < k->n_out; i++)
        LATHE_TRY(kernel_check_out(k, i, k->in[0].dtype, n));
    return LATHE_OK;
}

lathe_status kernel_check_gelu(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]);
    for (int32_t i = 0; i < k->n_in; i++)
        LATHE_TRY(kernel_check_in(k, i, i == 0 ? KERNEL_COMPUTE : k->in[0].dtype, n));
    return kernel_check_out(k, 0, k->in[0].dtype, n);
}

lathe_status kernel_check_embed(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    if (k->in[1].rank != 2 || k->in[1].dims[1] < 1)
        return kernel_bad_shape(k, "W must be [V, C]");
    const int64_t n = lathe_desc_count(&k->in[0]), c = k->in[1].dims[1];
    LATHE_TRY(kernel_check_in(k, 0, LATHE_I32, n));
    LATHE_TRY(kernel_check_in(k, 1, KERNEL_COMPUTE, k->in[1].dims[0] * c));
    return kernel_check_out(k, 0, k->in[1].dtype, n * c);
}

lathe_status kernel_check_embed_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    if (k->out[0].rank != 2 || k->out[0].dims[1] < 1)
        return kernel_bad_shape(k, "dW must be [V, C]");
    const int64_t n = lathe_desc_count(&k->in[1]), c = k->out[0].dims[1];
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n * c));
    LATHE_TRY(kernel_check_in(k, 1, LATHE_I32, n));
    return kernel_check_out(k, 0, LATHE_F32, k->out[0].dims[0] * c);
}

/* HEAD_LOGPROB, HEAD_LOGPROB_BWD, HEAD_EVAL and HEAD_SAMPLE. */
lathe_status kernel_check_head(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    if (k->in[1].rank != 2 || lathe_desc_count(&k->in[1]) < 1)
        return kernel_bad_shape(k, "W must be [V, C], both at least 1");
    const int64_t n = lathe_desc_count(&k->in[2]), v = k->in[1].dims[0], c = k->in[1].dims[1];
    const int32_t dtype = k->in[0].dtype;
    if (n < 1)
        return kernel_bad_shape(k, "there must be at least one row");
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n * c));
    LATHE_TRY(kernel_check_in(k, 1, dtype, v * c));
    LATHE_TRY(kernel_check_in(k, 2, LATHE_I32, n));
    if (k->op_id == LATHE_OP_HEAD_SAMPLE) {
        LATHE_TRY(kernel_check_in(k, 3, LATHE_I64, 2));
        return kernel_check_out(k, 0, LATHE_I32, n);
    }
    LATHE_TRY(kernel_check_out(k, 0, LATHE_F32, n));
    if (k->op_id == LATHE_OP_HEAD_EVAL) {
        LATHE_TRY(kernel_check_out(k, 1, LATHE_F32, n));
        LATHE_TRY(kernel_check_out(k, 2, LATHE_I32, n));
    }
    if (k->op_id != LATHE_OP_HEAD_LOGPROB_BWD)
        return LATHE_OK;
    LATHE_TRY(kernel_check_in(k, 3, LATHE_F32, n));
    if (kernel_has_out(k, 1))
        LATHE_TRY(kernel_check_out(k, 1, dtype, n * c));
    return kernel_has_out(k, 2) ? kernel_check_out(k, 2, LATHE_F32, v * c) : LATHE_OK;
}

lathe_status kernel_check_dropout(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]);
    if (!(k->attrs.p >= 0.0f && k->attrs.p < 1.0f))
        return lathe_fail(k->host, LATHE_E_ARG, "%s: p is %g, expected [0, 1)", kernel_op_name(k),
                          (double)k->attrs.p);
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n));
    LATHE_TRY(kernel_check_in(k, 1, LATHE_I64, 2));
    return kernel_check_out(k, 0, k->in[0].dtype, n);
}

/* Elements of a row when `whole` [R,..] and `part` [count,..] fit attrs; else -1. */
static int64_t row_elements(const lathe_kernel *k, const lathe_desc *whole, const lathe_desc *part)
{
    const int64_t start = k->attrs.start, count = k->attrs.count;
    if (whole->rank < 1 || count < 1 || start < 0 || start + count > whole->dims[0])
        return -1;
    const int64_t row = lathe_desc_count(whole) / whole->dims[0];
    return lathe_desc_count(part) == count * row && part->dtype == whole->dtype ? row : -1;
}

static lathe_status check_accumulate(const lathe_kernel *k, int32_t dtype)
{
    if (k->may_accumulate && !kernel_computes(dtype))
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED, "%s: %s cannot be added to",
                          kernel_op_name(k), lathe_dtype_name(dtype));
    return LATHE_OK;
}

lathe_status kernel_check_slice(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    if (row_elements(k, &k->in[0], &k->out[0]) < 0)
        return kernel_bad_shape(k, "y must be rows start .. start+count-1 of x, of its dtype");
    return check_accumulate(k, k->in[0].dtype);
}

lathe_status kernel_check_slice_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    if (row_elements(k, &k->out[0], &k->in[0]) < 0)
        return kernel_bad_shape(k, "dy must be rows start .. start+count-1 of dx, of its dtype");
    return check_accumulate(k, k->in[0].dtype);
}

lathe_status kernel_check_kv_append(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const lathe_desc *cache = &k->in[0];
    if (cache->rank != 3 || lathe_desc_count(cache) < 1)
        return kernel_bad_shape(k, "the cache must be [B, P, W]");
    const int64_t b = cache->dims[0], w = cache->dims[2];
    const int64_t n = lathe_desc_count(&k->in[1]);
    if (n < 1 || n % (b * w) != 0 || n / (b * w) > cache->dims[1])
        return kernel_bad_shape(k, "x must be [B*Tq, W] with Tq at most P");
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, lathe_desc_count(cache)));
    LATHE_TRY(kernel_check_in(k, 1, cache->dtype, n));
    LATHE_TRY(kernel_check_in(k, 2, LATHE_I32, b));
    return kernel_check_out(k, 0, cache->dtype, lathe_desc_count(cache));
}

lathe_status kernel_check_transpose(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const lathe_desc *x = &k->in[0], *y = &k->out[0];
    if (x->rank != 2 || y->rank != 2 || x->dims[0] != y->dims[1] || x->dims[1] != y->dims[0])
        return kernel_bad_shape(k, "x must be [R, S] and y [S, R]");
    LATHE_TRY(kernel_check_in(k, 0, x->dtype, lathe_desc_count(x)));
    return kernel_check_out(k, 0, x->dtype, lathe_desc_count(x));
}

lathe_status kernel_check_apply_update(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]), scalars = lathe_desc_count(&k->in[2]);
    LATHE_TRY(kernel_check_in(k, 0, LATHE_F32, n));
    LATHE_TRY(kernel_check_in(k, 1, KERNEL_COMPUTE, n));
    LATHE_TRY(kernel_check_in(k, 2, LATHE_F32, scalars));
    if (k->attrs.start < 0 || k->attrs.start >= scalars)
        return kernel_bad_shape(k, "start is outside the scalars");
    return kernel_check_out(k, 0, LATHE_F32, n);
}

lathe_status kernel_check_sum_squares(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->out[0]);
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, lathe_desc_count(&k->in[0])));
    LATHE_TRY(kernel_check_in(k, 1, LATHE_I64, 2 * n));
    return kernel_check_out(k, 0, LATHE_F64, n);
}

/* One sum per 16384 elements. */
lathe_status kernel_check_update_squares(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]), scalars = lathe_desc_count(&k->in[2]);
    LATHE_TRY(kernel_check_in(k, 0, LATHE_F32, n));
    LATHE_TRY(kernel_check_in(k, 1, KERNEL_COMPUTE, n));
    LATHE_TRY(kernel_check_in(k, 2, LATHE_F32, scalars));
    if (k->attrs.start < 0 || k->attrs.start >= scalars)
        return kernel_bad_shape(k, "start is outside the scalars");
    return kernel_check_out(k, 0, LATHE_F64, (n + 16383) / 16384);
}

lathe_status kernel_check_clamp(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    const int64_t n = lathe_desc_count(&k->in[0]), limits = lathe_desc_count(&k->in[1]);
    LATHE_TRY(kernel_check_in(k, 0, KERNEL_COMPUTE, n));
    LATHE_TRY(kernel_check_in(k, 1, LATHE_F32, limits));
    if (k->attrs.start < 0 || k->attrs.start >= limits)
        return kernel_bad_shape(k, "start is outside the limits");
    return kernel_check_out(k, 0, k->in[0].dtype, n);
}

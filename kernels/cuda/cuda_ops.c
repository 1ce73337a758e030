/* The dispatch table from op to its file. */
#include "cuda.h"

/* ATTENTION, ATTENTION_BWD and DEQUANT belong to plugins of their own kinds: no row. */
static const kernel_op *const ops[LATHE_N_OPS] = {
    [LATHE_OP_ADD] = &cuda_op_add,
    [LATHE_OP_SUB] = &cuda_op_sub,
    [LATHE_OP_MUL] = &cuda_op_mul,
    [LATHE_OP_SCALE] = &cuda_op_scale,
    [LATHE_OP_SCALE_BY] = &cuda_op_scale_by,
    [LATHE_OP_LINCOMB] = &cuda_op_lincomb,
    [LATHE_OP_CAST] = &cuda_op_cast,
    [LATHE_OP_COPY] = &cuda_op_copy,
    [LATHE_OP_LOGSIGMOID] = &cuda_op_logsigmoid,
    [LATHE_OP_SIGMOID] = &cuda_op_sigmoid,
    [LATHE_OP_RMSNORM] = &cuda_op_rmsnorm,
    [LATHE_OP_ADD_RMSNORM] = &cuda_op_add_rmsnorm,
    [LATHE_OP_ADD_LAYERNORM] = &cuda_op_add_layernorm,
    [LATHE_OP_RMSNORM_BWD] = &cuda_op_rmsnorm_bwd,
    [LATHE_OP_LINEAR] = &cuda_op_linear,
    [LATHE_OP_LINEAR_DX] = &cuda_op_linear_dx,
    [LATHE_OP_LINEAR_DW] = &cuda_op_linear_dw,
    [LATHE_OP_LINEAR_GELU] = &cuda_op_linear_gelu,
    [LATHE_OP_LINEAR_DX_GELU] = &cuda_op_linear_dx_gelu,
    [LATHE_OP_MATMUL] = &cuda_op_matmul,
    [LATHE_OP_HEAD_LOGPROB] = &cuda_op_head_logprob,
    [LATHE_OP_HEAD_LOGPROB_BWD] = &cuda_op_head_logprob_bwd,
    [LATHE_OP_HEAD_EVAL] = &cuda_op_head_eval,
    [LATHE_OP_HEAD_SAMPLE] = &cuda_op_head_sample,
    [LATHE_OP_LAYERNORM] = &cuda_op_layernorm,
    [LATHE_OP_LAYERNORM_BWD] = &cuda_op_layernorm_bwd,
    [LATHE_OP_SWIGLU] = &cuda_op_swiglu,
    [LATHE_OP_SWIGLU_BWD] = &cuda_op_swiglu_bwd,
    [LATHE_OP_GELU_TANH] = &cuda_op_gelu,
    [LATHE_OP_GELU_TANH_BWD] = &cuda_op_gelu_bwd,
    [LATHE_OP_DROPOUT] = &cuda_op_dropout,
    [LATHE_OP_DROPOUT_BWD] = &cuda_op_dropout_bwd,
    [LATHE_OP_APPLY_UPDATE] = &cuda_op_apply_update,
    [LATHE_OP_CLAMP] = &cuda_op_clamp,
    [LATHE_OP_SUM] = &cuda_op_sum,
    [LATHE_OP_ROW_SUM] = &cuda_op_row_sum,
    [LATHE_OP_BROADCAST] = &cuda_op_broadcast,
    [LATHE_OP_L2_NORMALIZE] = &cuda_op_l2_normalize,
    [LATHE_OP_SUM_SQUARES] = &cuda_op_sum_squares,
    [LATHE_OP_UPDATE_SQUARES] = &cuda_op_update_squares,
    [LATHE_OP_ROPE] = &cuda_op_rope,
    [LATHE_OP_EMBED] = &cuda_op_embed,
    [LATHE_OP_EMBED_BWD] = &cuda_op_embed_bwd,
    [LATHE_OP_KV_APPEND] = &cuda_op_kv_append,
    [LATHE_OP_SLICE] = &cuda_op_slice,
    [LATHE_OP_SLICE_BWD] = &cuda_op_slice_bwd,
    [LATHE_OP_TRANSPOSE] = &cuda_op_transpose,
};

lathe_status cuda_kernel_create(void *self, const lathe_kernel_problem *problem, lathe_kernel **out,
                                int64_t *out_scratch_bytes)
{
    cuda_device *device = self;
    return kernel_create(device->host, device, "the CUDA device", ops, problem, out,
                         out_scratch_bytes);
}

void cuda_kernel_destroy(void *self, lathe_kernel *kernel)
{
    (void)self;
    kernel_destroy(kernel);
}

lathe_status cuda_kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args)
{
    (void)self;
    return kernel_run(kernel, args);
}

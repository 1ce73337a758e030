/* The dispatch table from op to its file. */
#include "cpu.h"

/* ATTENTION, ATTENTION_BWD and DEQUANT belong to plugins of their own kinds: no row. */
static const kernel_op *const ops[LATHE_N_OPS] = {
    [LATHE_OP_EMBED] = &cpu_op_embed,
    [LATHE_OP_LINEAR] = &cpu_op_linear,
    [LATHE_OP_RMSNORM] = &cpu_op_rmsnorm,
    [LATHE_OP_LAYERNORM] = &cpu_op_layernorm,
    [LATHE_OP_ROPE] = &cpu_op_rope,
    [LATHE_OP_SWIGLU] = &cpu_op_swiglu,
    [LATHE_OP_GELU_TANH] = &cpu_op_gelu,
    [LATHE_OP_ADD] = &cpu_op_add,
    [LATHE_OP_SUB] = &cpu_op_sub,
    [LATHE_OP_MUL] = &cpu_op_mul,
    [LATHE_OP_SCALE] = &cpu_op_scale,
    [LATHE_OP_SCALE_BY] = &cpu_op_scale_by,
    [LATHE_OP_LINCOMB] = &cpu_op_lincomb,
    [LATHE_OP_DROPOUT] = &cpu_op_dropout,
    [LATHE_OP_HEAD_LOGPROB] = &cpu_op_head_logprob,
    [LATHE_OP_HEAD_EVAL] = &cpu_op_head_eval,
    [LATHE_OP_HEAD_SAMPLE] = &cpu_op_head_sample,
    [LATHE_OP_CAST] = &cpu_op_cast,
    [LATHE_OP_COPY] = &cpu_op_copy,
    [LATHE_OP_SUM] = &cpu_op_sum,
    [LATHE_OP_ROW_SUM] = &cpu_op_row_sum,
    [LATHE_OP_SLICE] = &cpu_op_slice,
    [LATHE_OP_LOGSIGMOID] = &cpu_op_logsigmoid,
    [LATHE_OP_SIGMOID] = &cpu_op_sigmoid,
    [LATHE_OP_KV_APPEND] = &cpu_op_kv_append,
    [LATHE_OP_MATMUL] = &cpu_op_matmul,
    [LATHE_OP_L2_NORMALIZE] = &cpu_op_l2_normalize,
    [LATHE_OP_TRANSPOSE] = &cpu_op_transpose,
    [LATHE_OP_APPLY_UPDATE] = &cpu_op_apply_update,
    [LATHE_OP_SUM_SQUARES] = &cpu_op_sum_squares,
    [LATHE_OP_UPDATE_SQUARES] = &cpu_op_update_squares,
    [LATHE_OP_CLAMP] = &cpu_op_clamp,
    [LATHE_OP_EMBED_BWD] = &cpu_op_embed_bwd,
    [LATHE_OP_LINEAR_DX] = &cpu_op_linear_dx,
    [LATHE_OP_LINEAR_GELU] = &cpu_op_linear_gelu,
    [LATHE_OP_LINEAR_DX_GELU] = &cpu_op_linear_dx_gelu,
    [LATHE_OP_LINEAR_DW] = &cpu_op_linear_dw,
    [LATHE_OP_ADD_RMSNORM] = &cpu_op_add_rmsnorm,
    [LATHE_OP_ADD_LAYERNORM] = &cpu_op_add_layernorm,
    [LATHE_OP_RMSNORM_BWD] = &cpu_op_rmsnorm_bwd,
    [LATHE_OP_LAYERNORM_BWD] = &cpu_op_layernorm_bwd,
    [LATHE_OP_SWIGLU_BWD] = &cpu_op_swiglu_bwd,
    [LATHE_OP_GELU_TANH_BWD] = &cpu_op_gelu_bwd,
    [LATHE_OP_DROPOUT_BWD] = &cpu_op_dropout_bwd,
    [LATHE_OP_HEAD_LOGPROB_BWD] = &cpu_op_head_logprob_bwd,
    [LATHE_OP_BROADCAST] = &cpu_op_broadcast,
    [LATHE_OP_SLICE_BWD] = &cpu_op_slice_bwd,
};

lathe_status cpu_kernel_create(void *self, const lathe_kernel_problem *problem, lathe_kernel **out,
                               int64_t *out_scratch_bytes)
{
    cpu_device *device = self;
    return kernel_create(device->host, device, "the CPU device", ops, problem, out,
                         out_scratch_bytes);
}

void cpu_kernel_destroy(void *self, lathe_kernel *kernel)
{
    (void)self;
    kernel_destroy(kernel);
}

lathe_status cpu_kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args)
{
    (void)self;
    return kernel_run(kernel, args);
}

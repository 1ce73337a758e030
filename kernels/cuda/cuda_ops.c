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
    [LATHE_OP_RMSNORM_BWD] = &cuda_op_rmsnorm_bwd,
    [LATHE_OP_LINEAR] = &cuda_op_linear,
    [LATHE_OP_LINEAR_DX] = &cuda_op_linear_dx,
    [LATHE_OP_LINEAR_DW] = &cuda_op_linear_dw,
    [LATHE_OP_MATMUL] = &cuda_op_matmul,
    [LATHE_OP_HEAD_LOGPROB] = &cuda_op_head_logprob,
    [LATHE_OP_HEAD_LOGPROB_BWD] = &cuda_op_head_logprob_bwd,
    [LATHE_OP_HEAD_EVAL] = &cuda_op_head_eval,
    [LATHE_OP_HEAD_SAMPLE] = &cuda_op_head_sample,
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

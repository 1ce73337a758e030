/* A kernel: the dispatch table from op to its file, and the checks all ops share. */
#include <string.h>

#include "cpu.h"

static const char *const op_names[LATHE_N_OPS] = {
#define LATHE_X(name, text, n_in, n_out) text,
    LATHE_OP_TABLE(LATHE_X)
#undef LATHE_X
};

/* ATTENTION, ATTENTION_BWD and DEQUANT belong to plugins of their own kinds: no row. */
static const cpu_op *const ops[LATHE_N_OPS] = {
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
    [LATHE_OP_EMBED_BWD] = &cpu_op_embed_bwd,
    [LATHE_OP_LINEAR_DX] = &cpu_op_linear_dx,
    [LATHE_OP_LINEAR_DW] = &cpu_op_linear_dw,
    [LATHE_OP_RMSNORM_BWD] = &cpu_op_rmsnorm_bwd,
    [LATHE_OP_LAYERNORM_BWD] = &cpu_op_layernorm_bwd,
    [LATHE_OP_SWIGLU_BWD] = &cpu_op_swiglu_bwd,
    [LATHE_OP_GELU_TANH_BWD] = &cpu_op_gelu_bwd,
    [LATHE_OP_DROPOUT_BWD] = &cpu_op_dropout_bwd,
    [LATHE_OP_HEAD_LOGPROB_BWD] = &cpu_op_head_logprob_bwd,
    [LATHE_OP_BROADCAST] = &cpu_op_broadcast,
    [LATHE_OP_SLICE_BWD] = &cpu_op_slice_bwd,
};

const char *cpu_op_name(const lathe_kernel *k)
{
    return op_names[k->op_id];
}

static lathe_status check(const lathe_kernel *k, const lathe_desc *d, const char *side, int32_t i,
                          int32_t dtype, int64_t count)
{
    if (dtype == CPU_COMPUTE && !cpu_computes(d->dtype))
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED,
                          "%s: %s %d is %s, the CPU computes in f32, bf16 and f16", cpu_op_name(k),
                          side, (int)i, lathe_dtype_name(d->dtype));
    if (dtype != CPU_COMPUTE && d->dtype != dtype)
        return lathe_fail(k->host, LATHE_E_DTYPE, "%s: %s %d is %s, expected %s", cpu_op_name(k),
                          side, (int)i,
                          d->dtype == LATHE_ABSENT ? "absent" : lathe_dtype_name(d->dtype),
                          lathe_dtype_name(dtype));
    if (lathe_desc_count(d) != count)
        return lathe_fail(k->host, LATHE_E_SHAPE, "%s: %s %d has %lld elements, expected %lld",
                          cpu_op_name(k), side, (int)i, (long long)lathe_desc_count(d),
                          (long long)count);
    return LATHE_OK;
}

lathe_status cpu_check_in(const lathe_kernel *k, int32_t i, int32_t dtype, int64_t count)
{
    return check(k, &k->in[i], "input", i, dtype, count);
}

lathe_status cpu_check_out(const lathe_kernel *k, int32_t i, int32_t dtype, int64_t count)
{
    return check(k, &k->out[i], "output", i, dtype, count);
}

lathe_status cpu_bad_shape(const lathe_kernel *k, const char *text)
{
    return lathe_fail(k->host, LATHE_E_SHAPE, "%s: %s", cpu_op_name(k), text);
}

static lathe_status check_problem(const lathe_host *host, const lathe_kernel_problem *p)
{
    if (p->op < 0 || p->op >= LATHE_N_OPS)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "op %d is unknown to this device", (int)p->op);
    if (ops[p->op] == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "%s is not an op of the CPU device: %s plugins run it", op_names[p->op],
                          p->op == LATHE_OP_DEQUANT ? "quant" : "attention");
    if (p->n_in < 0 || p->n_in > LATHE_OP_MAX_IN || p->n_out < 1 || p->n_out > LATHE_OP_MAX_OUT)
        return lathe_fail(host, LATHE_E_ARG, "%s: %d inputs and %d outputs", op_names[p->op],
                          (int)p->n_in, (int)p->n_out);
    const uint32_t refused = p->may_accumulate & ~ops[p->op]->accumulates;
    if (refused != 0)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s: output bits 0x%x cannot be added to",
                          op_names[p->op], (unsigned)refused);
    return LATHE_OK;
}

lathe_status cpu_kernel_create(void *self, const lathe_kernel_problem *problem, lathe_kernel **out,
                               int64_t *out_scratch_bytes)
{
    cpu_device *device = self;
    const lathe_host *host = device->host;
    LATHE_TRY(check_problem(host, problem));
    lathe_kernel *k = host->alloc((int64_t)sizeof *k);
    if (k == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "%s: no memory for the kernel",
                          op_names[problem->op]);
    k->host = host;
    k->device = device;
    k->op = ops[problem->op];
    k->op_id = problem->op;
    k->n_in = problem->n_in;
    k->n_out = problem->n_out;
    k->may_accumulate = problem->may_accumulate;
    k->may_overwrite = problem->may_overwrite;
    if (problem->attrs != NULL)
        k->attrs = *problem->attrs;
    for (int32_t i = 0; i < LATHE_OP_MAX_IN; i++)
        k->in[i] = i < k->n_in ? problem->in[i] : (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
    for (int32_t i = 0; i < LATHE_OP_MAX_OUT; i++)
        k->out[i] = i < k->n_out ? problem->out[i] : (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
    int64_t scratch = 0;
    const lathe_status status = k->op->prepare(k, &scratch);
    if (status != LATHE_OK) {
        cpu_kernel_destroy(self, k);
        return status;
    }
    *out = k;
    *out_scratch_bytes = scratch;
    return LATHE_OK;
}

void cpu_kernel_destroy(void *self, lathe_kernel *kernel)
{
    const cpu_device *device = self;
    if (kernel == NULL)
        return;
    if (kernel->op->release != NULL && kernel->state != NULL)
        kernel->op->release(kernel);
    device->host->free(kernel);
}

lathe_status cpu_kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args)
{
    (void)self;
    const uint32_t refused = args->accumulate & ~kernel->may_accumulate;
    if (refused != 0)
        return lathe_fail(kernel->host, LATHE_E_ARG,
                          "%s: outputs 0x%x are to be added to, which was not announced",
                          op_names[kernel->op_id], (unsigned)refused);
    return kernel->op->run(kernel, args);
}

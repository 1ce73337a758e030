/* Creates, checks and runs a kernel by its entry in a device's dispatch table. */
#include <string.h>

#include "shared/kernel.h"

static const char *const op_names[LATHE_N_OPS] = {
#define LATHE_X(name, text, n_in, n_out) text,
    LATHE_OP_TABLE(LATHE_X)
#undef LATHE_X
};

const char *kernel_op_name(const lathe_kernel *k)
{
    return op_names[k->op_id];
}

lathe_status kernel_bad_shape(const lathe_kernel *k, const char *text)
{
    return lathe_fail(k->host, LATHE_E_SHAPE, "%s: %s", kernel_op_name(k), text);
}

static lathe_status check_problem(const lathe_host *host, const char *device_name,
                                  const kernel_op *const *ops, const lathe_kernel_problem *p)
{
    if (p->op < 0 || p->op >= LATHE_N_OPS)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "op %d is unknown to this device", (int)p->op);
    const char *name = op_names[p->op];
    if (p->op == LATHE_OP_DEQUANT || p->op == LATHE_OP_ATTENTION || p->op == LATHE_OP_ATTENTION_BWD)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s is not an op of %s: %s plugins run it",
                          name, device_name, p->op == LATHE_OP_DEQUANT ? "quant" : "attention");
    if (ops[p->op] == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s has no %s", device_name, name);
    if (p->n_in < 0 || p->n_in > LATHE_OP_MAX_IN || p->n_out < 1 || p->n_out > LATHE_OP_MAX_OUT)
        return lathe_fail(host, LATHE_E_ARG, "%s: %d inputs and %d outputs", name, (int)p->n_in,
                          (int)p->n_out);
    for (int32_t i = 0; i < p->n_in; i++)
        if (p->in[i].dtype == LATHE_PLANES && !(ops[p->op]->accumulates & KERNEL_TAKES_PLANES))
            return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s has no %s of packed weights",
                              device_name, name);
    const uint32_t refused = p->may_accumulate & ~ops[p->op]->accumulates;
    if (refused != 0)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "%s: output bits 0x%x cannot be added to",
                          name, (unsigned)refused);
    return LATHE_OK;
}

lathe_status kernel_create(const lathe_host *host, void *device, const char *device_name,
                           const kernel_op *const *ops, const lathe_kernel_problem *problem,
                           lathe_kernel **out, int64_t *out_scratch_bytes)
{
    LATHE_TRY(check_problem(host, device_name, ops, problem));
    if (LATHE_HAS(host, check_kernel))
        LATHE_TRY(host->check_kernel(problem));
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
    for (int32_t i = 0; i < k->n_in; i++)
        if (k->in[i].dtype == LATHE_PLANES) /* check_kernel has seen its format */
            k->weights[i] = problem->weights[i];
    int64_t scratch = 0;
    const lathe_status status = k->op->prepare == NULL ? LATHE_OK : k->op->prepare(k, &scratch);
    if (status != LATHE_OK) {
        kernel_destroy(k);
        return status;
    }
    *out = k;
    *out_scratch_bytes = scratch;
    return LATHE_OK;
}

void kernel_destroy(lathe_kernel *kernel)
{
    if (kernel == NULL)
        return;
    if (kernel->op->release != NULL && kernel->state != NULL)
        kernel->op->release(kernel);
    kernel->host->free(kernel);
}

lathe_status kernel_run(lathe_kernel *kernel, const lathe_kernel_args *args)
{
    const uint32_t refused = args->accumulate & ~kernel->may_accumulate;
    if (refused != 0)
        return lathe_fail(kernel->host, LATHE_E_ARG,
                          "%s: outputs 0x%x are to be added to, which was not announced",
                          op_names[kernel->op_id], (unsigned)refused);
    return kernel->op->run(kernel, args);
}

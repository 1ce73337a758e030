/* The dispatch table: op number to kernel_op. */
#include "device/cuda_functions.h"

/* A weak symbol: an op that no file defines is a null pointer, so the device does not offer it. */
#define LATHE_X(name, text, n_in, n_out) extern const kernel_op CUDA_OP(name) __attribute__((weak));
LATHE_OP_TABLE(LATHE_X)
#undef LATHE_X

#define LATHE_X(name, text, n_in, n_out) [LATHE_OP_##name] = &CUDA_OP(name),
static const kernel_op *const ops[LATHE_N_OPS] = {LATHE_OP_TABLE(LATHE_X)};
#undef LATHE_X

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

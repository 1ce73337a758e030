/* What stands in for <<<...>>> where a kernel's file is compiled for the emulated GPU. */
#ifndef LATHE_EMULATOR_H
#define LATHE_EMULATOR_H

#include <cuda_runtime_api.h>
#include <functional>

#include "emulator_kernel.h"

namespace emulator
{

/** Queues a launch on the stream: `thread` is called once for every thread of every block. */
cudaError_t launch(const char *name, int64_t blocks, int threads, cudaStream_t stream,
                   std::function<void()> thread);

/** Queues host code on the stream: what a library would do on the GPU. */
cudaError_t queue(cudaStream_t stream, std::function<void()> work);

} // namespace emulator

#ifdef LATHE_CUDA_H /* a file of kernels/cuda */
template <typename... P, typename... A>
static lathe_status cuda_run(const lathe_kernel *k, const lathe_kernel_args *a, int64_t blocks,
                             int threads, void (*kernel)(P...), A... args)
{
    return cuda_status(k->host,
                       emulator::launch(kernel_op_name(k), blocks, threads, cuda_stream(a->stream),
                                        [=] { kernel(P(args)...); }),
                       kernel_op_name(k));
}
#endif

#endif

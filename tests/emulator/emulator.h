/* Replaces <<<...>>> when a kernel's file is compiled for the emulated GPU. */
#ifndef LATHE_EMULATOR_H
#define LATHE_EMULATOR_H

#include <cuda_runtime_api.h>
#include <functional>
#include <type_traits>

#include "emulator_kernel.h"

namespace emulator
{

/** Queues a launch on the stream: calls thread(args), with a copy of args, once for every thread of
 *  every block. */
cudaError_t launch_with(const char *name, int64_t blocks, int threads, cudaStream_t stream,
                        void (*thread)(const void *), const void *args, size_t args_bytes);

/** The same for a lambda that captures by value. */
template <typename F>
cudaError_t launch(const char *name, int64_t blocks, int threads, cudaStream_t stream,
                   const F &thread)
{
    static_assert(std::is_trivially_copyable<F>::value,
                  "arguments of a kernel are copied as bytes");
    return launch_with(
        name, blocks, threads, stream, [](const void *f) { (*(const F *)f)(); }, &thread,
        sizeof thread);
}

/** Queues host code on the stream, for work that a library does on the GPU. */
cudaError_t queue(cudaStream_t stream, std::function<void()> work);

} // namespace emulator

#endif

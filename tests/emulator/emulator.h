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

/** Like launch_with, for a lambda that captures by value. */
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
/** Like queue, for work that needs other processes: until ready() holds, the stream stands still.
 */
cudaError_t queue_when(cudaStream_t stream, std::function<bool()> ready,
                       std::function<void()> work);
/** Runs the work of a stream up to the first that is not ready, as a GPU does by itself. */
void run_ready(cudaStream_t stream);

/** Whether cudaStreamCreate made it; whether a capture records it. */
bool is_stream(cudaStream_t stream);
bool is_captured(cudaStream_t stream);
/** Whether all of it is in one allocation of device memory. */
bool is_device_memory(const void *p, size_t bytes);
/** The device of cudaSetDevice. */
int device();

} // namespace emulator

#endif

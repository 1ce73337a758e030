/* A plugin's CUDA code as an image for the emulated GPU: compiled once per plugin, with
 * EMULATED_SOURCE, instead of the fatbin that nvcc would make of that file. */
#include "emulator_kernel.h"

#include "emulator_image.h"

namespace
{

enum { MOST_KERNELS = 8 };
emulator_kernel kernels[MOST_KERNELS + 1]; /* kernels register themselves in static constructors */
int n_kernels;

template <typename A, void (*kernel)(const A)> void run(const void *args)
{
    kernel(*(const A *)args);
}

struct entry {
    entry(const char *name, void (*run)(const void *), unsigned long long args_bytes)
    {
        if (n_kernels < MOST_KERNELS)
            kernels[n_kernels++] = {name, run, args_bytes};
    }
};

} // namespace

#define LATHE_CUDA_KERNEL(name, n_threads, args_type)                                              \
    static void name(const args_type a);                                                           \
    static const entry name##_entry(#name, run<args_type, name>, sizeof(args_type));               \
    static void name(const args_type a)

#define __CUDACC__ 1
#include EMULATED_SOURCE
#undef __CUDACC__

extern "C" {
/* The plugin's C sources declare it as bytes, like nvcc's output. */
extern __attribute__((visibility("hidden"))) const emulator_image lathe_cuda_image;
const emulator_image lathe_cuda_image = {{'E', 'M', 'U', 'L', 'A', 'T', 'E', 'D'}, kernels};
}

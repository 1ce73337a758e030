/* An elementwise optimizer of this build with an image for the far device: the code of its CUDA
 * kernels, run on the host thread after thread. FAR_NAME: the plugin; FAR_SOURCE: the file with
 * LATHE_ELEMENTWISE. */
#include "far.h"
#include "support/cuda_on_host.h"

enum { MAX_KERNELS = 4 };
/* kernels register themselves in static constructors */
static far_kernel kernels[MAX_KERNELS + 1];

/* A kernel, and its entry in the image. */
#undef LATHE_CUDA_KERNEL
#define LATHE_CUDA_KERNEL(kernel, threads, args_type)                                              \
    static void kernel(const args_type a);                                                         \
    static void kernel##_grid(int64_t n_blocks, int32_t n_threads, const void *args)               \
    {                                                                                              \
        CUDA_ON_HOST_GRID(n_blocks, n_threads, kernel(*(const args_type *)args));                  \
    }                                                                                              \
    __attribute__((constructor)) static void kernel##_enter(void)                                  \
    {                                                                                              \
        int k = 0;                                                                                 \
        while (k < MAX_KERNELS && kernels[k].name)                                                 \
            k++;                                                                                   \
        kernels[k] = (far_kernel){#kernel, (int64_t)sizeof(args_type), kernel##_grid};             \
    }                                                                                              \
    static void kernel(const args_type a)

#include FAR_SOURCE
#undef __CUDACC__

static const far_image image = {FAR_MAGIC, kernels};
static lathe_optimizer_v1 table;

static void fill(lathe_plugin *entry)
{
    *entry = *far_real_plugin("optimizer", FAR_NAME);
    table = *(const lathe_optimizer_v1 *)entry->table;
    table.cuda_image = &image;
    entry->table = &table;
}

FAR_ENTRY(fill)

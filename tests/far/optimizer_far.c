/* An elementwise optimizer of this build with an image for the far device: its CUDA kernel's code, run on
 * the host thread after thread. FAR_NAME: the plugin; FAR_SOURCE: the file with LATHE_ELEMENTWISE. */
#include "support/cuda_on_host.h"

#include FAR_SOURCE
#undef __CUDACC__

#include "far.h"

static void step(int64_t n_blocks, int32_t n_threads, const void *args)
{
    const lathe_elementwise_args *a = args;
    CUDA_ON_HOST_GRID(n_blocks, n_threads, lathe_elementwise_step(*a));
}

static const far_image image = {FAR_MAGIC, (int32_t)sizeof(lathe_elementwise_args),
                                LATHE_ELEMENTWISE_KERNEL, step};
static lathe_optimizer_v1 table;

static void fill(lathe_plugin *entry)
{
    *entry = *far_real_plugin("optimizer", FAR_NAME);
    table = *(const lathe_optimizer_v1 *)entry->table;
    table.cuda_image = &image;
    entry->table = &table;
}

FAR_ENTRY(fill)

/* A codec of this build (FAR_NAME) with an image for the far device: its own decode(), found
 * through the arguments that image_settings() passes to the kernel. */
#include "far.h"
#include "lathe/quant.h"

static const lathe_quant_v1 *real;

static void settings(void *self, int64_t *out)
{
    out[LATHE_QUANT_SETTINGS - 1] = (int64_t)(intptr_t)self;
}

static void decode(int64_t n_blocks, int32_t n_threads, const void *args)
{
    const lathe_quant_args *a = args;
    lathe_plane planes[LATHE_MAX_PLANES];
    void *self = (void *)(intptr_t)a->settings[LATHE_QUANT_SETTINGS - 1];
    const int64_t n = a->rows * a->cols;
    const int fits = n_threads == LATHE_QUANT_THREADS && n_blocks <= a->n_chunks &&
                     a->n_chunks == (n + LATHE_QUANT_CHUNK - 1) / LATHE_QUANT_CHUNK &&
                     a->n_planes == real->planes(self, a->rows, a->cols, planes);
    if (!fits ||
        real->decode(self, a->rows, a->cols, a->planes, a->out, a->dtype, a->scratch, NULL))
        __builtin_trap();
}

static const far_kernel kernels[] = {
    {LATHE_QUANT_KERNEL, (int64_t)sizeof(lathe_quant_args), decode}, {NULL, 0, NULL}};
static const far_image image = {FAR_MAGIC, kernels};
static lathe_quant_v1 table;

static void fill(lathe_plugin *entry)
{
    *entry = *far_real_plugin("quant", FAR_NAME);
    real = entry->table;
    table = *real;
    table.size = (uint32_t)sizeof table;
    table.cuda_image = &image;
    table.image_settings = settings;
    entry->table = &table;
}

FAR_ENTRY(fill)

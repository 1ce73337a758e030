/* int8 of this build. Its code for the far device breaks one rule, chosen by FAULT. */
#include <string.h>

#include "far/far.h"
#include "lathe/quant.h"

enum {
    FAULT_NONE,
    FAULT_NO_KERNEL, /* the image lacks the kernel */
    FAULT_BITS,      /* the last element is one unit off in f32 */
    FAULT_ERROR,     /* halves the weight */
    FAULT_ZERO,      /* decodes zeros to other values */
    FAULT_OVERRUN,   /* sets the byte after the output to 0 */
    FAULT_GRID,      /* skips the chunks after the first n_blocks */
    FAULT_PLANES,    /* writes to a plane */
    FAULT_CHANGES    /* each call decodes differently */
};

static const lathe_quant_v1 *real;

static void settings(void *self, int64_t *out)
{
    out[LATHE_QUANT_SETTINGS - 1] = (int64_t)(intptr_t)self;
}

static int calls;

static void spoil(const lathe_quant_args *a, int64_t n_blocks)
{
    const int64_t n = a->rows * a->cols, width = lathe_dtype_bytes(a->dtype);
    const int64_t done = n_blocks * LATHE_QUANT_CHUNK;
    float *f = a->out;
    uint16_t *half = a->out;
    if (FAULT == FAULT_BITS && a->dtype == LATHE_F32)
        ((uint32_t *)a->out)[n - 1] ^= 1;
    for (int64_t i = 0; i < n && FAULT == FAULT_ERROR && a->dtype == LATHE_F32; i++)
        f[i] *= 0.5f;
    for (int64_t i = 0; i < n && FAULT == FAULT_ERROR && a->dtype != LATHE_F32; i++)
        half[i] = a->dtype == LATHE_BF16 ? lathe_f32_to_bf16(0.5f * lathe_bf16_to_f32(half[i]))
                                         : lathe_f32_to_f16(0.5f * lathe_f16_to_f32(half[i]));
    if (FAULT == FAULT_ZERO && a->dtype == LATHE_F32 && f[0] == 0.0f)
        f[0] = 0.5f;
    if (FAULT == FAULT_OVERRUN)
        ((unsigned char *)a->out)[n * width] = 0;
    if (FAULT == FAULT_GRID && done < n)
        memset((char *)a->out + done * width, 0, (size_t)((n - done) * width));
    if (FAULT == FAULT_PLANES)
        *(unsigned char *)(uintptr_t)a->planes[0] ^= 1;
    if (FAULT == FAULT_CHANGES && a->dtype == LATHE_F32 && f[0] != 0.0f)
        f[0] += 1e-6f * (float)(calls++ % 2);
}

static void decode(int64_t n_blocks, int32_t n_threads, const void *args)
{
    const lathe_quant_args *a = args;
    void *self = (void *)(intptr_t)a->settings[LATHE_QUANT_SETTINGS - 1];
    (void)n_threads;
    if (real->decode(self, a->rows, a->cols, a->planes, a->out, a->dtype, a->scratch, NULL))
        __builtin_trap();
    spoil(a, n_blocks);
}

static const far_kernel kernels[] = {{FAULT == FAULT_NO_KERNEL ? "another" : LATHE_QUANT_KERNEL,
                                      (int64_t)sizeof(lathe_quant_args), decode},
                                     {NULL, 0, NULL}};
static const far_image image = {FAR_MAGIC, kernels};
static lathe_quant_v1 table;

static void fill(lathe_plugin *entry)
{
    *entry = *far_real_plugin("quant", "int8");
    real = entry->table;
    table = *real;
    table.size = (uint32_t)sizeof table;
    table.cuda_image = &image;
    table.image_settings = settings;
    entry->table = &table;
    entry->name = FIXTURE_NAME;
}

FAR_ENTRY(fill)

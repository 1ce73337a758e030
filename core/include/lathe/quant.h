/* Quantization formats: how a frozen weight W [O,I] is held as packed planes.
 *
 * The core allocates the planes, calls encode once at load and puts DEQUANT nodes where W is used;
 * gradients pass through to x, the weight is frozen.
 */
#ifndef LATHE_QUANT_H
#define LATHE_QUANT_H

#include "host.h"
#include "tensor.h"

#define LATHE_QUANT_REVISION 1
#define LATHE_MAX_PLANES 6

/** One packed plane. file_suffix: appended to the weight's name in files (".absmax"); "" is the
 *  weight itself; "../SCB" takes the place of the name's last part ("q_proj.weight" ->
 *  "q_proj.SCB"); NULL: no tensor of its own, the plane travels in weight_meta. */
typedef struct lathe_plane {
    const char *name;
    const char *file_suffix;
    lathe_desc desc;
} lathe_plane;
LATHE_ABI_SIZE(lathe_plane, 56);

/** Sole argument, by value, of the kernel named LATHE_QUANT_KERNEL in cuda_image: W <- planes, as
 *  decode() on the host.
 *
 *  Grid: any number of blocks of LATHE_QUANT_THREADS threads; a block takes chunks blockIdx.x,
 *  blockIdx.x + gridDim.x, ... of LATHE_QUANT_CHUNK elements of the row-major weight, the last one
 *  short. No dynamic shared memory. All pointers are device memory. */
enum { LATHE_QUANT_SETTINGS = 8 };
typedef struct lathe_quant_args {
    const void *planes[LATHE_MAX_PLANES]; /* in the order of planes() */
    void *out;                            /* [rows, cols] of dtype */
    void *scratch;                        /* what decode_scratch() wants */
    int64_t rows, cols, n_chunks;
    int64_t settings[LATHE_QUANT_SETTINGS]; /* what image_settings() gave; else 0 */
    int32_t dtype;                          /* LATHE_F32, LATHE_BF16 or LATHE_F16 */
    int32_t n_planes;
} lathe_quant_args;
LATHE_ABI_SIZE(lathe_quant_args, 160);

#define LATHE_QUANT_KERNEL "lathe_quant_decode"
#define LATHE_QUANT_THREADS 256
#define LATHE_QUANT_CHUNK 4096

/** Element i of a decoded weight: x rounded to nearest, to F32, BF16 or F16. */
LATHE_HD static inline void lathe_quant_store(void *out, int32_t dtype, int64_t i, float x)
{
    if (dtype == LATHE_F32)
        ((float *)out)[i] = x;
    else
        ((uint16_t *)out)[i] = dtype == LATHE_F16 ? lathe_f32_to_f16(x) : lathe_f32_to_bf16(x);
}

typedef struct lathe_quant_v1 {
    uint32_t size;
    uint32_t revision;
    /** [pure] Whether a weight of these dims can be held; LATHE_E_SHAPE says why not. */
    lathe_status (*accepts)(void *self, int64_t rows, int64_t cols);
    /** [pure] The planes of a [rows, cols] weight; returns how many (<= LATHE_MAX_PLANES). Pure. */
    int32_t (*planes)(void *self, int64_t rows, int64_t cols, lathe_plane *out);
    /** [pure] Scratch bytes that one decode needs. NULL: 0. */
    int64_t (*decode_scratch)(void *self, int64_t rows, int64_t cols);
    /** [open] planes <- W f32 [rows, cols] (host). May allocate; deterministic. */
    lathe_status (*encode)(void *self, int64_t rows, int64_t cols, const float *w,
                           void *const *planes);
    /** [step] W <- planes: dtype F32, BF16 or F16, row-major, device pointers. Allocates
     *  nothing. */
    lathe_status (*decode)(void *self, int64_t rows, int64_t cols, const void *const *planes,
                           void *w, int32_t dtype, void *scratch, void *stream);
    /** [between] JSON text of "quantization_config" for config.json; the file's extra metadata
     *  tensor, if the layout has one (bitsandbytes' quant_state): its suffix and bytes. Both
     *  return bytes written (without NUL) or the bytes needed when more than capacity. NULL:
     *  none. */
    int64_t (*config_json)(void *self, char *out, int64_t capacity);
    /** [between] */
    int64_t (*weight_meta)(void *self, int64_t rows, int64_t cols, const void *const *planes,
                           char *out_suffix, int64_t suffix_capacity, char *out, int64_t capacity);
    /** [open] Reads what weight_meta of a file says of a weight whose other planes are loaded:
     *  fills the planes without a tensor, refuses what this instance is not set to
     *  (LATHE_E_UNSUPPORTED, LATHE_E_SHAPE, LATHE_E_PARSE). Host pointers. NULL: nothing to
     *  read. */
    lathe_status (*read_meta)(void *self, int64_t rows, int64_t cols, const char *meta,
                              int64_t bytes, void *const *planes);
    /** Embedded CUDA code that decodes (lathe_quant_args, above), for devices whose memory the
     *  host cannot touch: decode() is not called there, encode() and read_meta() on the host.
     *  NULL: such a device cannot use the format. */
    const void *cuda_image;
    /** [pure] Fills out[LATHE_QUANT_SETTINGS], zeros before, with what the kernel must know of
     *  the instance. NULL: nothing. */
    void (*image_settings)(void *self, int64_t *out);
} lathe_quant_v1;
LATHE_ABI_SIZE(lathe_quant_v1, 88);

#endif

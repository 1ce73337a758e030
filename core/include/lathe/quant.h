/* The interface of quantization plugins, which store a frozen weight W [O,I] as packed tensors
 * (planes).
 * The core allocates the planes and adds a DEQUANT node wherever W is used. It fills the planes
 * once at load: with encode, or from a folder that holds them, without decoding. Each parameter has
 * its own format and settings: [quant] of the run file chooses one for all linear layers, and the
 * quantization_config of a model's folder one for each. Gradients flow to the input x; the weight
 * itself is not trained.
 */
#ifndef LATHE_QUANT_H
#define LATHE_QUANT_H

#include "host.h"
#include "packed.h"
#include "schema.h"
#include "tensor.h"

#define LATHE_QUANT_REVISION 1
#define LATHE_MAX_PLANES 6

/** One packed plane. file_suffix gives the tensor's name in files: ".absmax" is appended to the
 *  weight's name; "" is the weight's name itself; "../SCB" replaces the last part of the name
 *  ("q_proj.weight" -> "q_proj.SCB"); NULL: the plane is not a tensor of the file but stored in
 *  weight_meta.
 *  A tensor of a file fills a plane if it has as many elements of the same dtype. Two dtypes are
 *  converted without loss: f16 and bf16 to an F32 plane; and any dtype fills a U8 plane with its
 *  bytes. */
typedef struct lathe_plane {
    const char *name;
    const char *file_suffix;
    lathe_desc desc;
} lathe_plane;
LATHE_ABI_SIZE(lathe_plane, 56);

/** The only argument, passed by value, of the kernel named LATHE_QUANT_KERNEL in cuda_image, which
 *  computes W from the planes as decode() does on the host.
 *  Grid: any number of blocks of LATHE_QUANT_THREADS threads; a block takes chunks blockIdx.x,
 *  blockIdx.x + gridDim.x, ... of LATHE_QUANT_CHUNK elements of the row-major weight, the last
 *  one short. No dynamic shared memory. All pointers are device memory. */
enum { LATHE_QUANT_SETTINGS = 8 };
typedef struct lathe_quant_args {
    const void *planes[LATHE_MAX_PLANES]; /* in the order of planes() */
    void *out;                            /* [rows, cols] of dtype */
    void *scratch;                        /* [decode_scratch()] bytes */
    int64_t rows, cols, n_chunks;
    int64_t settings[LATHE_QUANT_SETTINGS]; /* from image_settings(), or 0 */
    int32_t dtype;                          /* LATHE_F32, LATHE_BF16 or LATHE_F16 */
    int32_t n_planes;
} lathe_quant_args;
LATHE_ABI_SIZE(lathe_quant_args, 160);

#define LATHE_QUANT_KERNEL "lathe_quant_decode"
#define LATHE_QUANT_THREADS 256
#define LATHE_QUANT_CHUNK 4096

/** Stores element i of a decoded weight: x rounded to nearest, as F32, BF16 or F16. */
LATHE_HD static inline void lathe_quant_store(void *out, int32_t dtype, int64_t i, float x)
{
    if (dtype == LATHE_F32)
        ((float *)out)[i] = x;
    else
        ((uint16_t *)out)[i] = dtype == LATHE_F16 ? lathe_f32_to_f16(x) : lathe_f32_to_bf16(x);
}

/** One linear layer's weight as the "quantization_config" of config.json describes it. */
typedef struct lathe_quant_config {
    uint32_t size;
    uint32_t reserved;  /* 0 */
    const char *method; /* its "quant_method" */
    void *ctx;
    /** [open] The scalar at a path of keys and list indices, "weights.num_bits" or
     * "weight_block_size.0" (after a slash: of config.json itself, "/torch_dtype"): the text of a
     * string, a number as JSON writes it, "true" or "false". NULL: it is absent, null, a list or an
     * object. Where the configuration has settings of its own for the layer (compressed-tensors'
     * "config_groups", GPTQModel's "dynamic", ModelOpt's "quantized_layers"), they are searched
     * first, then the whole. Borrowed with the configuration. */
    const char *(*get)(void *ctx, const char *path);
    /** [open] The tensor that the folder has for the layer under a suffix
     * (lathe_plane.file_suffix): fills *out and returns its bytes, or NULL: there is none, or the
     * question is about no particular layer, or the folder has no weights. */
    const void *(*tensor)(void *ctx, const char *suffix, lathe_desc *out);
} lathe_quant_config;
LATHE_ABI_SIZE(lathe_quant_config, 40);

/** The inputs x [n,I] of a linear layer over calibration data, which the core gathers layer by
 * layer with the layers before it already quantized (lathe quantize --calibration). Host memory. */
typedef struct lathe_quant_inputs {
    uint32_t size;
    uint32_t reserved;       /* 0 */
    int64_t n;               /* rows of x, >= 1 */
    const float *products;   /* [I,I] sum of x x^T over the rows, divided by n; symmetric */
    const float *magnitudes; /* [I] sum of |x| over the rows, divided by n; NULL for a format
                                without scale_inputs */
} lathe_quant_inputs;
LATHE_ABI_SIZE(lathe_quant_inputs, 32);

/** Linear layers that read the same inputs, and what makes these: `n_places` elements of a norm's
 *  weight, or rows of a linear layer's. A place that is divided by s divides its inputs by s. Host
 *  memory. */
typedef struct lathe_quant_layers {
    uint32_t size;
    int32_t n;                   /* layers */
    int64_t cols;                /* I */
    const int64_t *rows;         /* [n] */
    const float *const *weights; /* [n] W f32 [rows[k], I] */
    const lathe_quant_inputs *inputs;
    const int32_t *from; /* [I] place that makes an input; inputs may share one, and places that
                            make none are not divided */
    int64_t n_places;
} lathe_quant_layers;
LATHE_ABI_SIZE(lathe_quant_layers, 56);

typedef struct lathe_quant_v1 {
    uint32_t size;
    uint32_t revision;

    /* ---- a weight and its planes ---- */
    /** [pure] Whether the format can store a weight of these dims. LATHE_E_SHAPE says why not. */
    lathe_status (*accepts)(void *self, int64_t rows, int64_t cols);
    /** [pure] The planes of a [rows, cols] weight; returns their number, <= LATHE_MAX_PLANES. */
    int32_t (*planes)(void *self, int64_t rows, int64_t cols, lathe_plane *out);
    int32_t stores_conv1d; /* 1: the library stores Conv1D weights, as planes of W [out,in] */
    int32_t reserved;      /* 0 */

    /* ---- encoding ---- */
    /** [open] Computes the planes from W f32 [rows, cols]; all in host memory. May allocate;
     *  deterministic. LATHE_E_NUMERIC: a weight is not finite. */
    lathe_status (*encode)(void *self, int64_t rows, int64_t cols, const float *w,
                           void *const *planes);
    /** [open] encode for a format whose quality rests on calibration data. Such a format is not
     *  encoded when a run starts, only by lathe quantize; encode then is what the format gives
     *  without data, with which tests compare. NULL: the format needs no data. */
    lathe_status (*encode_calibrated)(void *self, int64_t rows, int64_t cols, const float *w,
                                      const lathe_quant_inputs *inputs, void *const *planes);
    /** [open] Chooses the scales s f32 [n_places], positive and finite, with which the layers lose
     *  least when they are encoded. The core multiplies column i of each W with s[from[i]], divides
     *  the places by s, so that the model computes the same, and calls encode_calibrated with the
     *  weights and inputs that result. 1: as it is. Comes with encode_calibrated. NULL: none. */
    lathe_status (*scale_inputs)(void *self, const lathe_quant_layers *layers, float *scales);

    /* ---- decoding ---- */
    /** [pure] Scratch bytes that one decode needs. NULL: 0. */
    int64_t (*decode_scratch)(void *self, int64_t rows, int64_t cols);
    /** [step] Computes W from the planes, as dtype F32, BF16 or F16, row-major; device pointers. */
    lathe_status (*decode)(void *self, int64_t rows, int64_t cols, const void *const *planes,
                           void *w, int32_t dtype, void *scratch, void *stream);
    /** Embedded CUDA code of the decode kernel (see lathe_quant_args), for devices whose memory
     *  the host cannot access. For these the core never calls decode(), and calls encode() and
     *  read_meta() on the host. NULL: such devices cannot use the format. */
    const void *cuda_image;
    /** [pure] Fills out[LATHE_QUANT_SETTINGS], zero on entry, with the instance's settings for
     *  the kernel. NULL: none. */
    void (*image_settings)(void *self, int64_t *out);

    /* ---- products that decode a part at a time ---- */
    /** [pure] How rows lie in memory (packed.h). NULL: 1, 1, 0. */
    void (*part_rows)(void *self, int64_t rows, int64_t cols, lathe_part_rows *out);
    /** [step] On any thread, and on several at a time: a part of W as F32, BF16 or F16, into out
     *  [runs * rows, cols], whose rows are part->stride elements apart, with the bits of decode().
     *  Neither queues work nor calls parallel_for. NULL: products decode the weight whole. */
    void (*decode_part)(void *self, int64_t rows, int64_t cols, const void *const *planes,
                        const lathe_weight_part *part, void *out, int32_t dtype);
    /** [pure] The columns that share values (lathe_part_codes in packed.h). NULL: 0, no codes. */
    int64_t (*code_group)(void *self, int64_t rows, int64_t cols);
    /** [step] On any thread, as decode_part: the codes of a part. With code_group. */
    int32_t (*part_codes)(void *self, int64_t rows, int64_t cols, const void *const *planes,
                          const lathe_weight_part *part, int32_t dtype, float *values, void *room,
                          lathe_part_codes *out);
    /** [pure] How the codes lie (lathe_weight_codes in packed.h). NULL: none. */
    int32_t (*codes)(void *self, int64_t rows, int64_t cols, const void *const *planes,
                     lathe_weight_codes *out);
    /** [step] On any thread, as decode_part: the scales and offsets of a part. With codes. */
    void (*part_scales)(void *self, int64_t rows, int64_t cols, const void *const *planes,
                        const lathe_weight_part *part, float *scales, float *offsets);
    /** [pure] How products quantize their inputs: lathe_activations in packed.h. With codes. */
    int32_t (*activations)(void *self, int64_t rows, int64_t cols, lathe_activations *out);
    /** NULL-terminated keys of fields that say how products are computed, not how W is stored:
     *  [quant] of a run sets them for a folder that is quantized already, too. NULL: none. */
    const char *const *product_fields;

    /* ---- model folders ---- */
    /** NULL-terminated names of the "quant_method"s that read_config understands. NULL: the format
     *  is not read from folders. */
    const char *const *methods;
    /** [open] Sets the values (in the order of the plugin's fields, with their defaults on entry)
     *  to what the configuration says of a layer's weight. Strings must be those of the
     *  configuration, or constants. Whether activations are quantized is the run's choice.
     *  Errors  LATHE_E_NOT_FOUND: the method is known, but these weights have another format.
     *          LATHE_E_UNSUPPORTED: they are of this format, with a setting that it does not
     *          support; the message names key, value and what is supported. Comes with methods. */
    lathe_status (*read_config)(const lathe_host *host, const lathe_quant_config *config,
                                lathe_value *values);
    /** [open] Checks planes that were read from a file, where their values could make decode read
     *  beyond them; all in host memory. LATHE_E_CORRUPT names what was seen and expected. NULL:
     *  every value is safe. */
    lathe_status (*check_planes)(void *self, int64_t rows, int64_t cols, const void *const *planes);
    /** Name suffix, as lathe_plane.file_suffix, of the metadata tensor of a weight, if the file
     *  layout has one (bitsandbytes' quant_state). It comes with weight_meta and read_meta. */
    const char *meta_suffix;
    /** [open] Reads the metadata tensor of a weight whose other planes are loaded, and fills in
     *  the planes that have no tensor. Refuses metadata that do not match this instance's
     *  settings (LATHE_E_UNSUPPORTED, LATHE_E_SHAPE, LATHE_E_PARSE). Host pointers. NULL: none. */
    lathe_status (*read_meta)(void *self, int64_t rows, int64_t cols, const char *meta,
                              int64_t bytes, void *const *planes);
    /** [between] Writes the bytes of the weight's extra metadata tensor, meta_suffix. Returns bytes
     *  as config_json does; their number depends on rows and cols alone, and is asked for with
     * planes NULL and capacity 0. NULL: none. */
    int64_t (*weight_meta)(void *self, int64_t rows, int64_t cols, const void *const *planes,
                           char *out, int64_t capacity);
    /** [open] Tells the dtype in which the model's file had the weights that encode() gets, for
     * metadata that name it; called before config_json and weight_meta. NULL: none does. */
    void (*set_source_dtype)(void *self, int32_t dtype);
    /** [between] Writes the JSON text of "quantization_config" for config.json. Returns its length
     *  in bytes, without NUL; if that exceeds capacity, the text is cut. NULL: there is none. */
    int64_t (*config_json)(void *self, char *out, int64_t capacity);
} lathe_quant_v1;
LATHE_ABI_SIZE(lathe_quant_v1, 216);

#endif

/* NF4: the instance, and the planes of a weight.
 *
 * A weight is a flat array of n = rows*cols elements, cut into blocks of 64. The scale of a block
 * is its largest magnitude (absmax). With double quantization, the mean is subtracted from the
 * scales, and they are cut into blocks of 256 and stored as 8-bit codes.
 *
 * Folders may have larger blocks. Their scales are computed when they are read, and repeated for
 * each 64 elements; decoding knows no other blocks. Their planes:
 *
 *   weight, absmax f32 [n/64] (computed), quant_map, then those of the file:
 *   absmax [n/block], and with double quantization nested_absmax, nested_quant_map
 */
#ifndef LATHE_NF4_H
#define LATHE_NF4_H

#include "lathe/kit/dynamic_map.h"
#include "nf4_kernel.h"

enum { NF4_PORTABLE, NF4_AVX2, NF4_AVX512, NF4_N_BUILDS };

typedef struct nf4 {
    const lathe_host *host;
    int nested;            /* the scales in memory are codes */
    int64_t block;         /* elements that share a scale in files */
    int file_nested;       /* the scales in files are codes */
    int32_t source_dtype;  /* of the weights that are encoded */
    int build;             /* of the codecs: NF4_PORTABLE, ... */
    float nested_map[256]; /* bitsandbytes' signed dynamic map, ascending */
} nf4;

static inline int64_t nf4_blocks(int64_t n)
{
    return (n + NF4_BLOCK - 1) / NF4_BLOCK;
}

extern const float nf4_map[16];

/** Encodes one block of `count` <= 64 values. Returns the scale to store, or -1 if a value is not
 *  finite. last: the block is cut short by the end of the weight. codes: one per byte. */
typedef float (*nf4_encode_fn)(const float *w, int64_t count, int last, uint8_t *codes);
float nf4_encode_block(const float *w, int64_t count, int last, uint8_t *codes);
float nf4_encode_block_avx512(const float *w, int64_t count, int last, uint8_t *codes);

/** Decodes n whole blocks, from block `first` of the planes on; dtype F32, BF16 or F16. nested: as
 * for nf4_scale. */
typedef void (*nf4_decode_fn)(const void *const *planes, int nested, int64_t first, int64_t n,
                              void *out, int32_t dtype);
void nf4_decode_blocks(const void *const *planes, int nested, int64_t first, int64_t n, void *out,
                       int32_t dtype);
void nf4_decode_blocks_avx2(const void *const *planes, int nested, int64_t first, int64_t n,
                            void *out, int32_t dtype);
void nf4_decode_blocks_avx512(const void *const *planes, int nested, int64_t first, int64_t n,
                              void *out, int32_t dtype);

/** values [n][16]: those of the codes of n blocks from `first` on, rounded to dtype. */
void nf4_code_values(int build, const void *const *planes, int nested, int64_t first, int64_t n,
                     float *values, int32_t dtype);

/** nf4_scale of n blocks from `first` on. */
void nf4_scales(int build, const void *const *planes, int nested, int64_t first, int64_t n,
                float *scales);

/** lathe_quant_v1.config_json, weight_meta, read_meta, methods, read_config, set_source_dtype. */
void nf4_set_source_dtype(void *self, int32_t dtype);
int64_t nf4_config_json(void *self, char *out, int64_t capacity);
int64_t nf4_weight_meta(void *self, int64_t rows, int64_t cols, const void *const *planes,
                        char *out, int64_t capacity);
lathe_status nf4_read_meta(void *self, int64_t rows, int64_t cols, const char *meta, int64_t bytes,
                           void *const *planes);
extern const char *const nf4_methods[];
lathe_status nf4_read_config(const lathe_host *host, const lathe_quant_config *config,
                             lathe_value *values);

/* Order of the plugin's fields. */
enum { NF4_FIELD_DOUBLE_QUANT, NF4_FIELD_BLOCK_SIZE };

/* Planes of larger blocks, after NF4_MAP. */
enum { NF4_FILE_ABSMAX = NF4_MAP + 1, NF4_FILE_NESTED_ABSMAX, NF4_FILE_NESTED_MAP };

#endif

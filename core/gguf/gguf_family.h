/* The model families that can be converted: their names in GGUF, and the names and layouts of their
 * tensors.
 *
 *   Source  gguf-py 0.19, constants.py and tensor_mapping.py; llama.cpp, conversion/ (the package
 *           llama-cpp-python 0.3.36).
 */
#ifndef LATHE_GGUF_GGUF_FAMILY_H
#define LATHE_GGUF_GGUF_FAMILY_H

#include "base/arena.h"
#include "gguf/gguf_type.h"
#include "lathe/status.h"

typedef struct lathe_gguf_family {
    const char *arch;         /* general.architecture: "llama" */
    const char *model_type;   /* of the config.json that a GGUF file gives: "llama" */
    const char *architecture; /* "LlamaForCausalLM" */
    int32_t permutes;         /* 1: rows of q and k are in llama.cpp's order */
    int32_t adds_one;         /* 1: norms are stored as 1 + weight */
    int32_t post_norms; /* 1: post_attention_layernorm is after the attention, not before the MLP */
    int32_t window_period;  /* every layer whose number is a multiple of it has no window; 0: no
                             * layer has one */
    int32_t large_n_layers; /* the 27B model, whose scores llama.cpp scales by the width; 0: none */
} lathe_gguf_family;

/** The family of a GGUF architecture; NULL: it is not converted. */
const lathe_gguf_family *lathe_gguf_family_of_arch(const char *arch, int64_t bytes);
/** The family in which a model_type is written; NULL: it is not converted. */
const lathe_gguf_family *lathe_gguf_family_of_type(const char *model_type);
/** "llama, qwen2, ...": GGUF's names, for messages. */
const char *lathe_gguf_families(void);

/** Name in GGUF of a parameter of the model, in the arena. LATHE_E_UNSUPPORTED: GGUF has none. */
lathe_status lathe_gguf_name(const lathe_gguf_family *family, const char *name, lathe_arena *arena,
                             const char **out);
/** Name in the folder of a tensor of a GGUF file, in the arena; *out NULL: the family has no such
 *  tensor. */
lathe_status lathe_gguf_folder_name(const lathe_gguf_family *family, const char *name,
                                    lathe_arena *arena, const char **out);

/* How a tensor differs from the one of the folder. */
enum { LATHE_GGUF_SAME, LATHE_GGUF_ROTATED, LATHE_GGUF_PLUS_ONE };

/** The difference, for a parameter of a model of the family. */
int32_t lathe_gguf_change(const lathe_gguf_family *family, const char *name);

/** The row of the folder's tensor that is row `row` of a ROTATED tensor with heads of head_dim
 *  rows: llama.cpp turns channel 2j with 2j+1, transformers channel j with j + head_dim/2. */
int64_t lathe_gguf_rotated_row(int64_t row, int64_t head_dim);

/** The type that llama.cpp gives a tensor in a file of type `wanted`; tied: the model has no
 *  output.weight. `name` is that in GGUF; rank and cols are the tensor's.
 *
 *   Source  llama.cpp, llama-quant.cpp: llama_tensor_get_type_impl and tensor_type_fallback,
 *           without an importance matrix; conversion/base.py for floats. */
const lathe_gguf_type *lathe_gguf_mix(int32_t wanted, const char *name, int32_t rank, int64_t cols,
                                      int32_t n_layers, int32_t tied);

#endif

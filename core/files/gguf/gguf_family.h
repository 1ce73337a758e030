/* The model families that can be converted: their names in GGUF, and the names and layouts of their
 * tensors.
 *
 *   Source  gguf-py 0.19, constants.py and tensor_mapping.py; llama.cpp, conversion/ (the package
 *           llama-cpp-python 0.3.36).
 */
#ifndef LATHE_FILES_GGUF_FAMILY_H
#define LATHE_FILES_GGUF_FAMILY_H

#include "base/arena.h"
#include "files/gguf/gguf_type.h"
#include "lathe/status.h"

/** How a family's mixtures of experts are described in config.json. */
typedef struct lathe_gguf_experts {
    const char *count_key;  /* number of experts: "num_experts" */
    const char *ffn_key;    /* width inside an expert; NULL: feed_forward_length is that */
    const char *shared_key; /* width inside the MLP of all tokens; NULL: there is no such key */
    const char *norm_key;   /* whether weights are divided by their sum; NULL: there is none */
    int32_t norm;           /* what llama.cpp does about that; where `grouped`: as norm_key says */
    int32_t grouped;        /* 1: DeepSeek-V3's router, and first_k_dense_replace layers without */
} lathe_gguf_experts;

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
    int32_t is_capped;      /* 1: Gemma 2 and 3, with a scale of the scores and soft-caps */
    int32_t uses_gelu;      /* 1: tanh-GELU; 0: SiLU. llama.cpp reads no activation */
    int32_t layer_norms;    /* 1: LayerNorm, and norm_eps_key */
    int32_t fused_mlp;      /* 1: gate and up are one matrix, which GGUF calls ffn_up */
    int32_t partial_rope;   /* 1: a part of a head may be rotated */
    int32_t no_head_dim;    /* 1: the class has no key head_dim */
    int32_t rope_period;    /* llama.cpp rotates all layers but each rope_period-th; 0: all */
    int32_t needs_head;     /* 1: llama.cpp needs a head apart from the embedding */
    int32_t no_head;        /* 1: llama.cpp uses the embedding as the head, always */
    int32_t needs_bias;     /* 1: llama.cpp reads no file without the biases of o and of the MLP */
    int32_t whole_width;    /* 1: llama.cpp expects heads that are together as wide as the model */
    int32_t reads_factors;  /* 1: llama.cpp reads rope_freqs.weight, also without `permutes` */
    int32_t windowed_layers; /* the number of layers with which llama.cpp applies windows; 0: any */
    int32_t out_bias, mlp_bias; /* 1: llama.cpp adds biases of o, and of the MLP */
    int32_t qkv_by_head;        /* 1: rows of the folder's qkv are by key head: its queries, k, v */
    int32_t two_norms;          /* 1: attn_norm_2 before the attention, attn_norm before the MLP */
    int32_t no_rope;            /* 1: the family has no rotary positions */
    int32_t uses_xielu;         /* 1: xIELU, whose numbers are keys with one for each layer */
    const char *norm_eps_key;   /* of LayerNorm; NULL: layer_norm_eps */
    const char *prefix, *layers; /* of the folder's names; NULL: "model.", "layers." */
    /* keys of config.json; NULL: the usual one; "": there is none */
    const char *positions_key, *ffn_key, *kv_key, *act_key;
    const char *bias_key;              /* key of config.json that a bias of q means; NULL: none */
    const char *out_bias_key;          /* the same for o, where it has a key of its own; NULL */
    const char *mlp_bias_key;          /* the same for the MLP; NULL */
    const lathe_gguf_experts *experts; /* NULL: a dense family */
} lathe_gguf_family;

/** The family of a GGUF architecture; NULL: it is not converted. */
const lathe_gguf_family *lathe_gguf_family_of_arch(const char *arch, int64_t bytes);
/** The family of the same architecture whose layers have experts, which is the family itself where
 *  all of its models do; NULL: there is none. */
const lathe_gguf_family *lathe_gguf_family_with_experts(const lathe_gguf_family *family);
/** The family in which a model_type is written; NULL: it is not converted. */
const lathe_gguf_family *lathe_gguf_family_of_type(const char *model_type);
/** The family of the same architecture whose layers have windows (OLMo 3 of OLMo 2); NULL: there is
 *  none. */
const lathe_gguf_family *lathe_gguf_family_windowed(const lathe_gguf_family *family);
/** "llama, qwen2, ...": GGUF's names, for messages. */
const char *lathe_gguf_families(void);

/** Name in GGUF of a parameter of the model, in the arena. LATHE_E_UNSUPPORTED: GGUF has none. */
lathe_status lathe_gguf_name(const lathe_gguf_family *family, const char *name, lathe_arena *arena,
                             const char **out);
/** Name in the folder of a tensor of a GGUF file, in the arena; *out NULL: the family has no such
 *  tensor. */
lathe_status lathe_gguf_folder_name(const lathe_gguf_family *family, const char *name,
                                    lathe_arena *arena, const char **out);

/** Whether a tensor of GGUF may be a vector where the folder's is a matrix of one row: the gate of
 *  the MLP of all tokens. */
int32_t lathe_gguf_is_flat(const char *name);

/* How a tensor differs from the one of the folder. */
enum { LATHE_GGUF_SAME, LATHE_GGUF_ROTATED, LATHE_GGUF_PLUS_ONE, LATHE_GGUF_BY_HEAD };

/** The difference, for a parameter of a model of the family. */
int32_t lathe_gguf_change(const lathe_gguf_family *family, const char *name);

/** Row `row` of a tensor of GGUF is this row of the folder's, for any change. The rows of a BY_HEAD
 *  tensor are all queries, then all keys, then all values. */
int64_t lathe_gguf_folder_row(int32_t change, int64_t row, int64_t heads, int64_t kv_heads,
                              int64_t head_dim);

/** Row `row` of the folder's tensor is this row of a BY_HEAD tensor. */
int64_t lathe_gguf_by_head_stored(int64_t row, int64_t heads, int64_t kv_heads, int64_t head_dim);

enum { LATHE_GGUF_N_XIELU = 4 };

/** Name n of the numbers of xIELU: "alpha_p" in the folder, after "mlp.act_fn."; "xielu.alpha_p" is
 *  the key. *out_rank: of the folder's tensor. */
const char *lathe_gguf_xielu(int32_t n, int32_t *out_rank);

/** The family of the same architecture with two norms, for files that have attn_norm_2 (Falcon);
 *  NULL: there is none. */
const lathe_gguf_family *lathe_gguf_family_with_two_norms(const lathe_gguf_family *family);

/** The type that llama.cpp gives a tensor in a file of type `wanted`; tied: the model has no
 *  output.weight. `name` is that in GGUF; rank and cols are the tensor's.
 *
 *   Source  llama.cpp, llama-quant.cpp: llama_tensor_get_type_impl and tensor_type_fallback,
 *           without an importance matrix; conversion/base.py for floats. */
const lathe_gguf_type *lathe_gguf_mix(int32_t wanted, const char *name, int32_t rank, int64_t cols,
                                      int32_t n_layers, int32_t tied);

#endif

/* A model's configuration: read from a Hugging Face config.json of either generation of keys (or from
 * the same keys in a [model] table), checked, and written back. What is not supported is refused with
 * the key and the value seen.
 */
#ifndef LATHE_MODEL_HF_CONFIG_H
#define LATHE_MODEL_HF_CONFIG_H

#include "lathe/status.h"
#include "lathe/tensor.h"

enum { LATHE_ROPE_NONE = 0, LATHE_ROPE_DEFAULT = 1, LATHE_ROPE_LINEAR = 2, LATHE_ROPE_LLAMA3 = 3 };

typedef struct lathe_rope_config {
    int32_t type; /* LATHE_ROPE_*; NONE: learned positions */
    double theta;
    double factor;                            /* LINEAR, LLAMA3 */
    double low_freq_factor, high_freq_factor; /* LLAMA3 */
    int64_t original_max_positions;           /* LLAMA3 */
} lathe_rope_config;

#define LATHE_MAX_EOS 16

typedef struct lathe_model_config {
    const struct lathe_family *family;
    int64_t vocab, width, ffn; /* V, C, F */
    int32_t n_layers, n_heads, n_kv_heads, head_dim;
    int64_t max_positions; /* the longest context the model was made for */
    lathe_rope_config rope;
    double norm_eps;
    double init_range; /* standard deviation of random weights */
    int32_t tied;      /* the head is the token embedding */
    int32_t qkv_bias, out_bias, mlp_bias;
    int32_t bos, pad; /* token ids; -1: none */
    int32_t eos[LATHE_MAX_EOS];
    int32_t n_eos;
    int32_t file_dtype; /* of the weights, F32 BF16 F16 F64; F32 when the file does not say it */
    int64_t window;     /* sliding window of every layer; 0: all keys */
    double dropout;     /* the largest dropout that the configuration names; none is ever applied */
    const char *dropout_key; /* its key; NULL: none above 0 */
    char *json;              /* the text it was read from; NULL for a [model] table */
} lathe_model_config;

/** Reads folder/config.json. LATHE_E_CONFIG names file, key, what was seen and what is supported. */
lathe_status lathe_model_config_load(const char *folder, lathe_model_config *out);

/** Reads config.json text; `name` is for errors. strict: unknown keys are refused, and the text is not
 *  kept for saving: for a [model] table. Keys are those of config.json ("hidden_size", "n_embd", ...),
 *  model_type first among them. */
lathe_status lathe_model_config_parse(const char *name, const char *text, int64_t bytes,
                                      int32_t strict, lathe_model_config *out);

/** The text of a config.json that transformers loads (malloc'ed): the one that was read, with file_dtype as its
 *  dtype, or a new one. */
lathe_status lathe_model_config_text(const lathe_model_config *config, char **out_text);

/** Writes folder/config.json, durably. */
lathe_status lathe_model_config_save(const lathe_model_config *config, const char *folder);

/** Frees what the configuration holds. */
void lathe_model_config_fini(lathe_model_config *config);

#endif

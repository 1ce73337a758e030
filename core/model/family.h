/* Model families: how a model_type's config is read, what parameters it has, how its forward is built.
 *
 * A family is one file. Names are those of transformers' named_parameters(); shapes are ours, [out, in]
 * for every matrix (Conv1D weights are marked transposed).
 */
#ifndef LATHE_MODEL_FAMILY_H
#define LATHE_MODEL_FAMILY_H

#include "ir/params.h"
#include "model/config_reader.h"
#include "model/hf_config.h"
#include "model/model_build.h"

typedef struct lathe_family {
    const char *model_type;   /* "llama" */
    const char *architecture; /* "LlamaForCausalLM" */
    const char *prefix;       /* of all names but the head's: "model."; files may lack it */
    const char *embedding;    /* name of the token embedding */
    const char *const
        *keys; /* config keys it reads, NULL-terminated: others are refused in strict mode */
    int32_t warns_of_dropout; /* 1: published files name a dropout that few fine-tune with: training
                                 without it is a warning; 0: an error */
    /** Fills out from the object; failures go to r->status. */
    void (*read)(lathe_config_reader *r, lathe_model_config *out);
    /** Adds the keys of a generated config.json. */
    void (*write)(const lathe_model_config *config, json_t *object);
    /** Adds every parameter to the table, in the order of named_parameters(). */
    lathe_status (*params)(const lathe_model_config *config, lathe_params *params);
    /** Emits the forward up to the final norm. */
    lathe_status (*hidden)(const lathe_model_build *build, lathe_val *out);
} lathe_family;

/** The family of a model_type, or NULL. */
const lathe_family *lathe_family_find(const char *model_type);

/** The model_types there are, separated by ", ". */
const char *lathe_family_names(void);

#define LATHE_HEAD_NAME "lm_head.weight"

/* ---- what the families share ---- */

/** Adds one parameter of the model: layer -1 outside; dims [rows, cols], cols 0 for a vector of rows. */
lathe_status lathe__family_param(lathe_params *params, int32_t layer, int32_t role, int64_t rows,
                                 int64_t cols, int32_t init, double scale, int32_t transposed,
                                 const char *format, ...) __attribute__((format(printf, 9, 10)));

/** Says that rows of the named parameter, when there is one, belong to heads of head_dim rows. */
void lathe__family_heads(lathe_params *params, int32_t head_dim, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The decoder of Llama and its kin (family_llama.c). qk_norm: RMSNorm over each head of q and k. */
void lathe__llama_read(lathe_config_reader *r, lathe_model_config *out);
void lathe__llama_write(const lathe_model_config *config, json_t *object);
lathe_status lathe__llama_params(const lathe_model_config *config, int32_t qk_norm,
                                 lathe_params *params);
lathe_status lathe__llama_hidden(const lathe_model_build *build, int32_t qk_norm, lathe_val *out);

extern const lathe_family lathe__family_llama, lathe__family_qwen2, lathe__family_qwen3,
    lathe__family_gpt2;

#endif

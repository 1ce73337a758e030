/* LoRA as the methods share it that are built on it (lora, lora_plus): settings, the instance, and
 * the functions of the adapter's table. A method has the rows LORA_FIELDS first in its table of
 * keys, then LORA_LOFTQ_FIELD if it offers init = "loftq", and its own after them. */
#ifndef LATHE_LORA_H
#define LATHE_LORA_H

#include "lathe/adapter.h"
#include "lathe/schema.h"
#include "shared/lora_pattern.h"
#include "shared/targets.h"

enum {
    LORA_R,
    LORA_ALPHA,
    LORA_DROPOUT,
    LORA_TARGETS, /* and the others of TARGETS_FIELDS */
    LORA_TIES = LORA_TARGETS + TARGETS_N_FIELDS,
    LORA_INIT,
    LORA_USE_RSLORA,
    LORA_RANK_PATTERN,
    LORA_ALPHA_PATTERN,
    LORA_BIAS,
    LORA_N_FIELDS,
    LORA_LOFTQ_ITER = LORA_N_FIELDS,
    LORA_N_FIELDS_WITH_LOFTQ
};

/* Choices of `init` and what they mean, for LORA_FIELDS. */
#define LORA_RANDOM_INITS                                                                          \
    "kaiming|gaussian", "initial A: uniform as in torch.nn.Linear, or normal with deviation 1/r"
#define LORA_QUANTIZED_INITS                                                                       \
    "kaiming|gaussian|loftq",                                                                      \
        "initial A: uniform as in torch.nn.Linear, or normal with deviation 1/r; loftq: A and B "  \
        "from the largest singular values of the quantization error"
#define LORA_TRAINED_INITS                                                                         \
    "kaiming|gaussian|pissa|loftq",                                                                \
        "initial A: uniform as in torch.nn.Linear, or normal with deviation 1/r; pissa: A and B "  \
        "from the weight's largest singular values; loftq: from those of the quantization error"
#define LORA_ALL_INITS                                                                             \
    "kaiming|gaussian|pissa|loftq|mica",                                                           \
        "initial A: uniform as in torch.nn.Linear, or normal with deviation 1/r; pissa: A and B "  \
        "from the weight's largest singular values; loftq: from those of the quantization "        \
        "error; mica: A is 0, and B, which does not train, has the vectors of the weight's "       \
        "smallest singular values"

#define LORA_FIELDS(...)                                                                           \
    LATHE_FIELD_INT("r", "32", 1.0, LORA_MAX_RANK, "1", "rank of A and B"),                        \
        LATHE_FIELD_FLOAT("alpha", "32.0", 0.0, 1e6, "1", "the update is scaled by alpha/r"),      \
        {"dropout", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE,                                      \
         "0.0",     0.0,           1.0,                                                            \
         NULL,      "1",           "probability that an element of LoRA's input is dropped"},      \
        TARGETS_FIELDS("lora_only"),                                                               \
        LATHE_FIELD_BOOL("ensure_weight_tying", "false",                                           \
                         "an embedding in modules_to_save or target_modules that is the output "   \
                         "head too is trained as both"),                                           \
        LATHE_FIELD_STRING("init", "\"kaiming\"", __VA_ARGS__),                                    \
        LATHE_FIELD_BOOL("use_rslora", "false",                                                    \
                         "scale the update by alpha/sqrt(r) instead of alpha/r"),                  \
        {"rank_pattern",                                                                           \
         LATHE_T_TABLE,                                                                            \
         0,                                                                                        \
         NULL,                                                                                     \
         LATHE_NO_RANGE,                                                                           \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "other ranks for some modules: { \"down_proj\" = 32 }; keys are regular expressions"},    \
        {"alpha_pattern", LATHE_T_TABLE, 0,    NULL,                                               \
         LATHE_NO_RANGE,  NULL,          NULL, "other alphas for some modules"},                   \
        LATHE_FIELD_BOOL("lora_bias", "false",                                                     \
                         "B has a bias, which is scaled as the update is; with init = "            \
                         "\"kaiming\"")

#define LORA_LOFTQ_FIELD                                                                           \
    LATHE_FIELD_INT("loftq_iter", NULL, 1.0, 100.0, "steps",                                       \
                    "with init = \"loftq\": times that the weight is quantized and decomposed, "   \
                    "in turns; unset: 1")

typedef struct lora {
    const lathe_host *host;
    const char *method; /* name of the plugin, for messages */
    double lr_ratio;    /* of lora_plus; else 0 */
    int64_t r;
    double alpha, dropout;
    int use_rslora;
    int gaussian;       /* A begins normal, with the standard deviation 1/r */
    int pissa;          /* A and B begin with singular vectors of W, and the base is the residual */
    int mica;           /* B is the last singular vectors of W and does not train; A begins as 0 */
    int64_t loftq_iter; /* > 0: A and B start from the quantization error of W; else 0 */
    int use_dora;       /* the method is dora */
    int lora_bias;      /* B has a bias */
    int warned_of_tied; /* a warning was given: the uses of a tied matrix are adapted apart */
    const char *rank_json, *alpha_json; /* the tables as given, borrowed */
    lora_patterns *ranks, *alphas;
    targets targets;
} lora;

/** Makes an instance from the values of LORA_FIELDS, and of LORA_LOFTQ_FIELD if there are more.
 *  LATHE_E_CONFIG: settings that contradict each other; LATHE_E_NOMEM. */
lathe_status lora_open(const lathe_host *host, const char *method, const lathe_value *values,
                       int32_t n_values, lora **out);
void lora_destroy(void *self);

/* Functions of lathe_adapter_v1; the others are in targets.h. */
lathe_status lora_select(void *self, const lathe_param_info *param, int32_t *out_trainable,
                         int32_t *out_group);
int64_t lora_file_key(void *self, const char *param_name, char *out, int64_t capacity);
int32_t lora_targets(void *self, const lathe_site *site);
int32_t lora_unties(void *self, const char *embedding, const char *head);
/** Refuses init = "loftq" where there is no quantization error: "and BEFORE MODULE AFTER". */
lathe_status lora_refuse_loftq(const lora *l, const char *before, const char *module,
                               const char *after);
int32_t lora_uses_loftq(void *self); /* needs_quantized_base, starts_elsewhere */
lathe_status lora_wrap(void *self, const lathe_graph_api *api, lathe_graph *g,
                       const lathe_site *site, lathe_val x, int32_t enabled, lathe_val *out_y);
lathe_status lora_merge(void *self, const lathe_site *site, const lathe_site_param *params,
                        int32_t n_params, float *w);
int32_t lora_adds_bias(void *self);
lathe_status lora_merge_bias(void *self, const lathe_site *site, const lathe_site_param *params,
                             int32_t n_params, float *b);
lathe_status lora_check(void *self, const char *const *modules, int32_t n_modules,
                        const char *const *params, int32_t n_params);

lathe_status lora_embed(void *self, const lathe_graph_api *api, lathe_graph *g,
                        const lathe_site *site, lathe_val tokens, int32_t enabled,
                        lathe_val *out_y);
lathe_status lora_head(void *self, const lathe_graph_api *api, lathe_graph *g,
                       const lathe_site *site, lathe_val x, lathe_val *out_u, lathe_val *out_v);
/** lora_head that also gives A [r, in]; v is B. */
lathe_status lora_head_pair(lora *self, const lathe_graph_api *api, lathe_graph *g,
                            const lathe_site *site, lathe_val x, lathe_val *out_u, lathe_val *out_a,
                            lathe_val *out_v);

/** Builds s B A[:,t] c[N,C] of an embedding, and gives A [V, r] and B [C, r]. */
lathe_status lora_embed_update(lora *self, const lathe_graph_api *api, lathe_graph *g,
                               const lathe_site *site, lathe_val tokens, lathe_val *out_a,
                               lathe_val *out_b, lathe_val *out_update);
/** Refuses a rank above the number of singular vectors, with which `init` begins. */
lathe_status lora_check_rank(const lora *self, const lathe_site *site, const char *init);
/** lathe_adapter_v1.targets of a head: with ensure_weight_tying, that of its embedding. */
int32_t lora_targets_head(const lora *self, const lathe_site *site);
/** lathe_adapter_v1.merge of an embedding. LATHE_E_CONFIG: the head is the same matrix. */
lathe_status lora_merge_embedding(const lora *self, const lathe_site *site,
                                  const lathe_site_param *params, int32_t n_params, float *w);

/** Declares A [r, in] and B [out, r] of a site. */
lathe_status lora_declare_pair(const lora *self, const lathe_graph_api *api, lathe_graph *g,
                               const lathe_site *site, lathe_val *out_a, lathe_val *out_b);
/** Gives dropout(x), or x itself if there is none. */
lathe_status lora_drop(const lora *self, const lathe_graph_api *api, lathe_graph *g, lathe_val x,
                       lathe_val *out);
/** Builds s (h A^T) B^T [N, out]. */
lathe_status lora_product(const lora *self, const lathe_graph_api *api, lathe_graph *g,
                          const lathe_site *site, lathe_val h, lathe_val a, lathe_val b,
                          lathe_val *out);

/** With init = "pissa", subtracts the initial update s (x A0^T) B0^T from *io_update: A0 and B0 are
 *  what A and B begin with, and the core computes them at each load. Else does nothing. */
lathe_status lora_subtract_start(const lora *self, const lathe_graph_api *api, lathe_graph *g,
                                 const lathe_site *site, lathe_val x, lathe_val *io_update);

/** Rank and scaling factor (alpha/r, or alpha/sqrt(r) with rsLoRA) at a module. */
int64_t lora_rank(const lora *self, const char *module);
double lora_scale(const lora *self, const char *module);

/** adapter_config.json as PEFT reads it; lathe_adapter_v1.config_json. */
int64_t lora_config_json(void *self, const char *base, char *out, int64_t capacity);

#endif

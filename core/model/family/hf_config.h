/* A model's configuration: read from a Hugging Face config.json of either generation of keys (or
 * from the same keys in a [model] table) by the plugin of its family, and written back. What is not
 * supported is refused with the key and the value seen.
 */
#ifndef LATHE_MODEL_HF_CONFIG_H
#define LATHE_MODEL_HF_CONFIG_H

#include "base/arena.h"
#include "files/gguf/model_files.h"
#include "lathe/model.h"
#include "model/family/rope_config.h"
#include "plug/select.h"

#define LATHE_MAX_EOS 16

typedef struct lathe_model_config {
    const char *model_type, *architecture; /* "llama", "LlamaForCausalLM": the plugin's */
    int64_t vocab, width, ffn;             /* V, C, F */
    int32_t n_layers;
    int32_t n_heads, n_kv_heads, head_dim; /* of the first layer, for display */
    int64_t max_positions;                 /* longest context that the model was made for */
    int32_t tied;                          /* the head is the token embedding */
    int32_t is_untied; /* 1: the file has one matrix for both, and each begins with a copy */
    int32_t n_ropes;
    lathe_rope_config ropes[LATHE_MAX_ROPES]; /* tables of rotary frequencies */
    const lathe_model_layer *layers;          /* [n_layers] */
    const char *prefix, *embedding, *head;    /* names of parameters: lathe_model_info */
    double head_softcap;                      /* of the logits; 0: none */
    double head_scale;                        /* factor of the logits; 0: 1 */
    const char *head_bias;                    /* parameter f32[V] added to the logits; NULL: none */
    /* The folder's model has more towers than this one, the text model (text_tower.h); NULL: it is
     * the text model alone. */
    const lathe_model_wrapper *wrapper;
    const char *plain_prefix, *plain_head; /* with a wrapper: the names that the plugin gives */
    int32_t layout;                        /* number of the wrapper's names that the files have */
    /* Above 0: a sequence classifier of that many labels (transformers'
     * ..ForSequenceClassification) without a head over the vocabulary. */
    int32_t n_labels;
    int32_t is_classifier; /* 1: the configuration that was read is that of such a classifier */
    int32_t bos, pad;      /* token ids; -1: none */
    int32_t eos[LATHE_MAX_EOS];
    int32_t n_eos;
    int32_t file_dtype;   /* of the weights: F32, BF16, F16 or F64; F32 if the file names none */
    int32_t is_two_way;   /* "is_causal": false: every token of a document sees all of it */
    int32_t is_quantized; /* the file has a quantization_config: quant_source.h reads it */
    int32_t warns_of_dropout;  /* 1: training without the dropout is a warning; 0: an error */
    double dropout;            /* the largest dropout in the configuration; none is ever applied */
    const char *dropout_key;   /* its key; NULL: none above 0 */
    char *json;                /* text of the file; NULL for a [model] table */
    lathe_instance family;     /* the plugin's instance */
    const lathe_value *values; /* of the plugin's schema, including derived ones */
    lathe_arena arena;         /* memory of the values */
    /* The rows that the folder lacks (grown_rows.h), borrowed; NULL: the model is the folder's. */
    const struct lathe_row_growth *growth;
} lathe_model_config;

/** Where to find the plugin of a family. */
typedef struct lathe_model_source {
    lathe_registry *registry;
    const lathe_component
        *family; /* use this plugin, even if others serve the model_type; NULL: by model_type */
} lathe_model_source;

/** Reads config.json of a folder or of a GGUF file. LATHE_E_CONFIG names file, key, what was seen
 * and what is supported. */
lathe_status lathe_model_config_load(const lathe_model_source *source, const char *folder,
                                     lathe_model_config *out);
/** Like lathe_model_config_load, of a text that may have been read already. */
lathe_status lathe_model_config_load_with(lathe_model_texts *texts,
                                          const lathe_model_source *source, const char *folder,
                                          lathe_model_config *out);

/** Gives the head of a tied model, which lathe_model_config_load read, a matrix of its own, also in
 *  the text that is saved. LATHE_E_CONFIG: the family has no untied form, or the model is new. */
lathe_status lathe_model_config_untie(const lathe_model_source *source, const char *folder,
                                      lathe_model_config *config);

/** Gives a model that lathe_model_config_load read another number of tokens, also in the text that
 *  is saved. config->growth says which rows the weights get. */
lathe_status lathe_model_config_resize(const lathe_model_source *source, const char *folder,
                                       int64_t rows, lathe_model_config *config);

/** Reads the text of a config.json; `name` is for messages. A wrapper's text model has the names of
 *  transformers 5, because no folder is looked at. strict: refuses unknown keys and does
 *  not keep the text for saving; used for a [model] table. The keys are those of config.json
 *  ("hidden_size", "n_embd", ...) and model_type. */
lathe_status lathe_model_config_parse(const lathe_model_source *source, const char *name,
                                      const char *text, int64_t bytes, int32_t strict,
                                      lathe_model_config *out);

/** The text of a config.json that transformers loads (malloc'ed): the text that was read, with
 *  file_dtype as its dtype, or a new text. */
lathe_status lathe_model_config_text(const lathe_model_config *config, char **out_text);

/** Standard deviation of new matrices: initializer_range of the configuration, or 0.02. */
double lathe_model_initializer_range(const lathe_model_config *config);

/** Writes folder/config.json, durably. */
lathe_status lathe_model_config_save(const lathe_model_config *config, const char *folder);

/** LATHE_E_CONFIG if the model is not causal. `what`: as below. */
lathe_status lathe_model_config_refuse_two_way(const lathe_model_config *config, const char *folder,
                                               const char *what);

/** LATHE_E_CONFIG if the folder's weights are quantized: for readers that need plain numbers.
 * `what` says what they are read for ("the teacher"). */
lathe_status lathe_model_config_refuse_quantized(const lathe_model_config *config,
                                                 const char *folder, const char *what);

/** Frees everything that the configuration owns. */
void lathe_model_config_fini(lathe_model_config *config);

#endif

/* The tables of keys. */
#include "model/family/hf_config_keys.h"

#include <stdatomic.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/log_once.h"
#include "plug/model_types.h"

/* Read by the core for every family. */
static const char *const read_keys[] = {
    "model_type", "bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype",
    "is_causal", "quantization_config", "num_labels", "id2label", "label2id", "architectures",
    /* beside or in the rotary settings */
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
    "original_max_position_embeddings", NULL};

/* Settings of generation (generation_config.json has them), of training, of output, of the program
 * that wrote the file, of heads that Lathe does not build, and defaults that the layers do not
 * read. */
static const char *const harmless_keys[] = {"_attn_implementation",
                                            "_attn_implementation_autoset",
                                            "_commit_hash",
                                            "_flash_attn_2_enabled",
                                            "_model_name_or_path",
                                            "_name_or_path",
                                            "_sliding_window_pattern",
                                            "attn_implementation",
                                            "auto_map",
                                            "bad_words_ids",
                                            "begin_suppress_tokens",
                                            "cache_implementation",
                                            "chat_template",
                                            "chunk_size_feed_forward",
                                            "classifier_dropout",
                                            "cross_attention_hidden_size",
                                            "decoder_start_token_id",
                                            "diversity_penalty",
                                            "do_sample",
                                            "early_stopping",
                                            "embedding_fraction",
                                            "encoder_no_repeat_ngram_size",
                                            "eod_token_id",
                                            "experts_per_token",
                                            "exponential_decay_length_penalty",
                                            "finetuning_task",
                                            "forced_bos_token_id",
                                            "forced_eos_token_id",
                                            "gradient_checkpointing",
                                            "init_device",
                                            "initial_context_length",
                                            "is_decoder",
                                            "is_encoder_decoder",
                                            "is_llama_config",
                                            "learned_pos_emb",
                                            "length_penalty",
                                            "max_length",
                                            "model_max_length",
                                            "min_length",
                                            "no_repeat_ngram_size",
                                            "norm_type",
                                            "num_beam_groups",
                                            "num_beams",
                                            "num_return_sequences",
                                            "output_attentions",
                                            "output_hidden_states",
                                            "output_scores",
                                            "prefix",
                                            "pretraining_tp",
                                            "problem_type",
                                            "pruned_heads",
                                            "remove_invalid_values",
                                            "reorder_and_upcast_attn",
                                            "repetition_penalty",
                                            "return_dict",
                                            "return_dict_in_generate",
                                            "sep_token_id",
                                            "slow_but_exact",
                                            "summary_activation",
                                            "summary_first_dropout",
                                            "summary_proj_to_labels",
                                            "summary_type",
                                            "summary_use_proj",
                                            "suppress_tokens",
                                            "task_specific_params",
                                            "temperature",
                                            "tf_legacy_loss",
                                            "tie_encoder_decoder",
                                            "tokenizer_class",
                                            "transformers.js_config",
                                            "top_k",
                                            "top_p",
                                            "torchscript",
                                            "transformers_version",
                                            "typical_p",
                                            "unk_token_id",
                                            "unsloth_fixed",
                                            "unsloth_version",
                                            "use_bfloat16",
                                            "use_cache",
                                            "vocab_file",
                                            "head_dim",
                                            NULL};

/* The outer configuration of a model of several towers: settings of the other towers, of what
 * joins them to the text model, and the ids of tokens that stand for images. In a text such a token
 * has its row of the embedding like any other, as in transformers without images. */
static const char *const tower_keys[] = {"_pad_token_id",
                                         "audio_config",
                                         "audio_token_id",
                                         "audio_token_index",
                                         "boi_token_id",
                                         "boi_token_index",
                                         "downsample_ratio",
                                         "dynamic_image_size",
                                         "eoi_token_id",
                                         "eoi_token_index",
                                         "force_image_size",
                                         "freeze_config",
                                         "hidden_size",
                                         "ignore_index",
                                         "image_grid_pinpoints",
                                         "image_seq_length",
                                         "image_token_id",
                                         "image_token_index",
                                         "initializer_range",
                                         "max_dynamic_patch",
                                         "min_dynamic_patch",
                                         "mm_tokens_per_image",
                                         "multimodal_projector_bias",
                                         "neftune_noise_alpha",
                                         "num_image_tokens",
                                         "pad2square",
                                         "perceiver_config",
                                         "projection_dim",
                                         "projector_hidden_act",
                                         "projector_layernorm_eps",
                                         "ps_version",
                                         "qformer_config",
                                         "qk_layer_norms",
                                         "scale_factor",
                                         "select_layer",
                                         "spatial_merge_size",
                                         "spatial_pool_mode",
                                         "spatial_pool_stride",
                                         "template",
                                         "use_image_newline_parameter",
                                         "use_resampler",
                                         "use_thumbnail",
                                         "video_seq_length",
                                         "video_token_id",
                                         "video_token_index",
                                         "vision_aspect_ratio",
                                         "vision_config",
                                         "vision_end_token_id",
                                         "vision_feature_layer",
                                         "vision_feature_layers",
                                         "vision_feature_select_strategy",
                                         "vision_soft_tokens_per_image",
                                         "vision_start_token_id",
                                         "vision_token_id",
                                         "vision_tower_config",
                                         "vocab_size",
                                         NULL};

/* The outer configuration: read for the text model. */
static const char *const outer_keys[] = {"tie_word_embeddings", NULL};

/* quantization_config: what the core and the formats read. */
static const char *const read_quant_keys[] = {"quant_method",
                                              "config_groups",
                                              "dynamic",
                                              "quantized_layers",
                                              "ignore",
                                              "modules_to_not_convert",
                                              "ignored_layers",
                                              "llm_int8_skip_modules",
                                              "skip_modules",
                                              "format",
                                              "quantization_status",
                                              "checkpoint_format",
                                              "bits",
                                              "w_bit",
                                              "group_size",
                                              "q_group_size",
                                              "desc_act",
                                              "sym",
                                              "zero_point",
                                              "version",
                                              "pack_dtype",
                                              "load_in_4bit",
                                              "load_in_8bit",
                                              "bnb_4bit_quant_type",
                                              "bnb_4bit_use_double_quant",
                                              "llm_int8_threshold",
                                              "fmt",
                                              "scale_fmt",
                                              "weight_block_size",
                                              "quant_algo",
                                              "quant_config",
                                              "compute_dtype",
                                              "weights",
                                              NULL};

/* How the weights came about, how other programs compute with them, and what is quantized beside
 * the weights, which are computed in the compute dtype here. */
static const char *const harmless_quant_keys[] = {"_load_in_4bit",
                                                  "_load_in_8bit",
                                                  "act_group_aware",
                                                  "activation",
                                                  "activation_scheme",
                                                  "autoround_version",
                                                  "backend",
                                                  "batch_size",
                                                  "block_name_to_quantize",
                                                  "bnb_4bit_compute_dtype",
                                                  "bnb_4bit_quant_storage",
                                                  "cache_block_outputs",
                                                  "damp_auto_increment",
                                                  "damp_percent",
                                                  "dataset",
                                                  "dequantize",
                                                  "device",
                                                  "do_fuse",
                                                  "exllama_config",
                                                  "expert_dtype",
                                                  "fuse_max_seq_len",
                                                  "global_compression_ratio",
                                                  "kv_cache_quant_algo",
                                                  "kv_cache_scheme",
                                                  "llm_int8_enable_fp32_cpu_offload",
                                                  "llm_int8_has_fp16_weight",
                                                  "lm_head",
                                                  "max_input_length",
                                                  "meta",
                                                  "method",
                                                  "model_file_base_name",
                                                  "model_name_or_path",
                                                  "model_seqlen",
                                                  "module_name_preceding_first_block",
                                                  "modules_in_block_to_quantize",
                                                  "modules_to_convert",
                                                  "modules_to_fuse",
                                                  "mse",
                                                  "offload_meta",
                                                  "pad_token_id",
                                                  "producer",
                                                  "quantizer",
                                                  "run_compressed",
                                                  "static_groups",
                                                  "tokenizer",
                                                  "true_sequential",
                                                  "use_cuda_fp16",
                                                  "use_exllama",
                                                  NULL};

/* Rotations that the layers would have to undo, weights that are sparse or laid out for one kernel,
 * and adapters that belong to the weights. */
static const char *const refused_quant_keys[] = {"transform_config",
                                                 "sparsity_config",
                                                 "moe_sparsity_config",
                                                 "rotation",
                                                 "adapter",
                                                 "is_marlin_format",
                                                 NULL};

static int is_in(const char *const *list, const char *key)
{
    for (; *list != NULL; list++)
        if (strcmp(*list, key) == 0)
            return 1;
    return 0;
}

int32_t lathe_config_key(const lathe_plugin *family, const char *key)
{
    if (is_in(read_keys, key) || lathe_model_plugin_has_key(family, key))
        return LATHE_KEY_READ;
    return is_in(harmless_keys, key) ? LATHE_KEY_HARMLESS : LATHE_KEY_UNKNOWN;
}

int32_t lathe_wrapper_config_key(const lathe_model_wrapper *wrapper, const char *key)
{
    if (is_in(read_keys, key) || is_in(outer_keys, key) || strcmp(key, wrapper->text_key) == 0)
        return LATHE_KEY_READ;
    return is_in(tower_keys, key) || is_in(harmless_keys, key) ? LATHE_KEY_HARMLESS
                                                               : LATHE_KEY_UNKNOWN;
}

int32_t lathe_quant_config_key(const char *key)
{
    if (is_in(read_quant_keys, key))
        return LATHE_KEY_READ;
    if (is_in(refused_quant_keys, key))
        return LATHE_KEY_REFUSED;
    return is_in(harmless_quant_keys, key) ? LATHE_KEY_HARMLESS : LATHE_KEY_UNKNOWN;
}

/* null, false, and empty lists and objects: the key is there and says nothing. */
static int says_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static void add(lathe_buffer *list, const char *key)
{
    lathe_buffer_printf(list, "%s%s", list->len > 0 ? ", " : "", key);
}

/* Commands read a configuration several times: of each file in turn, the keys are said once. */
static void say(const char *place, const char *of, const char *list)
{
    static atomic_ullong last;
    unsigned long long hash = 14695981039346656037ull; /* FNV-1a */
    for (const char *const *text = (const char *const[]){place, list, NULL}; *text != NULL; text++)
        for (const char *c = *text; *c != '\0'; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
    if (atomic_exchange(&last, hash) != hash)
        lathe_log(LATHE_LOG_WARN,
                  "%s: keys that %s does not have here, and that change nothing: %s", place, of,
                  list);
}

/* Names the keys of an object that mean nothing here. wrapper NULL: it holds the keys of the
 * family; family NULL: it holds those around a text model. */
static void check_object(const char *place, const lathe_plugin *family,
                         const lathe_model_wrapper *wrapper, json_t *object)
{
    lathe_buffer unknown = LATHE_BUFFER_INIT;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        int32_t kind = LATHE_KEY_UNKNOWN;
        if (family != NULL)
            kind = lathe_config_key(family, key);
        if (wrapper != NULL && kind == LATHE_KEY_UNKNOWN)
            kind = lathe_wrapper_config_key(wrapper, key);
        if (!says_nothing(value) && kind == LATHE_KEY_UNKNOWN)
            add(&unknown, key);
    }
    if (unknown.len > 0 && unknown.data != NULL)
        say(place,
            family != NULL    ? family->name
            : wrapper != NULL ? wrapper->model_type
                              : "",
            unknown.data);
    lathe_buffer_fini(&unknown);
}

/* The outer and the inner object of a wrapper; a flat file has the keys of both in one. */
static void check_wrapper(const char *place, const lathe_plugin *family,
                          const lathe_model_wrapper *wrapper, json_t *outer)
{
    lathe_buffer within = LATHE_BUFFER_INIT;
    json_t *inner = json_object_get(outer, wrapper->text_key);
    if (!json_is_object(inner)) {
        check_object(place, family, wrapper, outer);
        return;
    }
    check_object(place, NULL, wrapper, outer);
    lathe_buffer_printf(&within, "%s (%s)", place, wrapper->text_key);
    if (within.status == LATHE_OK)
        check_object(within.data, family, NULL, inner);
    lathe_buffer_fini(&within);
}

/* Says that the folder has Python code of its own for the model, which Lathe does not run. Many
 * such folders are those of families that transformers has taken over since, so it is no refusal.
 */
static void say_own_code(const char *place, const lathe_plugin *family, const json_t *object)
{
    const json_t *map = json_object_get(object, "auto_map"), *value;
    lathe_buffer text = LATHE_BUFFER_INIT;
    const char *key, *code = NULL;
    json_object_foreach((json_t *)(uintptr_t)map, key,
                        value) if (strncmp(key, "AutoModel", 9) == 0 && json_is_string(value))
        code = json_string_value(value);
    if (code == NULL)
        return;
    lathe_buffer_printf(&text,
                        "%s: auto_map names Python code of the folder, %s, which is not run: the "
                        "model is computed as family %s; compare its answers if that code differs",
                        place, code, family != NULL ? family->name : "?");
    if (text.status == LATHE_OK)
        lathe_log_once(LATHE_LOG_WARN, text.data);
    lathe_buffer_fini(&text);
}

lathe_status lathe_config_keys_check(const char *place, const lathe_plugin *family,
                                     const lathe_model_wrapper *wrapper, json_t *object)
{
    lathe_buffer quant = LATHE_BUFFER_INIT;
    json_t *value, *settings = json_object_get(object, "quantization_config");
    lathe_status status = LATHE_OK;
    const char *key;
    json_object_foreach(settings, key, value)
    {
        const int32_t kind = says_nothing(value) ? LATHE_KEY_HARMLESS : lathe_quant_config_key(key);
        if (kind == LATHE_KEY_REFUSED && status == LATHE_OK)
            status = lathe_error(LATHE_E_CONFIG,
                                 "%s: quantization_config.%s changes what the weights mean, and is "
                                 "not supported: expected null",
                                 place, key);
        if (kind == LATHE_KEY_UNKNOWN)
            add(&quant, key);
    }
    say_own_code(place, family, object);
    if (wrapper != NULL)
        check_wrapper(place, family, wrapper, object);
    else
        check_object(place, family, NULL, object);
    if (quant.len > 0 && quant.data != NULL)
        say(place, "quantization_config", quant.data);
    lathe_buffer_fini(&quant);
    return status;
}

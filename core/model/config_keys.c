/* The tables of keys. */
#include "model/config_keys.h"

#include <stdatomic.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
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
                                            "encoder_no_repeat_ngram_size",
                                            "exponential_decay_length_penalty",
                                            "finetuning_task",
                                            "forced_bos_token_id",
                                            "forced_eos_token_id",
                                            "gradient_checkpointing",
                                            "is_decoder",
                                            "is_encoder_decoder",
                                            "is_llama_config",
                                            "length_penalty",
                                            "max_length",
                                            "model_max_length",
                                            "min_length",
                                            "no_repeat_ngram_size",
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

lathe_status lathe_config_keys_check(const char *place, const lathe_plugin *family, json_t *object)
{
    lathe_buffer unknown = LATHE_BUFFER_INIT, quant = LATHE_BUFFER_INIT;
    json_t *value, *settings = json_object_get(object, "quantization_config");
    lathe_status status = LATHE_OK;
    const char *key;
    json_object_foreach(object, key, value)
    {
        if (!says_nothing(value) && lathe_config_key(family, key) == LATHE_KEY_UNKNOWN)
            add(&unknown, key);
    }
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
    if (unknown.len > 0 && unknown.data != NULL)
        say(place, family->name, unknown.data);
    if (quant.len > 0 && quant.data != NULL)
        say(place, "quantization_config", quant.data);
    lathe_buffer_fini(&unknown);
    lathe_buffer_fini(&quant);
    return status;
}

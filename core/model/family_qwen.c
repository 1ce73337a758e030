/* Qwen2 (biases on q, k and v) and Qwen3 (RMSNorm over each head of q and k); the rest is Llama's. */
#include "model/family.h"

static const char *const keys[] = {"hidden_size",
                                   "intermediate_size",
                                   "num_hidden_layers",
                                   "num_attention_heads",
                                   "num_key_value_heads",
                                   "head_dim",
                                   "max_position_embeddings",
                                   "rms_norm_eps",
                                   "rope_theta",
                                   "rope_scaling",
                                   "rope_parameters",
                                   "hidden_act",
                                   "attention_bias",
                                   NULL};

/* Whether any layer has a sliding window: layer_types say so (lathe__llama_read has checked them), or else
 * use_sliding_window with a window, for the layers from max_window_layers on. Only models without one are
 * read. */
static void read_window(lathe_config_reader *r, const lathe_model_config *out)
{
    const json_t *types = json_object_get(r->object, "layer_types");
    const json_t *window = json_object_get(r->object, "sliding_window");
    const int32_t used = lathe__config_bool(r, "use_sliding_window", 0);
    const int64_t first = lathe__config_int(r, "max_window_layers", 28, 0, INT32_MAX);
    if (json_is_array(types) || !used || first >= out->n_layers || json_is_null(window) ||
        (json_is_integer(window) && json_integer_value(window) >= out->max_positions))
        return;
    lathe__config_refuse(
        r, "use_sliding_window",
        "only layers that attend to all keys are supported: sliding_window must be "
        "null, or no shorter than max_position_embeddings, or max_window_layers no "
        "smaller than num_hidden_layers");
}

static void read_qwen2(lathe_config_reader *r, lathe_model_config *out)
{
    lathe__llama_read(r, out);
    read_window(r, out);
    out->qkv_bias = 1;
}

static void read_qwen3(lathe_config_reader *r, lathe_model_config *out)
{
    lathe__llama_read(r, out);
    if (json_object_get(r->object, "head_dim") == NULL)
        out->head_dim = 128; /* transformers' default, whatever the width */
    read_window(r, out);
    out->qkv_bias = out->out_bias = lathe__config_bool(r, "attention_bias", 0);
}

static void write_qwen2(const lathe_model_config *c, json_t *object)
{
    lathe__llama_write(c, object);
    json_object_set_new(object, "use_sliding_window", json_false());
}

static void write_qwen3(const lathe_model_config *c, json_t *object)
{
    write_qwen2(c, object);
    json_object_set_new(object, "attention_bias", json_boolean(c->qkv_bias));
}

static lathe_status params_qwen2(const lathe_model_config *config, lathe_params *params)
{
    return lathe__llama_params(config, 0, params);
}

static lathe_status params_qwen3(const lathe_model_config *config, lathe_params *params)
{
    return lathe__llama_params(config, 1, params);
}

static lathe_status hidden_qwen2(const lathe_model_build *build, lathe_val *out)
{
    return lathe__llama_hidden(build, 0, out);
}

static lathe_status hidden_qwen3(const lathe_model_build *build, lathe_val *out)
{
    return lathe__llama_hidden(build, 1, out);
}

const lathe_family lathe__family_qwen2 = {.model_type = "qwen2",
                                          .architecture = "Qwen2ForCausalLM",
                                          .prefix = "model.",
                                          .embedding = "model.embed_tokens.weight",
                                          .keys = keys,
                                          .read = read_qwen2,
                                          .write = write_qwen2,
                                          .params = params_qwen2,
                                          .hidden = hidden_qwen2};

const lathe_family lathe__family_qwen3 = {.model_type = "qwen3",
                                          .architecture = "Qwen3ForCausalLM",
                                          .prefix = "model.",
                                          .embedding = "model.embed_tokens.weight",
                                          .keys = keys,
                                          .read = read_qwen3,
                                          .write = write_qwen3,
                                          .params = params_qwen3,
                                          .hidden = hidden_qwen3};

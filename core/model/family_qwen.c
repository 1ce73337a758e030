/* Qwen2 (biases on q, k and v) and Qwen3 (RMSNorm over each head of q and k); the rest is Llama's. */
#include <string.h>

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

/* Sliding windows are off by default in both; every layer must see all keys. */
static void read_layers(lathe_config_reader *r)
{
    lathe__config_only_number(r, "use_sliding_window", 0.0);
    const json_t *types = json_object_get(r->object, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type == NULL || strcmp(type, "full_attention") != 0)
            lathe__config_refuse(r, "layer_types", "only full_attention is supported");
    }
}

static void read_qwen2(lathe_config_reader *r, lathe_model_config *out)
{
    lathe__llama_read(r, out);
    read_layers(r);
    out->qkv_bias = 1;
}

static void read_qwen3(lathe_config_reader *r, lathe_model_config *out)
{
    lathe__llama_read(r, out);
    if (json_object_get(r->object, "head_dim") == NULL)
        out->head_dim = 128; /* transformers' default, whatever the width */
    read_layers(r);
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

/* gpt-oss: attention sinks, a sliding window in every other layer, and a mixture of experts with
 * biases and a clamped activation. */
#include <lathe/kit/decoder_family.h>

#define THETA 150000.0

static const lathe_field fields[] = {
    LATHE_MODEL_FIELDS("gpt_oss", "false"),
    LATHE_DECODER_FIELDS_OF("131072", LATHE_KV_HEADS_FIELD("8"), LATHE_NULL_HEAD_DIM_FIELD("64")),
    LATHE_POSITIVE("rms_norm_eps", "1e-5", 1.0, "added to the mean square in RMSNorm"),
    LATHE_POSITIVE("rope_theta", "150000.0", 1e18, "base of the rotary frequencies"),
    LATHE_FIELD_TABLE("rope_scaling", "RoPE scaling: rope_type, factor, ...; unset, here and in "
                                      "rope_parameters: yarn with factor 32"),
    LATHE_FIELD_TABLE("rope_parameters",
                      "the newer form of rope_scaling, which holds rope_theta too"),
    LATHE_FIELD_STRING("hidden_act", "\"silu\"", "silu|swish",
                       "activation inside the clamped SwiGLU of the experts"),
    LATHE_FIELD_BOOL("attention_bias", "true", "biases in the attention projections"),
    LATHE_WINDOW_FIELD("128", "keys that a query sees in a layer with a window, itself included"),
    LATHE_FIELD_STRINGS("layer_types", "sliding_attention or full_attention for each layer; unset: "
                                       "the first, third, .. layer has a window"),
    LATHE_FIELD_INT("num_local_experts", "128", 1, 65536.0, "experts", "experts of a layer"),
    LATHE_FIELD_FLOAT("swiglu_alpha", "1.702", -1e6, 1e6, "1",
                      "factor inside the sigmoid of the experts' activation"),
    LATHE_POSITIVE("swiglu_limit", "7.0", 1e30,
                   "limit of gate (above) and of up (above and below) before the activation"),
    LATHE_EXPERT_FIELDS("4", "0.001"),
};

static const lathe_model_type types[] = {{"gpt_oss", "GptOssForCausalLM"}};
static const lathe_key_alias aliases[] = {{"num_local_experts", "num_experts"}};

static const lathe_layer_names names = {.q = "self_attn.q_proj",
                                        .k = "self_attn.k_proj",
                                        .v = "self_attn.v_proj",
                                        .o = "self_attn.o_proj",
                                        .sinks = "self_attn.sinks",
                                        .attention_norm = "input_layernorm",
                                        .mlp_norm = "post_attention_layernorm"};

/* Positions of a model whose config.json says nothing of them. */
static const char settings[] = "{\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32.0, "
                               "\"beta_slow\": 1.0, \"truncate\": false, "
                               "\"original_max_position_embeddings\": 4096}";

static void set_experts(lathe_decoder *d, const lathe_keys *k)
{
    d->experts.router = "mlp.router";
    d->experts.gate_up = "mlp.experts.gate_up_proj";
    d->experts.layout = LATHE_LAYOUT_FUSED_EXPERTS;
    d->experts.down = "mlp.experts.down_proj";
    d->experts.ffn = d->info.ffn;
    d->experts.softmax_chosen = 1;
    d->experts.bias = 1;
    d->experts.alpha = lathe_key_float(k, "swiglu_alpha");
    d->experts.limit = lathe_key_float(k, "swiglu_limit");
}

static lathe_status read(lathe_decoder *d, const lathe_keys *k)
{
    LATHE_TRY(lathe_decoder_shape(d, 0));
    LATHE_TRY(lathe_layer_types_check(k, d->info.n_layers, "sliding_attention|full_attention",
                                      "expected sliding_attention or full_attention"));
    lathe_decoder_rope(d, THETA);
    d->ropes[0].settings = settings;
    LATHE_TRY(lathe_decoder_use_experts(d, "num_local_experts"));
    set_experts(d, k);
    for (int32_t i = 0; i < d->info.n_layers; i++) {
        lathe_decoder_layer *l = &d->layers[i];
        const int slides = lathe_layer_is(k, i, "sliding_attention", i % 2 == 0);
        d->shapes[i].window = slides ? (int32_t)lathe_key_int(k, "sliding_window") : 0;
        l->names = &names;
        l->qkv_bias = l->out_bias = (int32_t)lathe_key_int(k, "attention_bias");
    }
    return LATHE_OK;
}

LATHE_DECODER_FAMILY(gpt_oss, types, aliases, 1, read, .version = "1.0.0",
                     .summary = "gpt-oss: attention sinks and a mixture of experts with biases",
                     .source = "arXiv:2508.10925; transformers", .license = "Apache-2.0");

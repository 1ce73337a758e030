/* The model families that can be converted. */
#include "files/gguf/gguf_family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define LLAMA_BIASES                                                                               \
    .bias_key = "attention_bias", .mlp_bias_key = "mlp_bias", .out_bias = 1, .mlp_bias = 1
#define ATTENTION_BIAS .bias_key = "attention_bias"

#define OLDER                                                                                      \
    .prefix = "transformer.", .uses_gelu = 1, .layer_norms = 1, .no_head_dim = 1,                  \
    .norm_eps_key = "layer_norm_epsilon"
#define ALIBI OLDER, .no_rope = 1, .ffn_key = "", .kv_key = "", .act_key = ""
#define FALCON                                                                                     \
    OLDER, .architecture = "FalconForCausalLM", .layers = "h.", .qkv_by_head = 1,                  \
           .ffn_key = "ffn_hidden_size", .kv_key = "", .act_key = "activation"

static const lathe_gguf_experts mixtral = {.count_key = "num_local_experts", .norm = 1};
static const lathe_gguf_experts olmoe = {.count_key = "num_experts", .norm_key = "norm_topk_prob"};
static const lathe_gguf_experts qwen2 = {.count_key = "num_experts",
                                         .ffn_key = "moe_intermediate_size",
                                         .shared_key = "shared_expert_intermediate_size",
                                         .norm_key = "norm_topk_prob"};
static const lathe_gguf_experts qwen3 = {.count_key = "num_experts",
                                         .ffn_key = "moe_intermediate_size",
                                         .norm_key = "norm_topk_prob",
                                         .norm = 1};
static const lathe_gguf_experts glm4 = {.count_key = "n_routed_experts",
                                        .ffn_key = "moe_intermediate_size",
                                        .norm_key = "norm_topk_prob",
                                        .grouped = 1};

/* The first of an architecture is the one that a file means without a key for windows. */
static const lathe_gguf_family families[] = {
    {.arch = "llama",
     .model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .permutes = 1,
     LLAMA_BIASES},
    {.arch = "qwen2", .model_type = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.arch = "qwen3", .model_type = "qwen3", .architecture = "Qwen3ForCausalLM", ATTENTION_BIAS},
    {.arch = "gemma",
     .model_type = "gemma",
     .architecture = "GemmaForCausalLM",
     .adds_one = 1,
     .uses_gelu = 1,
     .no_head = 1,
     ATTENTION_BIAS},
    {.arch = "gemma2",
     .model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .adds_one = 1,
     .post_norms = 1,
     .window_period = 2,
     .large_n_layers = 46,
     .is_capped = 1,
     .uses_gelu = 1,
     .no_head = 1},
    {.arch = "gemma3",
     .model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .adds_one = 1,
     .post_norms = 1,
     .window_period = 6,
     .large_n_layers = 62,
     .is_capped = 1,
     .uses_gelu = 1},
    {.arch = "phi3",
     .model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .fused_mlp = 1,
     .partial_rope = 1,
     .no_head_dim = 1},
    {.arch = "olmo2",
     .model_type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .post_norms = 1,
     .no_head_dim = 1,
     .needs_head = 1,
     ATTENTION_BIAS},
    {.arch = "olmo2",
     .model_type = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .post_norms = 1,
     .no_head_dim = 1,
     .window_period = 4,
     .needs_head = 1,
     ATTENTION_BIAS},
    {.arch = "smollm3",
     .model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .permutes = 1,
     .rope_period = 4,
     ATTENTION_BIAS},
    {.arch = "granite",
     .model_type = "granite",
     .architecture = "GraniteForCausalLM",
     .permutes = 1,
     LLAMA_BIASES},
    {.arch = "command-r",
     .model_type = "cohere",
     .architecture = "CohereForCausalLM",
     .layer_norms = 1,
     .no_head = 1,
     ATTENTION_BIAS},
    {.arch = "cohere2",
     .model_type = "cohere2",
     .architecture = "Cohere2ForCausalLM",
     .layer_norms = 1,
     .no_head = 1,
     .window_period = 4,
     ATTENTION_BIAS},
    {.arch = "chatglm",
     .model_type = "glm",
     .architecture = "GlmForCausalLM",
     .fused_mlp = 1,
     .partial_rope = 1,
     ATTENTION_BIAS},
    {.arch = "glm4",
     .model_type = "glm4",
     .architecture = "Glm4ForCausalLM",
     .fused_mlp = 1,
     .partial_rope = 1,
     ATTENTION_BIAS},
    {.arch = "seed_oss",
     .model_type = "seed_oss",
     .architecture = "SeedOssForCausalLM",
     .post_norms = 1,
     .out_bias_key = "attention_out_bias",
     ATTENTION_BIAS},
    {.arch = "hunyuan-dense",
     .model_type = "hunyuan_v1_dense",
     .architecture = "HunYuanDenseV1ForCausalLM",
     ATTENTION_BIAS},
    {.arch = "starcoder2",
     .model_type = "starcoder2",
     .architecture = "Starcoder2ForCausalLM",
     .uses_gelu = 1,
     .layer_norms = 1,
     .norm_eps_key = "norm_epsilon",
     .needs_bias = 1,
     .whole_width = 1,
     .out_bias = 1,
     .mlp_bias = 1,
     .bias_key = "use_bias"},
    {.arch = "stablelm",
     .model_type = "stablelm",
     .architecture = "StableLmForCausalLM",
     .layer_norms = 1,
     .partial_rope = 1,
     .no_head_dim = 1,
     .needs_head = 1,
     .bias_key = "use_qkv_bias"},
    {.arch = "phi2",
     .model_type = "phi",
     .architecture = "PhiForCausalLM",
     .uses_gelu = 1,
     .layer_norms = 1,
     .partial_rope = 1,
     .no_head_dim = 1,
     .needs_head = 1,
     .whole_width = 1,
     .out_bias = 1,
     .mlp_bias = 1},
    {.arch = "exaone4",
     .model_type = "exaone4",
     .architecture = "Exaone4ForCausalLM",
     .post_norms = 1,
     .whole_width = 1,
     .reads_factors = 1,
     .window_period = 4,
     .windowed_layers = 64},
    {.arch = "falcon", .model_type = "falcon", FALCON},
    {.arch = "falcon", .model_type = "falcon", .two_norms = 1, FALCON},
    {.arch = "mpt",
     .model_type = "mpt",
     .architecture = "MptForCausalLM",
     .layers = "blocks.",
     .positions_key = "max_seq_len",
     ALIBI},
    {.arch = "bloom",
     .model_type = "bloom",
     .architecture = "BloomForCausalLM",
     .layers = "h.",
     .positions_key = "seq_length",
     .qkv_by_head = 1,
     .out_bias = 1,
     .mlp_bias = 1,
     ALIBI},
    {.arch = "apertus",
     .model_type = "apertus",
     .architecture = "ApertusForCausalLM",
     .uses_xielu = 1,
     .needs_head = 1,
     .reads_factors = 1,
     .out_bias = 1,
     ATTENTION_BIAS},
    {.arch = "ernie4_5",
     .model_type = "ernie4_5",
     .architecture = "Ernie4_5ForCausalLM",
     .out_bias = 1,
     .bias_key = "use_bias"},
    {.arch = "llama",
     .model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .permutes = 1,
     .experts = &mixtral},
    {.arch = "qwen2moe",
     .model_type = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .no_head_dim = 1,
     .needs_head = 1,
     .whole_width = 1,
     .bias_key = "qkv_bias",
     .experts = &qwen2},
    {.arch = "qwen3moe",
     .model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .experts = &qwen3,
     ATTENTION_BIAS},
    {.arch = "olmoe",
     .model_type = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .no_head_dim = 1,
     .needs_head = 1,
     .whole_width = 1,
     .experts = &olmoe,
     ATTENTION_BIAS},
    {.arch = "glm4moe",
     .model_type = "glm4_moe",
     .architecture = "Glm4MoeForCausalLM",
     .post_norms = 1,
     .partial_rope = 1,
     .experts = &glm4,
     ATTENTION_BIAS},
};

enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* Names of modules: in config->prefix of the folder, and in GGUF. arch: of this architecture alone,
 * before the names that the others have. */
static const struct {
    const char *folder, *gguf, *arch;
} modules[] = {
    {"post_self_attn_layernorm", "post_attention_norm", "glm4"},
    {"post_mlp_layernorm", "post_ffw_norm", "glm4"},
    {"self_attn.query_layernorm", "attn_q_norm", "hunyuan-dense"},
    {"self_attn.key_layernorm", "attn_k_norm", "hunyuan-dense"},
    {"mlp.c_fc", "ffn_up", "starcoder2"},
    {"mlp.c_proj", "ffn_down", "starcoder2"},
    {"self_attn.q_layernorm.norms", "attn_q_norm", "stablelm"},
    {"self_attn.k_layernorm.norms", "attn_k_norm", "stablelm"},
    {"self_attn.dense", "attn_output", "phi2"},
    {"mlp.fc1", "ffn_up", "phi2"},
    {"mlp.fc2", "ffn_down", "phi2"},
    {"final_layernorm", "output_norm", "phi2"},
    {"attention_layernorm", "attn_norm", "apertus"},
    {"feedforward_layernorm", "ffn_norm", "apertus"},
    {"word_embeddings", "token_embd", "falcon"},
    {"ln_f", "output_norm", "falcon"},
    {"ln_attn", "attn_norm_2", "falcon"},
    {"ln_mlp", "attn_norm",
     "falcon"}, /* as input_layernorm, of which a file has one or the other */
    {"self_attention.query_key_value", "attn_qkv", "falcon"},
    {"self_attention.dense", "attn_output", "falcon"},
    {"mlp.dense_h_to_4h", "ffn_up", "falcon"},
    {"mlp.dense_4h_to_h", "ffn_down", "falcon"},
    {"wte", "token_embd", "mpt"},
    {"norm_f", "output_norm", "mpt"},
    {"norm_1", "attn_norm", "mpt"},
    {"norm_2", "ffn_norm", "mpt"},
    {"attn.Wqkv", "attn_qkv", "mpt"},
    {"attn.out_proj", "attn_output", "mpt"},
    {"ffn.up_proj", "ffn_up", "mpt"},
    {"ffn.down_proj", "ffn_down", "mpt"},
    {"word_embeddings", "token_embd", "bloom"},
    {"word_embeddings_layernorm", "token_embd_norm", "bloom"},
    {"ln_f", "output_norm", "bloom"},
    {"self_attention.query_key_value", "attn_qkv", "bloom"},
    {"self_attention.dense", "attn_output", "bloom"},
    {"mlp.dense_h_to_4h", "ffn_up", "bloom"},
    {"mlp.dense_4h_to_h", "ffn_down", "bloom"},
    {"block_sparse_moe.gate", "ffn_gate_inp", "llama"},
    {"block_sparse_moe.experts.w1", "ffn_gate_exps", "llama"},
    {"block_sparse_moe.experts.w3", "ffn_up_exps", "llama"},
    {"block_sparse_moe.experts.w2", "ffn_down_exps", "llama"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp", "qwen2moe"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp", "qwen2moe"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp", "qwen2moe"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp", "qwen2moe"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp", "glm4moe"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp", "glm4moe"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp", "glm4moe"},
    {"mlp.gate", "ffn_gate_inp", NULL},
    {"mlp.experts.gate_proj", "ffn_gate_exps", NULL},
    {"mlp.experts.up_proj", "ffn_up_exps", NULL},
    {"mlp.experts.down_proj", "ffn_down_exps", NULL},
    {"embed_tokens", "token_embd", NULL},
    {"norm", "output_norm", NULL},
    {"input_layernorm", "attn_norm", NULL},
    {"self_attn.q_proj", "attn_q", NULL},
    {"self_attn.k_proj", "attn_k", NULL},
    {"self_attn.v_proj", "attn_v", NULL},
    {"self_attn.qkv_proj", "attn_qkv", NULL},
    {"self_attn.o_proj", "attn_output", NULL},
    {"self_attn.q_norm", "attn_q_norm", NULL},
    {"self_attn.k_norm", "attn_k_norm", NULL},
    {"pre_feedforward_layernorm", "ffn_norm", NULL},
    {"post_feedforward_layernorm", "post_ffw_norm", NULL},
    {"mlp.gate_proj", "ffn_gate", NULL},
    {"mlp.up_proj", "ffn_up", NULL},
    {"mlp.gate_up_proj", "ffn_up", NULL},
    {"mlp.down_proj", "ffn_down", NULL},
};

const lathe_gguf_family *lathe_gguf_family_of_arch(const char *arch, int64_t bytes)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if ((int64_t)strlen(families[i].arch) == bytes &&
            memcmp(families[i].arch, arch, (size_t)bytes) == 0)
            return &families[i];
    return NULL;
}

const lathe_gguf_family *lathe_gguf_family_of_type(const char *model_type)
{
    /* llama.cpp has no architectures of their own for these */
    if (strcmp(model_type, "mistral") == 0 || strcmp(model_type, "internlm3") == 0)
        return &families[0];
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return NULL;
}

const lathe_gguf_family *lathe_gguf_family_windowed(const lathe_gguf_family *family)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (family != &families[i] && family->window_period == 0 && families[i].window_period > 0 &&
            strcmp(family->arch, families[i].arch) == 0)
            return &families[i];
    return NULL;
}

const lathe_gguf_family *lathe_gguf_family_with_two_norms(const lathe_gguf_family *family)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (families[i].two_norms && strcmp(family->arch, families[i].arch) == 0)
            return &families[i];
    return NULL;
}

const lathe_gguf_family *lathe_gguf_family_with_experts(const lathe_gguf_family *family)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (families[i].experts != NULL && strcmp(family->arch, families[i].arch) == 0)
            return &families[i];
    return NULL;
}

int32_t lathe_gguf_is_flat(const char *name)
{
    return strstr(name, ".ffn_gate_inp_shexp.") != NULL;
}

const char *lathe_gguf_xielu(int32_t n, int32_t *out_rank)
{
    static const char *const names[LATHE_GGUF_N_XIELU] = {"alpha_p", "alpha_n", "beta", "eps"};
    *out_rank = n < 2; /* those that train are vectors */
    return names[n];
}

const char *lathe_gguf_families(void)
{
    return "llama, qwen2, qwen3, gemma, gemma2, gemma3, phi3, olmo2, smollm3, granite, command-r, "
           "cohere2, chatglm, glm4, seed_oss, hunyuan-dense, starcoder2, stablelm, phi2, exaone4, "
           "falcon, mpt, bloom, apertus, ernie4_5, qwen2moe, qwen3moe, olmoe and glm4moe";
}

static const char *prefix_of(const lathe_gguf_family *family)
{
    return family->prefix != NULL ? family->prefix : "model.";
}

static const char *layers_of(const lathe_gguf_family *family)
{
    return family->layers != NULL ? family->layers : "layers.";
}

/* All families name the head so. */
#define HEAD "lm_head.weight"
#define HEAD_BIAS "lm_head.bias"
#define CORRECTION "mlp.gate.e_score_correction_bias"

static const char post_attention[] = "post_attention_layernorm";

static int is(const char *text, const char *part, size_t n)
{
    return strlen(text) == n && memcmp(text, part, n) == 0;
}

/* arch: of a row of modules */
static int is_of(const lathe_gguf_family *family, const char *arch)
{
    return arch == NULL || strcmp(arch, family->arch) == 0;
}

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whether a model of the family may have a module of GGUF: dense ones have none of experts. */
static int may_have(const lathe_gguf_family *family, const char *gguf)
{
    return family->experts != NULL || !(strncmp(gguf, "ffn_gate_inp", 12) == 0 ||
                                        ends_with(gguf, "_exps") || ends_with(gguf, "_shexp"));
}

static const char *module_name(const lathe_gguf_family *family, const char *module, size_t n)
{
    if (is(post_attention, module, n))
        return family->post_norms ? "post_attention_norm" : "ffn_norm";
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (is_of(family, modules[i].arch) && is(modules[i].folder, module, n))
            return may_have(family, modules[i].gguf) ? modules[i].gguf : NULL;
    return NULL;
}

/* The module of the folder for one of GGUF. */
static const char *folder_module(const lathe_gguf_family *family, const char *module, size_t n)
{
    char gguf[64];
    (void)snprintf(gguf, sizeof gguf, "%.*s", (int)n, module);
    if (!may_have(family, gguf))
        return NULL;
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (modules[i].arch != NULL && is_of(family, modules[i].arch) &&
            is(modules[i].gguf, module, n) &&
            (family->two_norms || strncmp(modules[i].folder, "ln_m", 4) != 0))
            return modules[i].folder;
    if (is(family->post_norms ? "post_attention_norm" : "ffn_norm", module, n))
        return post_attention;
    if (is("ffn_up", module, n))
        return family->fused_mlp ? "mlp.gate_up_proj" : "mlp.up_proj";
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (modules[i].arch == NULL && is(modules[i].gguf, module, n))
            return modules[i].folder;
    return NULL;
}

/* Reads "NUMBER." at *at, which follows "layers." or "blk."; -1: it is none. */
static long take_layer(const char **at)
{
    char *end;
    const long layer = (*at)[0] >= '0' && (*at)[0] <= '9' ? strtol(*at, &end, 10) : -1;
    if (layer < 0 || *end != '.')
        return -1;
    *at = end + 1;
    return layer;
}

/* Why llama.cpp, which refuses a file with tensors that it does not know, reads no file with this
 * one; NULL: it reads it. */
static const char *refusal(const lathe_gguf_family *family, const char *module, const char *suffix)
{
    if (strcmp(suffix, ".bias") != 0)
        return NULL;
    const int is_norm = strcmp(module, "ffn_norm") == 0;
    const int is_out = strcmp(module, "attn_output") == 0;
    const int is_mlp = strncmp(module, "ffn_", 4) == 0 && !is_norm;
    return (is_out && !family->out_bias) || (is_mlp && !family->mlp_bias)
               ? "llama.cpp has no bias there"
               : NULL;
}

lathe_status lathe_gguf_name(const lathe_gguf_family *family, const char *name, lathe_arena *arena,
                             const char **out)
{
    const char *prefix = prefix_of(family), *layers = layers_of(family);
    const size_t n_prefix = strlen(prefix), n_layers = strlen(layers);
    const char *at = strncmp(name, prefix, n_prefix) == 0 ? name + n_prefix : name;
    const char *suffix = strrchr(at, '.'), *module = NULL;
    long layer = -1;
    *out = NULL;
    if (strcmp(name, HEAD) == 0 && family->no_head)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: llama.cpp takes the embedding of a %s model for its head; only "
                           "models with tie_word_embeddings are converted",
                           name, family->arch);
    if (strcmp(name, HEAD) == 0) {
        *out = "output.weight";
        return LATHE_OK;
    }
    if (strcmp(name, HEAD_BIAS) == 0) {
        *out = "output.bias";
        return LATHE_OK;
    }
    if (strncmp(at, layers, n_layers) == 0) {
        at += n_layers;
        layer = take_layer(&at);
    }
    if (layer >= 0 && family->experts != NULL && strcmp(at, CORRECTION) == 0) {
        *out = lathe_arena_printf(arena, "blk.%ld.exp_probs_b.bias", layer);
        return *out != NULL ? LATHE_OK : LATHE_E_NOMEM;
    }
    if (suffix != NULL && suffix > at)
        module = module_name(family, at, (size_t)(suffix - at));
    if (module == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED, "GGUF has no name for the tensor %s of a %s model",
                           name, family->arch);
    const char *why = refusal(family, module, suffix);
    if (why != NULL)
        return lathe_error(LATHE_E_UNSUPPORTED, "the tensor %s of a %s model: %s", name,
                           family->arch, why);
    *out = layer >= 0 ? lathe_arena_printf(arena, "blk.%ld.%s%s", layer, module, suffix)
                      : lathe_arena_printf(arena, "%s%s", module, suffix);
    return *out != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe_gguf_folder_name(const lathe_gguf_family *family, const char *name,
                                    lathe_arena *arena, const char **out)
{
    const char *at = name, *module = NULL;
    const int in_layer = strncmp(name, "blk.", 4) == 0;
    long layer = -1;
    *out = NULL;
    if (strcmp(name, "output.weight") == 0) {
        *out = HEAD;
        return LATHE_OK;
    }
    if (strcmp(name, "output.bias") == 0) {
        *out = HEAD_BIAS;
        return LATHE_OK;
    }
    if (in_layer) {
        at += 4;
        layer = take_layer(&at);
    }
    const char *suffix = strrchr(at, '.');
    if (layer >= 0 && family->experts != NULL && strcmp(at, "exp_probs_b.bias") == 0) {
        *out = lathe_arena_printf(arena, "%s%s%ld." CORRECTION, prefix_of(family),
                                  layers_of(family), layer);
        return *out != NULL ? LATHE_OK : LATHE_E_NOMEM;
    }
    if (in_layer == (layer >= 0) && suffix != NULL)
        module = folder_module(family, at, (size_t)(suffix - at));
    const int is_outer = strncmp(name, "token_embd", 10) == 0 || strncmp(name, "output_", 7) == 0 ||
                         strncmp(at, "token_embd", 10) == 0 || strncmp(at, "output_", 7) == 0;
    if (module == NULL || in_layer == is_outer)
        return LATHE_OK;
    *out = in_layer ? lathe_arena_printf(arena, "%s%s%ld.%s%s", prefix_of(family),
                                         layers_of(family), layer, module, suffix)
                    : lathe_arena_printf(arena, "%s%s%s", prefix_of(family), module, suffix);
    return *out != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

int32_t lathe_gguf_change(const lathe_gguf_family *family, const char *name)
{
    if (family->permutes && (strstr(name, ".q_proj.") != NULL || strstr(name, ".k_proj.") != NULL))
        return LATHE_GGUF_ROTATED;
    if (family->qkv_by_head && strstr(name, ".query_key_value.") != NULL)
        return LATHE_GGUF_BY_HEAD;
    return family->adds_one && ends_with(name, "norm.weight") ? LATHE_GGUF_PLUS_ONE
                                                              : LATHE_GGUF_SAME;
}

/* For a layer whose q or k has this many rows: llama.cpp turns channel 2j with 2j+1, transformers
 * channel j with j + head_dim/2. */
static int64_t rotated_row(int64_t row, int64_t head_dim)
{
    const int64_t in_head = row % head_dim;
    return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
}

static int64_t by_head_row(int64_t row, int64_t heads, int64_t kv_heads, int64_t head_dim)
{
    const int64_t head = row / head_dim, group = heads / kv_heads, other = head - heads;
    const int64_t kv = other < 0 ? head / group : other % kv_heads;
    const int64_t place = other < 0 ? head % group : group + other / kv_heads;
    return (kv * (group + 2) + place) * head_dim + row % head_dim;
}

int64_t lathe_gguf_folder_row(int32_t change, int64_t row, int64_t heads, int64_t kv_heads,
                              int64_t head_dim)
{
    if (change == LATHE_GGUF_BY_HEAD)
        return by_head_row(row, heads, kv_heads, head_dim);
    return change == LATHE_GGUF_ROTATED ? rotated_row(row, head_dim) : row;
}

int64_t lathe_gguf_by_head_stored(int64_t row, int64_t heads, int64_t kv_heads, int64_t head_dim)
{
    const int64_t group = heads / kv_heads, in_row = row / head_dim;
    const int64_t kv = in_row / (group + 2), place = in_row % (group + 2);
    const int64_t head =
        place < group ? kv * group + place : heads + (place - group) * kv_heads + kv;
    return head * head_dim + row % head_dim;
}

/* ---- the types of tensors ---- */

/* The layers whose most sensitive tensors get more bits in Q4_K_M. */
static int gets_more_bits(int32_t layer, int32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static int32_t quantized_type(int32_t wanted, const char *name, int64_t cols, int32_t n_layers,
                              int32_t tied)
{
    const int is_output =
        strcmp(name, "output.weight") == 0 || (tied && strcmp(name, "token_embd.weight") == 0);
    if (is_output && cols % lathe_gguf_type_of(wanted)->block != 0)
        return LATHE_GGUF_Q8_0;
    if (is_output)
        return wanted == LATHE_GGUF_Q8_0 ? wanted : LATHE_GGUF_Q6_K;
    const int is_sensitive =
        strstr(name, "attn_v.weight") != NULL || strstr(name, "attn_qkv.weight") != NULL ||
        strstr(name, "ffn_down.weight") != NULL || strstr(name, "ffn_down_exps.weight") != NULL ||
        strstr(name, "ffn_down_shexp.weight") != NULL;
    const int32_t layer = strncmp(name, "blk.", 4) == 0 ? (int32_t)strtol(name + 4, NULL, 10) : 0;
    if (wanted == LATHE_GGUF_Q4_K && is_sensitive && gets_more_bits(layer, n_layers))
        return LATHE_GGUF_Q6_K;
    return wanted;
}

/* A type whose block divides the rows. */
static int32_t fitting_type(int32_t type, int64_t cols)
{
    if (cols % lathe_gguf_type_of(type)->block == 0)
        return type;
    if (type == LATHE_GGUF_Q4_K || type == LATHE_GGUF_Q6_K)
        type = type == LATHE_GGUF_Q4_K ? LATHE_GGUF_Q5_0 : LATHE_GGUF_Q8_0;
    return cols % lathe_gguf_type_of(type)->block == 0 ? type : LATHE_GGUF_F16;
}

const lathe_gguf_type *lathe_gguf_mix(int32_t wanted, const char *name, int32_t rank, int64_t cols,
                                      int32_t n_layers, int32_t tied)
{
    /* routers, too, are F32 in every file */
    if (rank < 2 || !ends_with(name, ".weight") || ends_with(name, "_norm.weight") ||
        strstr(name, ".ffn_gate_inp") != NULL)
        return lathe_gguf_type_of(LATHE_GGUF_F32);
    if (lathe_gguf_type_of(wanted)->block == 1)
        return lathe_gguf_type_of(wanted);
    return lathe_gguf_type_of(
        fitting_type(quantized_type(wanted, name, cols, n_layers, tied), cols));
}

/* The model families that can be converted. */
#include "gguf/gguf_family.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const lathe_gguf_family families[] = {
    {.arch = "llama", .model_type = "llama", .architecture = "LlamaForCausalLM", .permutes = 1},
    {.arch = "qwen2", .model_type = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.arch = "qwen3", .model_type = "qwen3", .architecture = "Qwen3ForCausalLM"},
    {.arch = "gemma2",
     .model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .adds_one = 1,
     .post_norms = 1,
     .window_period = 2,
     .large_n_layers = 46},
    {.arch = "gemma3",
     .model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .adds_one = 1,
     .post_norms = 1,
     .window_period = 6,
     .large_n_layers = 62},
    {.arch = "phi3", .model_type = "phi3", .architecture = "Phi3ForCausalLM"},
    {.arch = "olmo2", .model_type = "olmo2", .architecture = "Olmo2ForCausalLM", .post_norms = 1},
};

/* Names of modules: in config->prefix of the folder, and in GGUF. */
static const struct {
    const char *folder, *gguf;
} modules[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

const lathe_gguf_family *lathe_gguf_family_of_arch(const char *arch, int64_t bytes)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if ((int64_t)strlen(families[i].arch) == bytes &&
            memcmp(families[i].arch, arch, (size_t)bytes) == 0)
            return &families[i];
    return NULL;
}

const lathe_gguf_family *lathe_gguf_family_of_type(const char *model_type)
{
    if (strcmp(model_type, "mistral") == 0)
        return &families[0];
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return NULL;
}

const char *lathe_gguf_families(void)
{
    return "llama, qwen2, qwen3, gemma2, gemma3, phi3 and olmo2";
}

/* All families name the modules of the decoder and the head so. */
#define PREFIX "model."
#define HEAD "lm_head.weight"

static const char post_attention[] = "post_attention_layernorm";

static int is(const char *text, const char *part, size_t n)
{
    return strlen(text) == n && memcmp(text, part, n) == 0;
}

static const char *module_name(const lathe_gguf_family *family, const char *module, size_t n)
{
    if (is(post_attention, module, n))
        return family->post_norms ? "post_attention_norm" : "ffn_norm";
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (is(modules[i].folder, module, n))
            return modules[i].gguf;
    return NULL;
}

/* The module of the folder for one of GGUF. */
static const char *folder_module(const lathe_gguf_family *family, const char *module, size_t n)
{
    const int fused = strcmp(family->arch, "phi3") == 0;
    if (is(family->post_norms ? "post_attention_norm" : "ffn_norm", module, n))
        return post_attention;
    if (is("ffn_up", module, n))
        return fused ? "mlp.gate_up_proj" : "mlp.up_proj";
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (is(modules[i].gguf, module, n))
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

lathe_status lathe_gguf_name(const lathe_gguf_family *family, const char *name, lathe_arena *arena,
                             const char **out)
{
    const size_t n_prefix = sizeof PREFIX - 1;
    const char *at = strncmp(name, PREFIX, n_prefix) == 0 ? name + n_prefix : name;
    const char *suffix = strrchr(at, '.'), *module = NULL;
    long layer = -1;
    *out = NULL;
    if (strcmp(name, HEAD) == 0) {
        *out = "output.weight";
        return LATHE_OK;
    }
    if (strncmp(at, "layers.", 7) == 0) {
        at += 7;
        layer = take_layer(&at);
    }
    if (suffix != NULL && suffix > at)
        module = module_name(family, at, (size_t)(suffix - at));
    if (module == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED, "GGUF has no name for the tensor %s of a %s model",
                           name, family->arch);
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
    if (in_layer) {
        at += 4;
        layer = take_layer(&at);
    }
    const char *suffix = strrchr(at, '.');
    if (in_layer == (layer >= 0) && suffix != NULL)
        module = folder_module(family, at, (size_t)(suffix - at));
    if (module == NULL ||
        in_layer == (strncmp(module, "embed", 5) == 0 || strcmp(module, "norm") == 0))
        return LATHE_OK;
    *out = in_layer ? lathe_arena_printf(arena, PREFIX "layers.%ld.%s%s", layer, module, suffix)
                    : lathe_arena_printf(arena, PREFIX "%s%s", module, suffix);
    return *out != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

int32_t lathe_gguf_change(const lathe_gguf_family *family, const char *name)
{
    if (family->permutes && (strstr(name, ".q_proj.") != NULL || strstr(name, ".k_proj.") != NULL))
        return LATHE_GGUF_ROTATED;
    return family->adds_one && ends_with(name, "norm.weight") ? LATHE_GGUF_PLUS_ONE
                                                              : LATHE_GGUF_SAME;
}

int64_t lathe_gguf_rotated_row(int64_t row, int64_t head_dim)
{
    const int64_t in_head = row % head_dim;
    return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
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
    const int is_sensitive = strstr(name, "attn_v.weight") != NULL ||
                             strstr(name, "attn_qkv.weight") != NULL ||
                             strstr(name, "ffn_down.weight") != NULL;
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
    if (rank < 2 || !ends_with(name, ".weight") || ends_with(name, "_norm.weight"))
        return lathe_gguf_type_of(LATHE_GGUF_F32);
    if (lathe_gguf_type_of(wanted)->block == 1)
        return lathe_gguf_type_of(wanted);
    return lathe_gguf_type_of(
        fitting_type(quantized_type(wanted, name, cols, n_layers, tied), cols));
}

/* Configurations: reads both generations of keys, refuses unsupported ones, and writes them. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/error.h"
#include "family_source.h"
#include "model/family/model_build.h"

#define MODELS LATHE_TEST_DATA "/golden/data/models/"
#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":64,\"intermediate_size\":96,"     \
    "\"num_hidden_layers\":3,\"num_attention_heads\":8"

static lathe_status parse(const char *text, int32_t strict, lathe_model_config *out)
{
    return lathe_model_config_parse(family_source(), "config.json", text, (int64_t)strlen(text),
                                    strict, out);
}

/* A number of the family's schema. */
static double value(const lathe_model_config *c, const char *key)
{
    const lathe_plugin *plugin = c->family.component->plugin;
    for (int32_t i = 0; i < plugin->n_fields; i++)
        if (strcmp(plugin->fields[i].key, key) == 0)
            return c->values[i].f;
    cr_assert_fail("no key %s", key);
    return 0.0;
}

static int has_bias(const lathe_model_config *c, const char *projection)
{
    char name[100];
    lathe_params params;
    lathe_params_init(&params, LATHE_F32);
    cr_assert_eq(lathe_model_params(c, &params), LATHE_OK, "%s", lathe_error_message());
    snprintf(name, sizeof name, "model.layers.0.self_attn.%s.bias", projection);
    const int found = lathe_params_find(&params, name) >= 0;
    lathe_params_fini(&params);
    return found;
}

Test(hf_config, reads_the_older_keys)
{
    lathe_model_config c;
    cr_assert_eq(lathe_model_config_load(family_source(), MODELS "llama_tied", &c), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert_str_eq(c.model_type, "llama");
    cr_assert(c.vocab == 128 && c.width == 32 && c.ffn == 80 && c.n_layers == 2 && c.n_heads == 4);
    cr_assert(c.n_kv_heads == 2 && c.head_dim == 8 && c.max_positions == 64 && c.tied == 1);
    cr_assert(c.ropes[0].type == LATHE_ROPE_DEFAULT && c.ropes[0].theta == 10000.0 &&
              value(&c, "rms_norm_eps") == 1e-5);
    cr_assert(c.bos == 1 && c.pad == -1 && c.n_eos == 1 && c.eos[0] == 2 &&
              c.file_dtype == LATHE_F32);
    lathe_model_config_fini(&c);
}

Test(hf_config, reads_the_newer_keys)
{
    lathe_model_config c;
    cr_assert_eq(lathe_model_config_load(family_source(), MODELS "llama_untied", &c), LATHE_OK,
                 "%s", lathe_error_message());
    cr_assert(c.ropes[0].type == LATHE_ROPE_LLAMA3 && c.ropes[0].factor == 8.0 &&
              c.ropes[0].low_freq_factor == 1.0);
    cr_assert(c.ropes[0].high_freq_factor == 4.0 && c.ropes[0].original_max_positions == 16 &&
              c.tied == 0);
    cr_assert(c.n_eos == 2 && c.eos[0] == 2 && c.eos[1] == 5);
    lathe_model_config_fini(&c);
    cr_assert_eq(lathe_model_config_load(family_source(), MODELS "qwen3", &c), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert(c.head_dim == 16 && c.ropes[0].theta == 1e6 && c.file_dtype == LATHE_BF16 &&
              !has_bias(&c, "q_proj"));
    lathe_model_config_fini(&c);
    cr_assert_eq(lathe_model_config_load(family_source(), MODELS "qwen2", &c), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert(c.ropes[0].type == LATHE_ROPE_LINEAR && c.ropes[0].factor == 2.0 &&
              has_bias(&c, "q_proj") && !has_bias(&c, "o_proj"));
    lathe_model_config_fini(&c);
    cr_assert_eq(lathe_model_config_load(family_source(), MODELS "gpt2", &c), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert(c.ffn == 128 && c.ropes[0].type == LATHE_ROPE_NONE && c.tied == 1 &&
              c.max_positions == 64);
    lathe_model_config_fini(&c);
}

Test(hf_config, fills_in_what_is_null_or_missing)
{
    lathe_model_config c;
    cr_assert_eq(parse("{" LLAMA
                       ",\"num_key_value_heads\":null,\"head_dim\":null,\"rope_scaling\":null,"
                       "\"eos_token_id\":null}",
                       0, &c),
                 LATHE_OK, "%s", lathe_error_message());
    cr_assert(c.n_kv_heads == 8 && c.head_dim == 8 && c.n_eos == 0 && c.bos == -1 &&
              c.ropes[0].theta == 10000.0);
    lathe_model_config_fini(&c);
    cr_assert_eq(
        parse("{" LLAMA
              ",\"rope_theta\":500000.0,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
              0, &c),
        LATHE_OK);
    cr_assert(c.ropes[0].type == LATHE_ROPE_LINEAR && c.ropes[0].factor == 4.0 &&
              c.ropes[0].theta == 500000.0);
    lathe_model_config_fini(&c);
}

Test(hf_config, refuses_what_is_not_supported_by_key_and_value)
{
    static const struct {
        const char *text, *key, *seen;
    } bad[] = {
        {"{" LLAMA ",\"hidden_act\":\"gelu\"}", "hidden_act", "\"gelu\""},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"su\",\"factor\":2}}", "rope_scaling", "su"},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"dynamic\"}}", "factor", "missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":[1]}}",
         "short_factor", "[1]"},
        {"{" LLAMA ",\"rope_parameters\":{\"full_attention\":{}}}", "rope_parameters",
         "full_attention"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\"}}", "factor", "missing"},
        {"{" LLAMA ",\"rope_parameters\":[1]}", "rope_parameters", "[1]"},
        {"{" LLAMA ",\"num_key_value_heads\":3}", "num_key_value_heads", "3"},
        {"{" LLAMA ",\"head_dim\":7}", "head_dim", "7"},
        {"{" LLAMA ",\"tie_word_embeddings\":1}", "tie_word_embeddings", "1"},
        {"{" LLAMA ",\"rms_norm_eps\":0}", "rms_norm_eps", "0"},
        {"{" LLAMA ",\"eos_token_id\":[1,\"</s>\"]}", "eos_token_id", "</s>"},
        {"{\"model_type\":\"llama\",\"vocab_size\":10}", "hidden_size", "missing"},
        {"{\"model_type\":\"llama\",\"vocab_size\":0}", "vocab_size", "0"},
        {"{\"model_type\":\"mamba\"}", "model_type", "llama"},
        {"{}", "model_type", "missing"},
        {"[]", "object", "config.json"},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":9,\"activation_function\":\"mish\"}",
         "activation_function", "mish"},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":9,\"n_embd\":30,\"n_head\":4}", "n_embd", "30"},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":9,\"scale_attn_by_inverse_layer_idx\":true}",
         "scale_attn_by_inverse_layer_idx", "true"},
        {"{\"model_type\":\"qwen3\",\"vocab_size\":9,\"hidden_size\":64,\"intermediate_size\":96,"
         "\"num_hidden_layers\":1,\"num_attention_heads\":8,\"layer_types\":[\"sliding_attention\"]"
         "}",
         "layer_types", "sliding_attention"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lathe_model_config c;
        cr_expect_eq(parse(bad[i].text, 0, &c), LATHE_E_CONFIG, "%s", bad[i].text);
        cr_expect_not_null(strstr(lathe_error_message(), bad[i].key), "%s: %s", bad[i].text,
                           lathe_error_message());
        cr_expect_not_null(strstr(lathe_error_message(), bad[i].seen), "%s: %s", bad[i].text,
                           lathe_error_message());
        lathe_model_config_fini(&c);
    }
    lathe_model_config c;
    cr_assert_eq(parse("{", 0, &c), LATHE_E_PARSE);
    cr_assert_neq(lathe_model_config_load(family_source(), MODELS, &c), LATHE_OK);
    cr_assert_not_null(strstr(lathe_error_message(), "config.json"));
}

Test(hf_config, strict_mode_refuses_unknown_keys)
{
    lathe_model_config c;
    cr_assert_eq(parse("{" LLAMA ",\"hiden_act\":\"silu\"}", 1, &c), LATHE_E_CONFIG);
    cr_assert_not_null(strstr(lathe_error_message(), "hiden_act"));
    cr_assert_eq(parse("{" LLAMA ",\"hiden_act\":\"silu\"}", 0, &c), LATHE_OK);
    lathe_model_config_fini(&c);
}

/* transformers refuses a config.json that has a number with a dot where it expects an int. */
Test(hf_config, generates_whole_numbers_without_a_dot)
{
    static const char *const tables[] = {
        "{\"model_type\":\"gemma2\",\"vocab_size\":9,\"hidden_size\":64,"
        "\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":16,\"query_pre_attn_scalar\":144}",
        "{\"model_type\":\"gemma3_text\",\"vocab_size\":9,\"hidden_size\":64,"
        "\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":16,\"query_pre_attn_scalar\":144}",
    };
    for (int i = 0; i < 2; i++) {
        lathe_model_config c;
        char *text = NULL;
        cr_assert_eq(parse(tables[i], 1, &c), LATHE_OK, "%s", lathe_error_message());
        cr_assert_eq(lathe_model_config_text(&c, &text), LATHE_OK);
        const char *at = strstr(text, "\"query_pre_attn_scalar\": 144");
        cr_assert(at != NULL && at[strlen("\"query_pre_attn_scalar\": 144")] != '.', "%s", text);
        free(text);
        lathe_model_config_fini(&c);
    }
}

Test(hf_config, keeps_the_text_of_a_folder_and_generates_one_otherwise)
{
    lathe_model_config c, back;
    char *text = NULL;
    cr_assert_eq(parse("{ " LLAMA ",\n \"anything\": [1, 2]}", 0, &c), LATHE_OK);
    cr_assert_eq(lathe_model_config_text(&c, &text), LATHE_OK);
    cr_assert_str_eq(text, "{ " LLAMA ",\n \"anything\": [1, 2]}");
    free(text);
    lathe_model_config_fini(&c);

    static const char *const tables[] = {
        "{" LLAMA
        ",\"rope_theta\":5e5,\"tie_word_embeddings\":true,\"eos_token_id\":[3,4],\"mlp_bias\":true,"
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,\"low_freq_factor\":1,\"high_"
        "freq_factor\":4,"
        "\"original_max_position_embeddings\":8192}}",
        "{\"model_type\":\"gpt2\",\"vocab_size\":9,\"n_embd\":32,\"n_head\":4,\"n_layer\":2,\"n_"
        "positions\":16,"
        "\"bos_token_id\":7,\"eos_token_id\":7,\"initializer_range\":0.01}",
        "{\"model_type\":\"qwen3\",\"vocab_size\":9,\"hidden_size\":64,\"intermediate_size\":96,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":8,\"head_dim\":32,\"rms_norm_eps\":1e-5}",
        "{\"model_type\":\"qwen2\",\"vocab_size\":9,\"hidden_size\":64,\"intermediate_size\":96,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":8,\"dtype\":\"bfloat16\"}",
    };
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(parse(tables[i], 1, &c), LATHE_OK, "%s", lathe_error_message());
        cr_assert_null(c.json);
        cr_assert_eq(lathe_model_config_text(&c, &text), LATHE_OK);
        cr_assert_not_null(strstr(text, c.architecture));
        cr_assert_eq(parse(text, 0, &back), LATHE_OK, "%s", lathe_error_message());
        free(back.json);
        back.json = NULL;
        char *again = NULL;
        cr_assert_eq(lathe_model_config_text(&back, &again), LATHE_OK);
        cr_assert_str_eq(text, again);
        cr_assert(c.vocab == back.vocab && c.width == back.width && c.ffn == back.ffn &&
                  c.n_layers == back.n_layers && c.n_heads == back.n_heads &&
                  c.n_kv_heads == back.n_kv_heads && c.head_dim == back.head_dim &&
                  c.max_positions == back.max_positions && c.tied == back.tied);
        cr_assert_eq(memcmp(c.ropes, back.ropes, sizeof c.ropes), 0);
        cr_assert(c.n_eos == back.n_eos && memcmp(c.eos, back.eos, sizeof c.eos) == 0);
        cr_assert(c.bos == back.bos && c.pad == back.pad && c.file_dtype == back.file_dtype);
        free(again);
        free(text);
        lathe_model_config_fini(&c);
        lathe_model_config_fini(&back);
    }
}

/* Keys of the families beyond Llama: refusals by name, defaults, factors of the logits,
 * rotary settings that one family has alone. */
#include "golden_model.h"

#include "base/log.h"
#include "graph/ir/ir_graph.h"
#include "model/family/rope_table.h"

#define SHAPE                                                                                      \
    "\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":3,"       \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":64"

static lathe_status parse(const char *type, const char *keys, lathe_model_config *out)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"," SHAPE "%s%s}", type,
             keys[0] != '\0' ? "," : "", keys);
    return lathe_model_config_parse(family_source(), "c", text, (int64_t)strlen(text), 0, out);
}

Test(family_dense, what_a_family_cannot_compute_is_refused_by_its_key)
{
    static const struct {
        const char *type, *keys, *message;
    } cases[] = {
        {"smollm3", "\"no_rope_layers\":[1,0]",
         "no_rope_layers has 2 numbers for 3 layers; expected one for each"},
        {"smollm3", "\"no_rope_layers\":[1,0.5,1]",
         "no_rope_layers holds 0.5, expected whole numbers only"},
        {"smollm3", "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\"]",
         "only full_attention is supported without sliding_window"},
        {"olmo3", "\"layer_types\":[\"full_attention\"]", "expected one name for each layer"},
        {"cohere", "\"use_qk_norm\":true", "use_qk_norm is true; only false is supported"},
        {"cohere2", "\"logit_scale\":0", "logit_scale is 0, expected"},
        {"granite", "\"logits_scaling\":0.0", "logits_scaling is 0, expected"},
        {"granite", "\"hidden_act\":\"mish\"", "hidden_act is \"mish\", expected one of"},
        {"gemma", "\"use_bidirectional_attention\":true",
         "use_bidirectional_attention is true; only false is supported"},
        {"internlm3", "\"qkv_bias\":true,\"bias\":false",
         "mlp_bias is false; expected the value of attention_bias (qkv_bias)"},
        {"glm4", "\"head_dim\":8,\"partial_rotary_factor\":0.4",
         "the rotated part of a head of 8 channels must be an even number of channels"},
        {"hunyuan_v1_dense",
         "\"head_dim\":2,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1.0,\"alpha\":9.0}",
         "alpha needs heads of more than 2 channels"},
        {"hunyuan_v1_dense",
         "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1.0,\"alpha\":-9.0}", "alpha is -9"},
        {"stablelm", "\"head_dim\":16",
         "head_dim is 16; expected hidden_size / num_attention_heads"},
        {"phi", "\"head_dim\":16,\"qk_layernorm\":true",
         "head_dim is 16; with qk_layernorm expected"},
        {"exaone4", "\"sliding_window_pattern\":\"LG\"",
         "sliding_window_pattern is \"LG\"; expected a number, or layer_types beside it"},
        {"exaone4",
         "\"sliding_window\":null,\"layer_types\":[\"sliding_attention\",\"full_attention\","
         "\"full_attention\"]",
         "only full_attention is supported without sliding_window"},
        {"falcon", "\"new_decoder_architecture\":true,\"parallel_attn\":false",
         "parallel_attn is false; expected true with new_decoder_architecture"},
        {"falcon", "\"num_ln_in_parallel_attn\":2",
         "num_ln_in_parallel_attn is 2; expected 1 without new_decoder_architecture"},
        {"falcon", "\"multi_query\":false,\"num_kv_heads\":2",
         "num_kv_heads is 2; without multi_query"},
        {"mpt", "\"no_bias\":false", "no_bias is false; only true is supported"},
        {"mpt", "\"attn_config\":{\"alibi\":false}",
         "attn_config.alibi is false; only true is supported"},
        {"mpt", "\"attn_config\":{\"clip_qkv\":-1}", "attn_config.clip_qkv is -1; expected"},
        {"glm4_moe", "\"routed_scaling_factor\":0", "routed_scaling_factor is 0, expected"},
        {"deepseek_v3", "", "num_key_value_heads is 2; expected num_attention_heads"},
        {"kimi_k2", "\"head_dim\":128", "head_dim is 128; expected qk_rope_head_dim"},
        {"deepseek_v3", "\"qk_head_dim\":64", "qk_head_dim is 64; expected"},
        {"deepseek_v3", "\"qk_rope_head_dim\":7", "qk_rope_head_dim is 7; rotary positions"},
        {"deepseek_v3", "\"scoring_func\":\"softmax\"", "scoring_func is \"softmax\", expected"},
        {"deepseek_v3", "\"topk_method\":\"greedy\"", "topk_method is \"greedy\", expected"},
        {"deepseek_v3", "\"moe_layer_freq\":2", "moe_layer_freq is 2, expected"},
        {"mpt", "\"logit_scale\":\"inv_sqrt_d_model\"",
         "logit_scale is \"inv_sqrt_d_model\"; only null is supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lathe_model_config c;
        cr_expect_eq(parse(cases[i].type, cases[i].keys, &c), LATHE_E_CONFIG, "%s: %s",
                     cases[i].type, cases[i].keys);
        cr_expect_not_null(strstr(lathe_error_message(), cases[i].message), "%s: %s", cases[i].type,
                           lathe_error_message());
    }
}

Test(family_dense, keys_that_are_absent_or_null_have_the_defaults_of_transformers)
{
    static const struct {
        const char *type, *keys;
        int32_t head_dim, dims; /* dims: rotated channels */
        double theta;
    } cases[] = {{"smollm3", "", 8, 8, 2e6},
                 {"olmo3", "", 8, 8, 5e5},
                 {"granite", "", 8, 8, 1e4},
                 {"cohere", "", 8, 8, 5e5},
                 {"cohere2", "", 8, 8, 1e4},
                 {"glm", "", 128, 64, 1e4},
                 {"glm4", "\"partial_rotary_factor\":null", 128, 128, 1e4},
                 {"gemma", "", 256, 256, 1e4},
                 {"seed_oss", "", 128, 128, 1e4},
                 {"seed_oss", "\"head_dim\":null", 8, 8, 1e4},
                 {"hunyuan_v1_dense", "", 8, 8, 1e4},
                 {"ernie4_5", "", 128, 128, 5e5},
                 {"internlm3", "", 128, 128, 1e4},
                 {"starcoder2", "", 8, 8, 1e4},
                 {"stablelm", "", 8, 2, 1e4},
                 {"phi", "", 8, 4, 1e4},
                 {"exaone4", "", 8, 8, 1e4},
                 {"falcon", "", 8, 8, 1e4},
                 {"apertus", "", 8, 8, 12e6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lathe_model_config c;
        OK(parse(cases[i].type, cases[i].keys, &c));
        cr_expect_eq(c.head_dim, cases[i].head_dim, "%s: %d", cases[i].type, (int)c.head_dim);
        cr_expect_eq(c.ropes[0].dims, cases[i].dims, "%s: %d", cases[i].type, (int)c.ropes[0].dims);
        cr_expect_float_eq(c.ropes[0].theta, cases[i].theta, 1e-6, "%s", cases[i].type);
        lathe_model_config_fini(&c);
    }
}

/* OLMo 3's rope_theta is that of the layers without a window. */
Test(family_dense, rope_theta_of_olmo3_is_not_that_of_layers_with_a_window)
{
    lathe_model_config c;
    OK(parse("olmo3", "\"rope_theta\":77.0", &c));
    cr_assert_eq(c.n_ropes, 2);
    cr_expect_float_eq(c.ropes[0].theta, 5e5, 1e-6);
    cr_expect_float_eq(c.ropes[1].theta, 77.0, 1e-6);
    cr_expect(c.layers[0].window == 4096 && c.layers[2].window == 4096);
    lathe_model_config_fini(&c);
}

static int n_warned;

static void count_alpha(void *arg, int32_t level, const char *message)
{
    (void)arg;
    n_warned += level == LATHE_LOG_WARN && strstr(message, "rope_scaling.alpha") != NULL;
}

/* By hand: 10000 * 50^(8/6). */
Test(family_dense, alpha_enlarges_the_base_of_hunyuan_alone)
{
    static const char keys[] =
        "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1.0,\"alpha\":50.0}";
    lathe_model_config c;
    lathe_log_set_sink(count_alpha, NULL);
    OK(parse("hunyuan_v1_dense", keys, &c));
    cr_expect_float_eq(c.ropes[0].theta, 1842015.749, 0.01, "%.6f", c.ropes[0].theta);
    cr_expect_eq(n_warned, 0);
    lathe_model_config_fini(&c);
    OK(parse("llama", keys, &c));
    cr_expect_float_eq(c.ropes[0].theta, 1e4, 1e-6);
    cr_expect_eq(n_warned, 1);
    lathe_log_set_sink(NULL, NULL);
    lathe_model_config_fini(&c);
}

/* The factor of the logits is applied to the input of the head over the vocabulary: the heads of a
 * reward or a critic read the hidden states as transformers' classes do. */
Test(family_dense, the_factor_of_the_logits_is_no_part_of_the_hidden_states)
{
    golden g;
    lathe_graph *graph = NULL;
    lathe_val hidden, input;
    golden_open(&g, "granite");
    cr_expect_float_eq(g.config.head_scale, 0.125, 1e-12);
    OK(lathe_graph_create(&g.params, &graph));
    lathe_model_build b = {.config = &g.config,
                           .graph = graph,
                           .batch = 1,
                           .max_positions = 4,
                           .doc_start = LATHE_NONE,
                           .kv_len = LATHE_NONE,
                           .key_end = LATHE_NONE};
    OK(lathe_graph_input(graph, "tokens", lathe_desc_1d(LATHE_I32, 4), &b.tokens));
    OK(lathe_graph_input(graph, "positions", lathe_desc_1d(LATHE_I32, 4), &b.positions));
    OK(lathe_model_hidden(&b, &hidden));
    const int32_t n = graph->n_nodes;
    cr_expect_eq(graph->nodes[n - 1].op, LATHE_OP_RMSNORM);
    OK(lathe_model_head_input(&b, hidden, &input));
    cr_assert_eq(graph->n_nodes, n + 1);
    cr_expect_eq(graph->nodes[n].op, LATHE_OP_SCALE);
    cr_expect_float_eq(graph->nodes[n].attrs.alpha, 0.125, 1e-12);
    cr_expect_eq(graph->nodes[n].in[0], hidden);
    lathe_graph_destroy(graph);
    golden_close(&g);
    /* of a family without a factor, the hidden states themselves */
    golden_open(&g, "llama_tied");
    lathe_model_build plain = {.config = &g.config};
    OK(lathe_model_head_input(&plain, 5, &input));
    cr_expect_eq(input, 5);
    golden_close(&g);
}

Test(family_dense, norms_of_glm4_are_listed_by_their_place)
{
    static const char *const norms[] = {"input_layernorm", "post_attention_layernorm",
                                        "post_self_attn_layernorm", "post_mlp_layernorm"};
    golden g;
    int32_t last = -1;
    golden_open(&g, "glm4");
    for (size_t i = 0; i < 4; i++) {
        char name[100];
        snprintf(name, sizeof name, "model.layers.0.%s.weight", norms[i]);
        const int32_t at = lathe_params_find(&g.params, name);
        cr_expect_gt(at, last, "%s", name);
        last = at;
    }
    golden_close(&g);
}

/* A new model's file, which transformers reads with a list of whole numbers only. */
Test(family_dense, whole_numbers_of_a_list_are_written_as_such)
{
    static const char text[] = "{\"model_type\":\"smollm3\"," SHAPE ",\"no_rope_layers\":[1,0,1]}";
    lathe_model_config c;
    char *saved = NULL;
    OK(lathe_model_config_parse(family_source(), "new", text, (int64_t)sizeof text - 1, 1, &c));
    OK(lathe_model_config_text(&c, &saved));
    const char *list = strstr(saved, "\"no_rope_layers\"");
    cr_assert_not_null(list, "%s", saved);
    cr_expect_null(memchr(list, '.', strcspn(list, "]")), "%.60s", list);
    free(saved);
    lathe_model_config_fini(&c);
}

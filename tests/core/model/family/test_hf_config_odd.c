/* Unusual but legal configurations, resolved as transformers' classes do
 * (tests/golden/configs.py). */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "family_source.h"
#include "model/family/rope_table.h"

#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":64,\"intermediate_size\":96,"     \
    "\"num_hidden_layers\":2,\"num_attention_heads\":8"
#define QWEN2                                                                                      \
    "\"model_type\":\"qwen2\",\"vocab_size\":100,\"hidden_size\":64,\"intermediate_size\":96,"     \
    "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"max_position_embeddings\":128"

static char warned[4096];

static void keep_warning(void *arg, int32_t level, const char *message)
{
    (void)arg;
    if (level == LATHE_LOG_WARN && strlen(warned) + strlen(message) + 2 < sizeof warned)
        strcat(strcat(warned, message), "\n");
}

static lathe_status parse(const char *text, lathe_model_config *out)
{
    warned[0] = '\0';
    lathe_log_set_sink(keep_warning, NULL);
    return lathe_model_config_parse(family_source(), "config.json", text, (int64_t)strlen(text), 0,
                                    out);
}

static int64_t number(const json_t *golden, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(golden, key));
}

static void check_frequencies(const char *name, const lathe_model_config *c, const json_t *want)
{
    float got[64];
    cr_assert_leq(c->ropes[0].dims / 2, 64);
    cr_assert_eq(json_array_size(want), (size_t)c->ropes[0].dims / 2, "%s", name);
    lathe_rope_inv_freq(&c->ropes[0], 0, got);
    for (int32_t i = 0; i < c->ropes[0].dims / 2; i++) {
        const double x = json_number_value(json_array_get(want, (size_t)i));
        /* two roundings of powf and one division, in f32 */
        cr_expect(fabs((double)got[i] - x) <= 4e-7 * fabs(x), "%s: frequency %d is %.9g, not %.9g",
                  name, i, (double)got[i], x);
    }
}

/* Checks the configurations whose names begin with `prefix`; there are `n`. */
static void check(const char *prefix, int n)
{
    json_t *all = json_load_file(LATHE_TEST_DATA "/golden/data/configs.json", 0, NULL), *golden;
    size_t i;
    cr_assert(json_is_array(all));
    json_array_foreach(all, i, golden)
    {
        const char *name = json_string_value(json_object_get(golden, "name"));
        lathe_model_config c;
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        n--;
        char *text = json_dumps(json_object_get(golden, "config"), 0);
        cr_expect_eq(parse(text, &c), LATHE_OK, "%s: %s", name, lathe_error_message());
        free(text);
        if (!c.model_type)
            continue;
        cr_expect_eq(c.width, number(golden, "width"), "%s", name);
        cr_expect_eq(c.ffn, number(golden, "ffn"), "%s", name);
        cr_expect_eq(c.n_layers, number(golden, "n_layers"), "%s", name);
        cr_expect_eq(c.n_heads, number(golden, "n_heads"), "%s", name);
        cr_expect_eq(c.max_positions, number(golden, "positions"), "%s", name);
        if (json_object_get(golden, "inv_freq")) {
            cr_expect_eq(c.n_kv_heads, number(golden, "n_kv_heads"), "%s", name);
            cr_expect_eq(c.head_dim, number(golden, "head_dim"), "%s", name);
            check_frequencies(name, &c, json_object_get(golden, "inv_freq"));
            cr_expect_float_eq(c.ropes[0].attention_factor,
                               json_number_value(json_object_get(golden, "attention_factor")),
                               1e-12, "%s", name);
        }
        lathe_model_config_fini(&c);
    }
    json_decref(all);
    cr_assert_eq(n, 0, "%d configurations too few begin with '%s'", n, prefix);
}

Test(hf_config_odd, every_configuration_is_read_as_transformers_reads_it)
{
    check("", 44);
}

Test(hf_config_odd, rope_scaling_comes_before_rope_parameters)
{
    check("rope_scaling", 5);
}

Test(hf_config_odd, yarn_and_dynamic_have_the_frequencies_of_transformers)
{
    check("yarn", 5);
    check("dynamic", 1);
}

Test(hf_config_odd, gpt_neox_is_read_in_both_generations_of_keys)
{
    check("gpt_neox", 6);
}

Test(hf_config_odd, gpt2_takes_the_names_of_the_attribute_map_first)
{
    lathe_model_config c;
    check("gpt2", 4);
    cr_assert_eq(
        parse("{\"model_type\":\"gpt2\",\"vocab_size\":9,\"n_embd\":48,\"hidden_size\":24}", &c),
        LATHE_OK);
    cr_expect_eq(c.width, 24);
    cr_expect_str_eq(warned,
                     "config.json: n_embd and hidden_size differ; hidden_size counts, as in "
                     "transformers\n");
    lathe_model_config_fini(&c);
}

Test(hf_config_odd, llama3_rope_without_original_positions_takes_the_models)
{
    check("llama3", 4);
}

Test(hf_config_odd, a_sliding_window_that_no_layer_has_is_no_reason_to_refuse)
{
    check("qwen2", 4);
    check("qwen3", 2);
}

Test(hf_config_odd, a_sliding_window_belongs_to_the_layers_that_have_it)
{
    lathe_model_config c;
    cr_assert_eq(parse("{" QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":1,"
                       "\"sliding_window\":16}",
                       &c),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect(c.layers[0].window == 0 && c.layers[1].window == 16);
    lathe_model_config_fini(&c);
    cr_assert_eq(parse("{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":16,"
                       "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
                       &c),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect(c.layers[0].window == 16 && c.layers[1].window == 0);
    lathe_model_config_fini(&c);
    cr_assert_eq(parse("{" QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":1,"
                       "\"sliding_window\":128}",
                       &c),
                 LATHE_OK); /* the window is as long as the model's positions */
    cr_expect(c.layers[0].window == 0 && c.layers[1].window == 0);
    lathe_model_config_fini(&c);
}

/* transformers' Llama evaluates without a window and generates with one, so no choice would be
 * right. */
/* The folder's Python may compute something else than the family of its model_type. */
Test(hf_config_odd, code_of_the_folder_is_named)
{
    lathe_model_config c;
    cr_expect_eq(parse("{" LLAMA ",\"auto_map\":{\"AutoConfig\":\"c.C\","
                       "\"AutoModelForCausalLM\":\"modeling_mine.Mine\"}}",
                       &c),
                 LATHE_OK);
    cr_expect(strstr(warned, "auto_map names Python code of the folder, modeling_mine.Mine, which "
                             "is not run: the model is computed as family llama"),
              "%s", warned);
    lathe_model_config_fini(&c);
    cr_expect_eq(parse("{" LLAMA ",\"auto_map\":{\"AutoConfig\":\"c.C\"}}", &c), LATHE_OK);
    cr_expect(!strstr(warned, "auto_map"), "%s", warned);
    lathe_model_config_fini(&c);
}

Test(hf_config_odd, stray_layer_types_of_llama_are_refused)
{
    lathe_model_config c;
    cr_expect_eq(parse("{" LLAMA ",\"sliding_window\":4,"
                       "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
                       &c),
                 LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "layer_types is [\"sliding_attention\","), "%s",
              lathe_error_message());
    cr_expect_eq(parse("{" LLAMA ",\"layer_types\":[\"full_attention\"]}", &c), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "expected one name for each layer"), "%s",
              lathe_error_message());
    cr_expect_eq(parse("{" LLAMA ",\"sliding_window\":4}", &c), LATHE_OK);
    cr_expect(strstr(warned, "sliding_window is 4 and changes nothing"), "%s", warned);
    lathe_model_config_fini(&c);
}

Test(hf_config_odd, a_part_of_each_head_is_refused_where_transformers_fails)
{
    static const char *const bad[] = {
        "{" LLAMA
        ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"partial_rotary_factor\":0.5}}",
        "{" LLAMA
        ",\"partial_rotary_factor\":0.5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}"};
    lathe_model_config c;
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(parse(bad[i], &c), LATHE_E_CONFIG, "%s", bad[i]);
        cr_expect(strstr(lathe_error_message(), "partial_rotary_factor is 0.5"), "%s",
                  lathe_error_message());
    }
    cr_expect_eq(parse("{" LLAMA ",\"partial_rotary_factor\":0.5}", &c), LATHE_OK);
    cr_expect(strstr(warned, "partial_rotary_factor is 0.5 and changes nothing"), "%s", warned);
    lathe_model_config_fini(&c);
}

#define PHI3                                                                                       \
    "\"model_type\":\"phi3\",\"vocab_size\":9,\"hidden_size\":16,\"intermediate_size\":16,"        \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2"

/* Heads of 8 channels. */
Test(hf_config_odd, the_share_of_a_head_is_read_as_in_transformers)
{
    static const struct {
        const char *text;
        int32_t dims;
    } good[] = {
        {"{" PHI3 "}", 8},
        {"{" PHI3 ",\"partial_rotary_factor\":0.5}", 4},
        {"{" PHI3 ",\"partial_rotary_factor\":0.26}", 2}, /* 2.08 channels */
        {"{" PHI3
         ",\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.75}}",
         6},
        {"{" PHI3 ",\"partial_rotary_factor\":0.25,\"rope_scaling\":{\"rope_type\":\"default\","
         "\"partial_rotary_factor\":0.75}}",
         6},
        {"{" PHI3 ",\"partial_rotary_factor\":0.5,\"rope_scaling\":{\"type\":\"longrope\","
         "\"short_factor\":[1,2],\"long_factor\":[1,2]}}",
         4},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        lathe_model_config c;
        cr_expect_eq(parse(good[i].text, &c), LATHE_OK, "%s: %s", good[i].text,
                     lathe_error_message());
        cr_expect_eq(c.ropes[0].dims, good[i].dims, "%s: %d", good[i].text, c.ropes[0].dims);
        lathe_model_config_fini(&c);
    }
}

Test(hf_config_odd, an_odd_or_empty_rotated_part_of_a_head_is_refused)
{
    static const char *const bad[] = {"0.4", "0.2", "1.5", "0", "-1", "\"half\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[300], seen[80];
        lathe_model_config c;
        snprintf(text, sizeof text, "{" PHI3 ",\"partial_rotary_factor\":%s}", bad[i]);
        snprintf(seen, sizeof seen, "partial_rotary_factor is %s", bad[i]);
        cr_expect_eq(parse(text, &c), LATHE_E_CONFIG, "%s", text);
        cr_expect(strstr(lathe_error_message(), seen), "%s", lathe_error_message());
        snprintf(text, sizeof text,
                 "{" PHI3 ",\"rope_parameters\":{\"rope_type\":\"default\","
                 "\"partial_rotary_factor\":%s}}",
                 bad[i]);
        cr_expect_eq(parse(text, &c), LATHE_E_CONFIG, "%s", text);
        cr_expect(strstr(lathe_error_message(), seen), "%s", lathe_error_message());
    }
}

Test(hf_config_odd, phi3_has_longrope_under_three_names_and_no_other_scaling)
{
    static const char *const names[] = {"longrope", "su", "yarn"};
    char text[400];
    lathe_model_config c;
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text,
                 "{" PHI3 ",\"rope_scaling\":{\"type\":\"%s\",\"short_factor\":[1,2,3,4],"
                 "\"long_factor\":[1,2,3,4]}}",
                 names[i]);
        cr_expect_eq(parse(text, &c), LATHE_OK, "%s: %s", text, lathe_error_message());
        cr_expect_eq(c.ropes[0].type, LATHE_ROPE_LONGROPE);
        lathe_model_config_fini(&c);
    }
    cr_expect_eq(parse("{" PHI3 ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", &c),
                 LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "supported values of rope_type: default, longrope"),
              "%s", lathe_error_message());
}

Test(hf_config_odd, longrope_of_two_lengths_in_one_model_is_refused)
{
    static const char settings[] =
        "{\"rope_type\":\"longrope\",\"short_factor\":[1,1,1,1],\"long_factor\":[2,2,2,2],"
        "\"original_max_position_embeddings\":%d}";
    for (int second = 16; second <= 32; second += 16) {
        char text[1024], first[200], other[200];
        lathe_model_config c;
        snprintf(first, sizeof first, settings, 16);
        snprintf(other, sizeof other, settings, second);
        snprintf(text, sizeof text,
                 "{\"model_type\":\"gemma3_text\",\"vocab_size\":9,\"hidden_size\":16,"
                 "\"intermediate_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
                 "\"head_dim\":8,\"rope_parameters\":{\"sliding_attention\":%s,"
                 "\"full_attention\":%s}}",
                 first, other);
        cr_expect_eq(parse(text, &c), second == 16 ? LATHE_OK : LATHE_E_CONFIG, "%s",
                     lathe_error_message());
        if (second != 16)
            cr_expect(strstr(lathe_error_message(), "must have the same original_max_position"),
                      "%s", lathe_error_message());
        lathe_model_config_fini(&c);
    }
}

Test(hf_config_odd, dropout_is_kept_for_those_who_train)
{
    lathe_model_config c;
    cr_expect_eq(parse("{" LLAMA ",\"attention_dropout\":0.1}", &c), LATHE_OK);
    cr_expect_eq(c.dropout, 0.1);
    cr_expect_str_eq(c.dropout_key, "attention_dropout");
    lathe_model_config_fini(&c);
    cr_expect_eq(parse("{" LLAMA ",\"attention_dropout\":0.0}", &c), LATHE_OK);
    cr_expect_null(c.dropout_key);
    lathe_model_config_fini(&c);
    cr_expect_eq(parse("{" LLAMA ",\"attention_dropout\":2}", &c), LATHE_E_CONFIG);
}

/* Text models in models of several towers: keys and defaults against the classes of transformers
 * (tests/golden/towers.py keys), and names. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "family_source.h"
#include "model/family/hf_config_keys.h"
#include "model/family/tower_names.h"

static json_t *golden(void)
{
    json_t *root = json_load_file(LATHE_TEST_DATA "/golden/data/towers.json", 0, NULL);
    cr_assert(json_is_object(root));
    return root;
}

static lathe_status parse(const char *text, lathe_model_config *out)
{
    return lathe_model_config_parse(family_source(), "config.json", text, (int64_t)strlen(text), 0,
                                    out);
}

/* Every key that save_pretrained writes for a wrapper is read or known to be harmless. */
Test(text_tower, keys_of_the_outer_configurations_have_their_place)
{
    json_t *root = golden(), *keys, *key;
    const char *type;
    size_t i;
    int n = 0;
    json_object_foreach(json_object_get(root, "outer"), type, keys)
    {
        lathe_wrapper_match match;
        cr_assert_eq(lathe_model_wrapper_find(family_source()->registry, NULL, type, NULL, &match),
                     LATHE_OK);
        cr_assert_not_null(match.wrapper, "%s", type);
        cr_assert_not_null(match.family, "%s", type);
        n++;
        json_array_foreach(keys, i, key)
            cr_expect_neq(lathe_wrapper_config_key(match.wrapper, json_string_value(key)),
                          LATHE_KEY_UNKNOWN, "%s: %s", type, json_string_value(key));
        cr_expect_eq(lathe_wrapper_config_key(match.wrapper, "hidden_xyz"), LATHE_KEY_UNKNOWN);
        const int tied = json_is_true(json_object_get(json_object_get(root, "tied"), type));
        cr_expect_eq((match.wrapper->flags & LATHE_WRAPPER_TIED) != 0, tied, "%s", type);
    }
    cr_expect_geq(n, 16);
    json_decref(root);
}

/* Compares a value with that of transformers; what is no number, text or truth is left out. */
static void check_value(const char *type, const lathe_field *f, const lathe_value *v,
                        const json_t *want)
{
    if (json_is_boolean(want))
        cr_expect_eq(v->i, json_is_true(want), "%s: %s is %d", type, f->key, (int)v->i);
    else if (json_is_integer(want) && f->type == LATHE_T_INT)
        cr_expect_eq(v->i, json_integer_value(want), "%s: %s is %lld", type, f->key,
                     (long long)v->i);
    else if (json_is_number(want))
        cr_expect_float_eq(v->f, json_number_value(want), 1e-12, "%s: %s is %g", type, f->key,
                           v->f);
    else if (json_is_string(want) && strcmp(f->key, "model_type") != 0)
        cr_expect_str_eq(v->s, json_string_value(want), "%s: %s", type, f->key);
}

/* The class of transformers for an inner configuration that sets nothing. */
static void check_defaults(const char *outer, const char *inner, const char *class_type,
                           json_t *want)
{
    char text[256];
    lathe_model_config c;
    json_t *of_class = json_object_get(want, class_type);
    (void)snprintf(text, sizeof text,
                   "{\"model_type\":\"%s\",\"text_config\":{\"model_type\":\"%s\"}}", outer, inner);
    cr_assert_eq(parse(text, &c), LATHE_OK, "%s: %s", text, lathe_error_message());
    const lathe_plugin *plugin = c.family.component->plugin;
    int n = 0;
    for (int32_t i = 0; i < plugin->n_fields; i++) {
        const char *key = plugin->fields[i].key;
        const json_t *value = json_object_get(of_class, key);
        /* the wrapper says whether the head is tied */
        if (value == NULL || strcmp(key, "tie_word_embeddings") == 0)
            continue;
        check_value(class_type, &plugin->fields[i], &c.values[i], value);
        n++;
    }
    cr_expect_geq(n, 10, "%s", class_type);
    const json_t *bos = json_object_get(of_class, "bos_token_id");
    cr_expect_eq(c.bos, json_is_integer(bos) ? json_integer_value(bos) : -1, "%s: bos %d",
                 class_type, c.bos);
    const json_t *theta =
        json_object_get(json_object_get(of_class, "rope_parameters"), "rope_theta");
    if (theta != NULL)
        cr_expect_float_eq(c.ropes[0].theta, json_number_value(theta), 1e-6, "%s: theta %g",
                           class_type, c.ropes[0].theta);
    lathe_model_config_fini(&c);
}

Test(text_tower, keys_that_are_left_out_have_the_defaults_of_transformers)
{
    static const char *const types[][3] = {{"gemma3", "gemma3_text", "gemma3_text"},
                                           {"qwen2_vl", "qwen2_vl_text", "qwen2_vl_text"},
                                           {"qwen2_5_vl", "any", "qwen2_5_vl_text"},
                                           {"qwen3_vl", "qwen3_vl_text", "qwen3_vl_text"},
                                           {"qwen3_5", "qwen3_5_text", "qwen3_5_text"},
                                           {"qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_moe_text"},
                                           {"llava", "llama", "llama"},
                                           {"llava", "qwen2", "qwen2"},
                                           {"llava", "qwen3", "qwen3"},
                                           {"mistral3", "mistral", "mistral"},
                                           {"mistral3", "ministral", "ministral"},
                                           {"llava", "olmo2", "olmo2"},
                                           {"llava", "phi3", "phi3"},
                                           {"llava", "gemma2", "gemma2"}};
    json_t *root = golden();
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        check_defaults(types[i][0], types[i][1], types[i][2], json_object_get(root, "inner"));
    json_decref(root);
}

/* Files say it in the outer object, and some classes also ask the inner one. */
Test(text_tower, the_wrapper_decides_whether_the_head_is_tied)
{
    static const struct {
        const char *text;
        int tied;
    } cases[] = {
        {"{\"model_type\":\"gemma3\",\"text_config\":{\"tie_word_embeddings\":false}}", 1},
        {"{\"model_type\":\"gemma3\",\"tie_word_embeddings\":false,\"text_config\":{}}", 0},
        {"{\"model_type\":\"qwen3_vl\",\"text_config\":{\"tie_word_embeddings\":true}}", 0},
        {"{\"model_type\":\"qwen2_vl\",\"text_config\":{\"tie_word_embeddings\":true}}", 1},
        {"{\"model_type\":\"mistral3\",\"text_config\":{}}", 1},
        {"{\"model_type\":\"smolvlm\",\"text_config\":{\"model_type\":\"llama\"}}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lathe_model_config c;
        cr_assert_eq(parse(cases[i].text, &c), LATHE_OK, "%s: %s", cases[i].text,
                     lathe_error_message());
        cr_expect_eq(c.tied, cases[i].tied, "%s", cases[i].text);
        lathe_model_config_fini(&c);
    }
}

Test(text_tower, names_of_parameters_are_those_of_transformers_and_files_keep_theirs)
{
    char text[LATHE_TENSOR_NAME];
    const int64_t n = sizeof text;
    lathe_model_config c;
    cr_assert_eq(parse("{\"model_type\":\"llava\",\"text_config\":{}}", &c), LATHE_OK, "%s",
                 lathe_error_message());
    cr_expect_str_eq(c.embedding, "model.language_model.embed_tokens.weight");
    cr_expect_str_eq(c.head, "lm_head.weight");
    cr_expect_str_eq(c.architecture, "LlavaForConditionalGeneration");
    cr_expect_str_eq(lathe_text_tower_param(&c, "model.layers.0.mlp.up_proj", text, n),
                     "model.language_model.layers.0.mlp.up_proj");
    cr_expect_str_eq(lathe_text_tower_plain(&c, "model.language_model.norm.weight", text, n),
                     "model.norm.weight");
    cr_expect_str_eq(lathe_text_tower_file(&c, "model.language_model.norm.weight", 1, text, n),
                     "language_model.model.norm.weight");
    cr_expect_str_eq(lathe_text_tower_file(&c, "lm_head.weight", 1, text, n),
                     "language_model.lm_head.weight");
    cr_expect_str_eq(lathe_text_tower_file(&c, "value.weight", 1, text, n), "value.weight");
    cr_expect(lathe_text_tower_carries(&c, "vision_tower.layers.0.weight"));
    cr_expect(!lathe_text_tower_carries(&c, "lm_head.weight"));
    cr_expect(!lathe_text_tower_carries(&c, "model.language_model.layers.0.xyz"));
    lathe_model_config_fini(&c);
}

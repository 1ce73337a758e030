/* Edits of the keys of each family's config.json: what a run computes is what transformers
 * computes, and each key of transformers' configurations is known. Goldens:
 * tests/golden/config_sweep.py. */
#include <jansson.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "model/family/hf_config_keys.h"
#include "plug/model_types.h"
#include "support/run_case.h"

#define EDITS LATHE_TEST_DATA "/golden/data/config_edits/"
#define TOKENIZER "tokenizer.path=" LATHE_TEST_DATA "/golden/data/tokenizer/tiny_64.json"

static char folder[] = "/tmp/lathe-edits-XXXXXX";

static void make(void)
{
    cr_assert_not_null(mkdtemp(folder));
}

static void clean(void)
{
    OK(lathe_dir_remove(folder));
}

TestSuite(config_edits, .init = make, .fini = clean);

static void quiet(void *arg, int32_t level, const char *message)
{
    (void)arg, (void)level, (void)message;
}

static json_t *load(const char *name)
{
    char path[400];
    json_error_t error;
    snprintf(path, sizeof path, EDITS "%s", name);
    json_t *root = json_load_file(path, 0, &error);
    cr_assert_not_null(root, "%s: %s", path, error.text);
    return root;
}

/* A folder with the edited configuration and the family's weights. */
static void write_model(const json_t *edit)
{
    char config[100], weights[100], from[400];
    const char *family = json_string_value(json_object_get(edit, "family"));
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    snprintf(from, sizeof from, EDITS "%s.safetensors", family);
    cr_assert_eq(json_dump_file(json_object_get(edit, "config"), config, 0), 0);
    (void)unlink(weights);
    cr_assert_eq(symlink(from, weights), 0);
}

/* The log-probability of a token after a prompt of n tokens, as the golden's prompts are made. */
static double logprob(lathe_run *run, int32_t n, int32_t token)
{
    int32_t tokens[96];
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (i * 37 + 11) % 61 + 3;
    const lathe_run_batch batch = {
        .size = (uint32_t)sizeof batch, .n_rows = 1, .row_tokens = n, .tokens = tokens};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
    const float *row = f.logits + (int64_t)(n - 1) * 64;
    double sum = 0.0, max = -INFINITY;
    for (int i = 0; i < 64; i++)
        max = fmax(max, (double)row[i]);
    for (int i = 0; i < 64; i++)
        sum += exp((double)row[i] - max);
    return (double)row[token] - max - log(sum);
}

static void compare_edit(const json_t *edit)
{
    static const int32_t lengths[] = {5, 40, 90};
    char model[100];
    lathe_run *run = NULL;
    const char *settings[] = {model,
                              TOKENIZER,
                              "data.seq_len=96",
                              "train.precision=fp32",
                              "train.max_steps=1",
                              "adapter.name=lora",
                              NULL};
    const char *family = json_string_value(json_object_get(edit, "family"));
    const char *name = json_string_value(json_object_get(edit, "edit"));
    write_model(edit);
    snprintf(model, sizeof model, "model.path=%s", folder);
    const lathe_status status = open_run_status(LATHE_OPEN_BATCHES, settings, &run);
    cr_assert_eq(status, LATHE_OK, "%s, %s: %s", family, name, lathe_error_message());
    for (size_t k = 0; k < 3; k++) {
        const json_t *token = json_array_get(json_object_get(edit, "tokens"), k);
        const double want = json_real_value(json_array_get(json_object_get(edit, "logprobs"), k));
        const double got = logprob(run, lengths[k], (int32_t)json_integer_value(token));
        cr_expect_float_eq(got, want, 2e-4, "%s, %s: %g, transformers has %g after %d tokens",
                           family, name, got, want, lengths[k]);
    }
    lathe_run_close(run);
}

Test(config_edits, give_what_transformers_computes)
{
    json_t *edits = load("edits.json");
    lathe_log_set_sink(quiet, NULL);
    cr_assert_gt(json_array_size(edits), 300);
    for (size_t i = 0; i < json_array_size(edits); i++)
        compare_edit(json_array_get(edits, i));
    lathe_log_set_sink(NULL, NULL);
    json_decref(edits);
}

/* ---- keys ---- */

/* A run gives the registry, whose plugins say which keys they read. */
static const lathe_plugin *family_of(const lathe_run *run, const char *type)
{
    const lathe_component *family = NULL;
    OK(lathe_model_type_find(run->registry, type, &family));
    cr_assert_not_null(family, "%s", type);
    return family->plugin;
}

Test(config_edits, each_key_of_a_family_in_transformers_is_read_or_harmless)
{
    static const char *const settings[] = {"model.path=" MODELS "llama_tied", TOKENIZER,
                                           "data.seq_len=16", NULL};
    json_t *all = load("keys.json"), *keys;
    const char *family;
    lathe_run *run = NULL;
    int n = 0;
    OK(open_run_status(LATHE_OPEN_PLAN, settings, &run));
    json_object_foreach(all, family, keys)
    {
        if (!json_is_array(keys))
            continue;
        for (size_t i = 0; i < json_array_size(keys); i++, n++) {
            const char *key = json_string_value(json_array_get(keys, i));
            const int32_t kind = lathe_config_key(family_of(run, family), key);
            cr_expect(kind == LATHE_KEY_READ || kind == LATHE_KEY_HARMLESS, "%s of %s", key,
                      family);
        }
    }
    cr_expect_gt(n, 300);
    cr_expect_eq(lathe_config_key(family_of(run, "llama"), "clip_qkv"), LATHE_KEY_UNKNOWN);
    lathe_run_close(run);
    json_decref(all);
}

Test(config_edits, each_key_of_a_quantization_config_is_known)
{
    json_t *all = load("keys.json"), *keys;
    const char *method;
    int n = 0;
    json_object_foreach(json_object_get(all, "quantization_config"), method, keys)
    {
        for (size_t i = 0; i < json_array_size(keys); i++, n++) {
            const char *key = json_string_value(json_array_get(keys, i));
            cr_expect_neq(lathe_quant_config_key(key), LATHE_KEY_UNKNOWN, "%s of %s", key, method);
        }
    }
    cr_expect_gt(n, 90);
    cr_expect_eq(lathe_quant_config_key("transform_config"), LATHE_KEY_REFUSED);
    json_decref(all);
}

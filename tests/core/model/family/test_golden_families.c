/* Every tiny model of tests/golden/data/models against transformers and PEFT: greedy text, and the
 * logits and gradients of LoRA on all linear layers. Goldens: tests/golden/families.py. */
#include <jansson.h>

#include "checkpoint/state/adapter_file.h"
#include "run/state/run_saved.h"
#include "support/golden_folders.h"
#include "support/run_case.h"

#define ADAPTERS LATHE_TEST_DATA "/golden/data/lora/"
#define TOKENIZERS LATHE_TEST_DATA "/golden/data/tokenizer/"

enum { B = 2, T = 23, NEW_TOKENS = 20, LEAST_ADAPTERS = 9 };

static const char *const backends[] = {"auto", "reference"};

/* ---- greedy text ---- */

static int64_t vocabulary_of(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, MODELS "%s/config.json", name);
    json_t *config = json_load_file(path, 0, NULL);
    const json_t *text = json_object_get(config, "text_config");
    const int64_t n = json_integer_value(json_object_get(text ? text : config, "vocab_size"));
    json_decref(config);
    cr_assert(n > 0, "%s", path);
    return n;
}

static void check_text(const char *name, const char *backend, const json_t *golden)
{
    char model[512], tokenizer[512], attention[64];
    snprintf(model, sizeof model, "model.path=" MODELS "%s", name);
    snprintf(tokenizer, sizeof tokenizer, "tokenizer.path=" TOKENIZERS "tiny_%lld.json",
             (long long)vocabulary_of(name));
    snprintf(attention, sizeof attention, "attention.name=%s", backend);
    const char *const settings[] = {
        model, tokenizer, attention, "data.seq_len=64", "train.precision=fp32", "train.max_steps=1",
        NULL};
    const json_t *tokens = json_object_get(golden, "tokens");
    const json_t *logprobs = json_object_get(golden, "logprobs");
    const lathe_sampling greedy = {
        .size = (uint32_t)sizeof greedy, .max_new_tokens = NEW_TOKENS, .top_p = 1.0};
    lathe_generation g = {.size = (uint32_t)sizeof g};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    OK(lathe_generate(run, json_string_value(json_object_get(golden, "prompt")), &greedy, &g));
    cr_assert_eq(g.n_tokens, NEW_TOKENS, "%s", name);
    for (int i = 0; i < NEW_TOKENS; i++) {
        const double want = json_number_value(json_array_get(logprobs, (size_t)i));
        cr_assert_eq(g.tokens[i], json_integer_value(json_array_get(tokens, (size_t)i)),
                     "%s, %s: new token %d is %d", name, backend, i, g.tokens[i]);
        cr_assert_float_eq((double)g.logprobs[i], want, 2e-5 * (1.0 + fabs(want)),
                           "%s, %s: log-probability %d is %g, not %g", name, backend, i,
                           (double)g.logprobs[i], want);
    }
    const char *text = json_string_value(json_object_get(golden, "text"));
    const size_t prompt = strlen(json_string_value(json_object_get(golden, "prompt")));
    cr_assert_str_eq(g.text, text + prompt, "%s, %s", name, backend);
    lathe_run_close(run);
}

Test(golden_families, greedy_text_is_that_of_transformers_with_both_attention_backends)
{
    golden_folders all;
    golden_folders_find(&all);
    for (int i = 0; i < all.n; i++) {
        char path[512];
        snprintf(path, sizeof path, MODELS "%s/text.json", all.names[i]);
        json_t *golden = json_load_file(path, 0, NULL);
        cr_assert(json_is_object(golden), "%s", path);
        for (int b = 0; b < 2; b++)
            check_text(all.names[i], backends[b], golden);
        json_decref(golden);
    }
}

/* The log-probability of `target` after a row, by a forward without caches. */
static double logprob_after(lathe_run *run, const int32_t *tokens, int n, int64_t target)
{
    const lathe_run_batch batch = {
        .size = (uint32_t)sizeof batch, .n_rows = 1, .row_tokens = n, .tokens = tokens};
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    double sum = 0.0;
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
    const float *last = f.logits + (n - 1) * f.vocab_size;
    for (int64_t v = 0; v < f.vocab_size; v++)
        sum += exp((double)last[v]);
    return (double)last[target] - log(sum);
}

/* phi3 has learned 16 positions: transformers gives a batch with a longer row the long factors, all
 * others the short ones. */
Test(golden_families, longrope_chooses_its_factors_by_the_longest_row_of_a_batch)
{
    static const char *const settings[] = {
        "model.path=" MODELS "phi3", "tokenizer.path=" TOKENIZERS "tiny_64.json",
        "data.seq_len=64",           "train.precision=fp32",
        "train.max_steps=1",         NULL};
    json_t *golden = json_load_file(MODELS "phi3/text.json", 0, NULL);
    const json_t *ids = json_object_get(golden, "ids"), *new = json_object_get(golden, "tokens");
    const json_t *logprobs = json_object_get(golden, "logprobs");
    int32_t tokens[64];
    int n = 0, n_short = 0, n_long = 0;
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    for (; n < (int)json_array_size(ids); n++)
        tokens[n] = (int32_t)json_integer_value(json_array_get(ids, (size_t)n));
    for (size_t i = 0; i < NEW_TOKENS; i++) {
        const double want = json_number_value(json_array_get(logprobs, i));
        const int64_t next = json_integer_value(json_array_get(new, i));
        n_short += n <= 16;
        n_long += n > 16;
        const double got = logprob_after(run, tokens, n, next);
        cr_assert_float_eq(got, want, 2e-5 * (1.0 + fabs(want)), "a row of %d: %g, not %g", n, got,
                           want);
        tokens[n++] = (int32_t)next;
    }
    cr_assert(n_short > 3 && n_long > 3, "%d short rows, %d long ones", n_short, n_long);
    json_decref(golden);
    lathe_run_close(run);
}

/* ---- LoRA ---- */

static const lathe_st_tensor *tensor(const lathe_safetensors *set, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    cr_assert(t, "the golden lacks %s", name);
    return t;
}

/* The gradient of every A and B, by PEFT's key; there are as many as PEFT has. */
static void check_adapter_gradients(const char *name, const lathe_run *run,
                                    const lathe_safetensors *golden, double count)
{
    const lathe_adapter_v1 *adapter = run->parts.adapter.table;
    int64_t n_checked = 0;
    for (int32_t i = run->params.n_model; i < run->params.n; i++) {
        const int64_t n = lathe_desc_count(&run->params.rows[i]->desc);
        const float *sum = lathe_store_grad(&run->store, i);
        float *mean = malloc((size_t)n * sizeof *mean);
        char key[300] = "grad.", what[400];
        adapter->file_key(run->parts.adapter.self, run->params.rows[i]->name, key + 5,
                          (int64_t)sizeof key - 5);
        cr_assert(sum, "%s: %s has no gradient", name, key);
        for (int64_t k = 0; k < n; k++)
            mean[k] = sum[k] / (float)count;
        snprintf(what, sizeof what, "%s: %s", name, key);
        cr_assert_eq(lathe_desc_count(&tensor(golden, key)->desc), n, "%s", what);
        compare(what, mean, tensor(golden, key)->data, n, 2e-5);
        free(mean);
        n_checked++;
    }
    cr_assert_eq(n_checked, lathe_safetensors_count(golden) - 2, "%s: %lld adapted tensors", name,
                 (long long)n_checked);
}

static void check_adapter(const char *name, const char *backend, const char *recompute)
{
    char folder[512], path[600], model[600], attention[64], mode[64];
    lathe_safetensors *golden = NULL, *base = NULL;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    int32_t targets[B * T];
    snprintf(folder, sizeof folder, ADAPTERS "%s", name);
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    OK(lathe_safetensors_open(path, &golden));
    snprintf(path, sizeof path, MODELS "%s/golden.safetensors", name);
    OK(lathe_safetensors_open(path, &base));
    snprintf(model, sizeof model, "model.path=" MODELS "%s", name);
    snprintf(attention, sizeof attention, "attention.name=%s", backend);
    snprintf(mode, sizeof mode, "train.recompute=%s", recompute);
    const char *const settings[] = {model,
                                    attention,
                                    mode,
                                    "adapter.name=lora",
                                    "adapter.r=2",
                                    "adapter.alpha=3",
                                    "data.seq_len=23",
                                    "train.micro_batch_size=2",
                                    "train.precision=fp32",
                                    "train.max_steps=1",
                                    NULL};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    OK(lathe__adapter_file_read(lathe__run_saved(run), folder));
    const int32_t *ids = tensor(base, "input_ids")->data;
    for (int i = 0; i < B * T; i++)
        targets[i] = i % T == T - 1 ? -1 : ids[i + 1];
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = B,
                                   .row_tokens = T,
                                   .tokens = ids,
                                   .targets = targets};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
    compare(name, f.logits, tensor(golden, "logits")->data, B * T * f.vocab_size, 1e-5);
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    const double want = *(const double *)tensor(golden, "loss")->data;
    cr_assert_float_eq(f.loss_sum / f.count, want, 1e-5 * want, "%s: loss %.8f, PEFT's %.8f", name,
                       f.loss_sum / f.count, want);
    OK(lathe_backward(run, NULL));
    check_adapter_gradients(name, run, golden, f.count);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
    lathe_safetensors_close(base);
}

Test(golden_families, lora_on_all_linear_layers_agrees_with_peft)
{
    golden_folders all;
    int n = 0;
    golden_folders_find(&all);
    for (int i = 0; i < all.n; i++) {
        char path[512];
        snprintf(path, sizeof path, ADAPTERS "%s/golden.safetensors", all.names[i]);
        FILE *file = fopen(path, "rb");
        if (file == NULL) /* another model of this model_type has one */
            continue;
        fclose(file);
        check_adapter(all.names[i], "auto", "none");
        check_adapter(all.names[i], "reference", "layer");
        n++;
    }
    cr_assert_geq(n, LEAST_ADAPTERS);
}

/* The ranks of the adapter and the bias would have to be joined at each step. */
Test(golden_families, an_adapter_at_a_head_with_a_bias_is_refused)
{
    static const char *const settings[] = {"model.path=" MODELS "phi",
                                           "adapter.name=lora",
                                           "adapter.target_modules=[\"lm_head\"]",
                                           "data.seq_len=23",
                                           "train.micro_batch_size=2",
                                           "train.precision=fp32",
                                           "train.max_steps=1",
                                           NULL};
    lathe_run *run = NULL;
    cr_assert_eq(open_run_status(LATHE_OPEN_BATCHES, settings, &run), LATHE_E_UNSUPPORTED, "%s",
                 lathe_error_message());
    cr_expect_not_null(strstr(lathe_error_message(), "which has a bias (lm_head.bias)"), "%s",
                       lathe_error_message());
}

/* Adapters beside which modules and biases of the model are trained, and those of the embedding and
 * the head: outputs, gradients, the losses of 100 steps and the files of PEFT. From
 * tests/golden/adapters.py. */
#include <unistd.h>

#include "base/fs.h"
#include "base/json/json.h"
#include "run/merge/merged_model.h"
#include "run/state/run_saved.h"
#include "support/run_case.h"

#define ADAPTERS LATHE_TEST_DATA "/golden/data/adapters/"

enum { STEPS = 100 };

typedef struct peft_case {
    const char *name, *model;
    int with_sgd; /* instead of AdamW */
    int32_t n_trained;
    char dir[256];
    lathe_safetensors *golden;
    lathe_run_batch batch;
} peft_case;

static const lathe_st_tensor *tensor(const lathe_safetensors *set, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    cr_assert(t, "the file lacks %s", name);
    return t;
}

static void case_open(peft_case *c)
{
    char path[320];
    snprintf(c->dir, sizeof c->dir, ADAPTERS "%s", c->name);
    snprintf(path, sizeof path, "%s/golden.safetensors", c->dir);
    OK(lathe_safetensors_open(path, &c->golden));
    const lathe_st_tensor *tokens = tensor(c->golden, "tokens");
    c->batch = (lathe_run_batch){.size = (uint32_t)sizeof c->batch,
                                 .n_rows = (int32_t)tokens->desc.dims[0],
                                 .row_tokens = (int32_t)tokens->desc.dims[1],
                                 .tokens = tokens->data,
                                 .targets = tensor(c->golden, "targets")->data};
}

/* Opens a run that begins with the adapter in `dir`. */
static lathe_run *begin(const peft_case *c, const char *dir)
{
    char model[320], adapter[320], seq_len[64], rows[64];
    snprintf(model, sizeof model, "model.path=" MODELS "%s", c->model);
    snprintf(adapter, sizeof adapter, "model.adapter=%s", dir);
    snprintf(seq_len, sizeof seq_len, "data.seq_len=%d", c->batch.row_tokens);
    snprintf(rows, sizeof rows, "train.micro_batch_size=%d", c->batch.n_rows);
    const char *settings[] = {model,
                              adapter,
                              seq_len,
                              rows,
                              "train.precision=fp32",
                              "train.max_steps=1000000",
                              "train.max_grad_norm=0",
                              "scheduler.name=constant",
                              c->with_sgd ? "optimizer.name=sgd" : "optimizer.name=adamw",
                              c->with_sgd ? "optimizer.lr=0.05" : "optimizer.lr=1e-3",
                              "optimizer.weight_decay=0",
                              c->with_sgd ? "optimizer.momentum=0" : "optimizer.beta2=0.999",
                              NULL};
    return open_run(LATHE_OPEN_BATCHES, settings);
}

static void check_gradients(const lathe_run *run, const peft_case *c, double count)
{
    const lathe_adapter_v1 *adapter = run->parts.adapter.table;
    int32_t n = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        const float *got = lathe_store_grad(&run->store, i);
        char key[512];
        if (!got)
            continue;
        const int at = snprintf(key, sizeof key, "grad.");
        adapter->file_key(run->parts.adapter.self, row->name, key + at, (int64_t)sizeof key - at);
        const int64_t count_of = lathe_desc_count(&row->desc), cols = row->desc.dims[1];
        const lathe_st_tensor *want = tensor(c->golden, key);
        float *mean = malloc((size_t)count_of * sizeof *mean);
        for (int64_t k = 0; k < count_of; k++) /* Conv1D weights are [in, out] in the file */
            mean[row->transposed ? k % cols * (count_of / cols) + k / cols : k] =
                got[k] / (float)count;
        cr_assert_eq(lathe_desc_count(&want->desc), count_of);
        compare(key, mean, want->data, count_of, 2e-4);
        free(mean);
        n++;
    }
    cr_assert_eq(n, c->n_trained, "%d gradients, PEFT trains %d tensors", n, c->n_trained);
}

/* Takes STEPS steps; the first one is checked before it changes the weights. */
static void check_steps(lathe_run *run, const peft_case *c)
{
    const double *want = tensor(c->golden, "loss")->data;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, &c->batch, LATHE_FORWARD_LOGITS, &f));
    compare("logits", f.logits, tensor(c->golden, "logits")->data,
            lathe_desc_count(&tensor(c->golden, "logits")->desc), 5e-5);
    for (int step = 0; step < STEPS; step++) {
        OK(lathe_forward(run, &c->batch, LATHE_FORWARD_TRAIN, &f));
        const double loss = f.loss_sum / f.count;
        cr_assert_float_eq(loss, want[step], 1e-4 * want[step], "step %d: %.8g, PEFT's %.8g", step,
                           loss, want[step]);
        OK(lathe_backward(run, NULL));
        if (step == 0)
            check_gradients(run, c, f.count);
        OK(lathe_step(run, NULL));
    }
}

static lathe_safetensors *adapter_file(const char *dir)
{
    char path[400];
    lathe_safetensors *set;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    OK(lathe_safetensors_open(path, &set));
    return set;
}

/* The saved file has PEFT's tensors: the run began with them. */
static void check_file(const peft_case *c, const char *saved)
{
    lathe_safetensors *ours = adapter_file(saved), *peft = adapter_file(c->dir);
    int64_t n_of_base = 0;
    for (int64_t i = 0; i < lathe_safetensors_count(peft); i++) {
        const lathe_st_tensor *want = lathe_safetensors_at(peft, i);
        if (strstr(want->name,
                   ".base_layer.weight")) { /* the base's, which Lathe does not repeat */
            n_of_base++;
            continue;
        }
        const lathe_st_tensor *got = tensor(ours, want->name);
        cr_assert_eq(memcmp(&got->desc, &want->desc, sizeof got->desc), 0, "%s", want->name);
        cr_assert_eq(memcmp(got->data, want->data, (size_t)lathe_desc_bytes(&want->desc)), 0, "%s",
                     want->name);
    }
    cr_assert_eq(lathe_safetensors_count(ours) + n_of_base, lathe_safetensors_count(peft));
    lathe_safetensors_close(ours);
    lathe_safetensors_close(peft);
}

/* A list as a set, because PEFT writes some in an order of chance. */
static int same_set(const json_t *a, const json_t *b)
{
    size_t found = 0;
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < json_array_size(b); k++)
            found += (size_t)json_equal(json_array_get(a, i), json_array_get(b, k));
    return json_array_size(a) == json_array_size(b) && found == json_array_size(a);
}

static void check_config(const peft_case *c, const char *saved)
{
    static const char *const keys[] = {"peft_type",
                                       "r",
                                       "lora_alpha",
                                       "use_dora",
                                       "oft_block_size",
                                       "bias",
                                       "target_modules",
                                       "modules_to_save",
                                       "ensure_weight_tying",
                                       "init_lora_weights",
                                       "lora_bias"};
    char path[400];
    json_t *ours, *peft;
    snprintf(path, sizeof path, "%s/adapter_config.json", saved);
    OK(lathe_json_load_file(path, &ours));
    snprintf(path, sizeof path, "%s/adapter_config.json", c->dir);
    OK(lathe_json_load_file(path, &peft));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *got = json_object_get(ours, keys[i]), *want = json_object_get(peft, keys[i]);
        const int both = json_is_array(got) && json_is_array(want);
        const double a = json_number_value(got), b = json_number_value(want);
        const int same = both ? same_set(got, want)
                         : json_is_number(got) && json_is_number(want)
                             ? a <= b && a >= b
                             : json_equal(got, want) || (!got && !json_is_true(want));
        cr_expect(same, "%s of %s differs from PEFT's", keys[i], c->name);
    }
    json_decref(ours);
    json_decref(peft);
}

static double first_loss(lathe_run *run, const peft_case *c)
{
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, &c->batch, LATHE_FORWARD_TRAIN, &f));
    return f.loss_sum / f.count;
}

/* Rows that do not train are after the steps as PEFT's file has them. */
static void check_fixed(const lathe_run *run, const peft_case *c)
{
    lathe_safetensors *peft = adapter_file(c->dir);
    int32_t n = 0;
    for (int32_t i = run->params.n_model; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        char key[512];
        if (!row->is_fixed)
            continue;
        snprintf(key, sizeof key, "base_model.model.%s", row->name);
        cr_expect_eq(memcmp(lathe_store_master(&run->store, i), tensor(peft, key)->data,
                            (size_t)lathe_desc_bytes(&row->desc)),
                     0, "%s", key);
        n++;
    }
    cr_expect_eq(n, strncmp(c->name, "mica", 4) == 0 ? c->n_trained : 0);
    lathe_safetensors_close(peft);
}

static void check_peft_case(peft_case c)
{
    char dir[] = "/tmp/lathe-peft-XXXXXX", saved[64];
    cr_assert(mkdtemp(dir));
    snprintf(saved, sizeof saved, "%s/adapter", dir);
    case_open(&c);
    lathe_run *run = begin(&c, c.dir);
    OK(lathe_save(run, saved));
    check_file(&c, saved);
    check_config(&c, saved);
    check_steps(run, &c);
    check_fixed(run, &c);
    lathe_run_close(run);
    run = begin(&c, saved);
    const double want = ((const double *)tensor(c.golden, "loss")->data)[0];
    const double again = first_loss(run, &c);
    cr_expect_float_eq(again, want, 1e-5 * want, "from the folder that Lathe wrote");
    lathe_run_close(run);
    lathe_safetensors_close(c.golden);
    OK(lathe_dir_remove(dir));
}

static void check_case(const char *name, const char *model, int32_t n_trained)
{
    check_peft_case((peft_case){.name = name, .model = model, .n_trained = n_trained});
}

Test(oracle_adapters, embedding_head_and_norms_train_beside_lora)
{
    check_case("saved_untied", "llama_untied", 15);
}

Test(oracle_adapters, a_tied_embedding_trains_as_both)
{
    check_case("saved_tied", "llama_tied", 29);
}

Test(oracle_adapters, whole_conv1d_modules_and_biases_of_adapted_ones)
{
    check_case("saved_conv1d", "gpt2", 14);
}

Test(oracle_adapters, all_biases)
{
    check_case("bias_all", "qwen2", 14);
}

Test(oracle_adapters, biases_under_dora)
{
    check_case("bias_dora", "qwen2", 48);
}

Test(oracle_adapters, biases_and_the_head_beside_oft)
{
    check_case("bias_oft", "qwen2", 7);
}

Test(oracle_adapters, a_bias_of_b)
{
    check_case("lora_bias", "qwen2", 12);
}

/* ---- MiCA ---- */

Test(oracle_adapters, mica_trains_a_alone)
{
    check_case("mica", "llama_untied", 8);
}

Test(oracle_adapters, mica_trains_a_alone_beside_conv1d)
{
    check_case("mica_conv1d", "gpt2", 6);
}

/* The columns of B of a row are PEFT's, but for signs: the vectors of two f32 decompositions differ
 * by their precision over the distance of the singular values, which is above 1e-3 here. */
static int compare_first(const lathe_run *run, const lathe_safetensors *peft, int32_t i)
{
    const lathe_param *row = run->params.rows[i];
    char key[512];
    if (strstr(row->name, ".lora_B.") == NULL && strstr(row->name, ".lora_embedding_B") == NULL)
        return 0;
    snprintf(key, sizeof key, "base_model.model.%s", row->name);
    const lathe_st_tensor *t = tensor(peft, key);
    const float *got = lathe_store_master(&run->store, i), *want = t->data;
    const int64_t n = row->desc.dims[0], r = row->desc.dims[1];
    cr_assert_eq(memcmp(&t->desc, &row->desc, sizeof row->desc), 0, "%s", key);
    cr_expect(!row->trainable && lathe_store_grad(&run->store, i) == NULL, "%s trains", key);
    for (int64_t k = 0; k < r; k++) {
        double dot = 0.0;
        for (int64_t j = 0; j < n; j++)
            dot += (double)got[j * r + k] * (double)want[j * r + k];
        cr_expect_float_eq(fabs(dot), 1.0, 1e-5, "%s, column %d: %g", key, (int)k, dot);
    }
    return 1;
}

static void check_first(const char *model, const char *dir, const char *targets, int n_rows)
{
    char path[320];
    snprintf(path, sizeof path, "model.path=" MODELS "%s", model);
    const char *settings[] = {
        path,    "adapter.name=lora", "adapter.r=4",          "adapter.init=mica",
        targets, "data.seq_len=8",    "train.precision=fp32", "train.max_steps=1",
        NULL};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    lathe_safetensors *peft = adapter_file(dir);
    int n = 0;
    for (int32_t i = run->params.n_model; i < run->params.n; i++)
        n += compare_first(run, peft, i);
    cr_expect_eq(n, n_rows);
    lathe_safetensors_close(peft);
    lathe_run_close(run);
}

Test(oracle_adapters, mica_begins_with_the_singular_vectors_of_peft)
{
    check_first("llama_untied", ADAPTERS "mica",
                "adapter.target_modules=[\"q_proj\", \"up_proj\", \"down_proj\", "
                "\"embed_tokens\", \"lm_head\"]",
                8);
    check_first("gpt2", ADAPTERS "mica_conv1d", "adapter.target_modules=[\"c_attn\", \"c_proj\"]",
                6);
}

/* ---- the embedding and the head ---- */

Test(oracle_adapters, embedding_and_head_have_lora_and_the_file_repeats_the_base)
{
    check_case("outer_untied", "llama_untied", 8);
}

Test(oracle_adapters, embedding_and_head_of_a_tied_model_are_adapted_apart)
{
    check_case("outer_apart", "llama_tied", 4);
}

Test(oracle_adapters, embedding_and_head_of_a_tied_model_share_one_pair)
{
    check_peft_case(
        (peft_case){.name = "outer_shared", .model = "llama_tied", .n_trained = 6, .with_sgd = 1});
}

Test(oracle_adapters, lora_of_the_head_is_below_its_softcap)
{
    check_case("outer_softcap", "gemma2", 4);
}

Test(oracle_adapters, lora_of_the_embedding_is_scaled_as_the_embedding)
{
    check_case("outer_scaled", "gemma3", 8);
}

Test(oracle_adapters, gpt2_has_lora_on_its_embedding)
{
    check_case("outer_conv1d", "gpt2", 6);
}

Test(oracle_adapters, the_embedding_under_dora)
{
    check_case("outer_dora", "llama_untied", 9);
}

Test(oracle_adapters, the_head_under_dora)
{
    check_case("outer_dora_head", "llama_untied", 12);
}

Test(oracle_adapters, the_head_of_a_tied_model_under_dora_and_a_softcap)
{
    check_case("outer_dora_softcap", "gemma2", 3);
}

/* ---- merging several ---- */

/* Merges merge_a and `other` with the weights 0.7 and -0.4, and compares the logits. */
static void check_merge(const char *other, int32_t combine, const char *logits)
{
    peft_case c = {.name = "saved_untied", .model = "llama_untied"};
    char dir[] = "/tmp/lathe-merge-XXXXXX", merged[64], path[96];
    lathe_merge_part parts[2];
    lathe_run *runs[3];
    lathe_safetensors *golden;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    int32_t n = 0;
    cr_assert(mkdtemp(dir));
    snprintf(merged, sizeof merged, "%s/merged", dir);
    snprintf(path, sizeof path, "model.path=%s", merged);
    case_open(&c); /* its tokens are those of the model's golden */
    OK(lathe_safetensors_open(logits, &golden));
    for (int i = 0; i < 2; i++) {
        runs[i] = begin(&c, i ? other : ADAPTERS "merge_a");
        parts[i] = (lathe_merge_part){lathe__run_saved(runs[i]), i ? other : ADAPTERS "merge_a",
                                      i ? -0.4 : 0.7};
    }
    OK(lathe__merged_model_write(parts, 2, combine, merged, NULL, &n));
    cr_expect_eq(n, 6); /* q, o and down of two layers */
    const char *settings[] = {path,
                              "data.seq_len=23",
                              "train.micro_batch_size=2",
                              "train.precision=fp32",
                              "train.max_steps=1",
                              NULL};
    runs[2] = open_run(LATHE_OPEN_BATCHES, settings);
    OK(lathe_forward(runs[2], &c.batch, LATHE_FORWARD_LOGITS, &f));
    const lathe_st_tensor *want = tensor(golden, "logits");
    compare("logits", f.logits, want->data, lathe_desc_count(&want->desc), 2e-5);
    for (int i = 0; i < 3; i++)
        lathe_run_close(runs[i]);
    lathe_safetensors_close(golden);
    lathe_safetensors_close(c.golden);
    OK(lathe_dir_remove(dir));
}

Test(oracle_adapters, two_adapters_merge_as_peft_concatenates_them)
{
    check_merge(ADAPTERS "merge_b", LATHE_COMBINE_CAT, ADAPTERS "merge.safetensors");
}

Test(oracle_adapters, two_adapters_merge_as_peft_adds_their_matrices)
{
    check_merge(ADAPTERS "merge_c", LATHE_COMBINE_LINEAR, ADAPTERS "linear.safetensors");
}

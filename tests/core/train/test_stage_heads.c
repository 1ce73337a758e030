/* Heads of a stage: where checkpoints have them, that they train beside an adapter, and that a
 * folder of a sequence classifier is read again. */
#include "base/json/json.h"
#include "checkpoint/state/checkpoint.h"
#include "support/small_run.h"

enum { T = 48 };

static char folder[] = "/tmp/lathe_heads_XXXXXX";

static void write_pairs(const char *name, int n)
{
    static const char *const good[] = {"the wheel turns", "oil drips", "slow feed wins",
                                       "a thread"};
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < n; i++)
        fprintf(f, "{\"prompt\": \"part %d: \", \"chosen\": \"%s\", \"rejected\": \"no %d\"}\n", i,
                good[i % 4], i);
    fclose(f);
}

static void setup(void)
{
    cr_assert(mkdtemp(folder));
    write_pairs("train.jsonl", 16);
    write_pairs("valid.jsonl", 3);
}

static void remove_folder(void)
{
    (void)lathe_dir_remove(folder);
}

TestSuite(stage_heads, .init = setup, .fini = remove_folder);

/* Data and training of a reward model, without the model. */
static void set_training(settings *s, const char *out)
{
    set(s, "data.datasets=[{path = \"%s/train.jsonl\"}]", folder);
    set(s, "data.validation=[{path = \"%s/valid.jsonl\"}]", folder);
    set(s, "data.cache_dir=%s/cache", folder);
    set(s, "checkpoint.dir=%s/%s", folder, out);
    set(s, "tokenizer.path=bytes");
    set(s, "log.progress=off");
    set(s, "data.seq_len=%d", T);
    set(s, "stage.name=rm");
    set(s, "optimizer.lr=5e-3");
    set(s, "train.precision=fp32");
    set(s, "train.threads=1");
    set(s, "train.micro_batch_size=2");
}

static void set_reward(settings *s, const char *out)
{
    set_training(s, out);
    set_llama(s, 1, 32, 2, 2, 64);
}

/* Trains up to `steps`, resuming if there is something; returns the evaluation at the end. */
static double train_to(settings *s, int steps)
{
    static char said[4096];
    lathe_train_result result;
    lathe_evaluation e;
    set(s, "train.max_steps=%d", steps);
    set(s, "scheduler.name=constant");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    OK(train_said(run, said, sizeof said, &result));
    OK(lathe_evaluate(run, 0, NULL, &e));
    lathe_run_close(run);
    return e.loss;
}

static lathe_safetensors *open_file(const char *out, int step, const char *file)
{
    lathe_safetensors *set = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s/%s/step-%08d/%s", folder, out, step, file);
    OK(lathe_safetensors_open(path, &set));
    return set;
}

static json_t *open_json(const char *out, int step, const char *file)
{
    json_t *json = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s/%s/step-%08d/%s", folder, out, step, file);
    OK(lathe_json_load_file(path, &json));
    return json;
}

static void expect_classifier(const json_t *config)
{
    cr_expect_str_eq(json_string_value(json_array_get(json_object_get(config, "architectures"), 0)),
                     "LlamaForSequenceClassification");
    cr_expect_eq(json_object_size(json_object_get(config, "id2label")), 1);
    cr_expect(json_is_integer(json_object_get(config, "pad_token_id")));
}

Test(stage_heads, a_score_makes_checkpoints_sequence_classifiers_without_a_head_over_the_vocabulary)
{
    settings s = {.n = 0};
    set_reward(&s, "out");
    set(&s, "model.tie_word_embeddings=false");
    train_to(&s, 2);
    json_t *config = open_json("out", 2, "config.json");
    expect_classifier(config);
    json_decref(config);
    lathe_safetensors *set = open_file("out", 2, "model.safetensors");
    const lathe_st_tensor *score = lathe_safetensors_find(set, "score.weight");
    cr_assert(score);
    cr_expect_eq(score->desc.dims[0], 1);
    cr_expect_eq(score->desc.dims[1], 32);
    cr_expect_null(lathe_safetensors_find(set, "lm_head.weight"));
    lathe_safetensors_close(set);
}

/* The loss is equal to the bit: no weight was lost, and none was made anew. */
Test(stage_heads, a_folder_of_a_sequence_classifier_is_a_model_again)
{
    settings s = {.n = 0}, again = {.n = 0};
    lathe_evaluation e;
    set_reward(&s, "out");
    const double loss = train_to(&s, 3);
    set_training(&again, "again");
    set(&again, "model.path=%s/out/step-00000003", folder);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, again.list);
    OK(lathe_evaluate(run, 0, NULL, &e));
    cr_expect_eq(e.loss, loss, "%.9g, and %.9g when it was saved", e.loss, loss);
    lathe_run_close(run);
}

static void expect_same_file(const char *a, const char *b, int step, const char *file)
{
    lathe_safetensors *x = open_file(a, step, file), *y = open_file(b, step, file);
    cr_assert_eq(lathe_safetensors_count(x), lathe_safetensors_count(y));
    for (int64_t i = 0; i < lathe_safetensors_count(x); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(x, i);
        const lathe_st_tensor *u = lathe_safetensors_find(y, t->name);
        cr_assert(u, "%s", t->name);
        cr_expect_eq(memcmp(t->data, u->data, (size_t)lathe_desc_bytes(&t->desc)), 0, "%s",
                     t->name);
    }
    lathe_safetensors_close(x);
    lathe_safetensors_close(y);
}

static void resumes_with(const char *const *more, const char *file)
{
    settings whole = {.n = 0}, first = {.n = 0}, second = {.n = 0};
    set_reward(&whole, "whole");
    set_all(&whole, more);
    const double want = train_to(&whole, 5);
    set_reward(&first, "parts");
    set_all(&first, more);
    train_to(&first, 2);
    set_reward(&second, "parts");
    set_all(&second, more);
    cr_expect_eq(train_to(&second, 5), want);
    expect_same_file("whole", "parts", 5, file);
}

Test(stage_heads, a_resumed_reward_model_has_the_same_bits)
{
    static const char *const none[] = {NULL};
    resumes_with(none, "model.safetensors");
}

Test(stage_heads, a_resumed_reward_model_with_lora_has_the_same_bits)
{
    static const char *const lora[] = {"adapter.name=lora", "adapter.r=2", NULL};
    resumes_with(lora, "adapter_model.safetensors");
}

/* In bf16 the weights are rounded in the file; the head is computed in f32. */
Test(stage_heads, a_resumed_reward_model_in_bf16_has_the_same_bits)
{
    static const char *const bf16[] = {"train.precision=bf16", "checkpoint.save_dtype=bf16", NULL};
    resumes_with(bf16, "model.safetensors");
}

Test(stage_heads, a_score_trains_and_is_saved_beside_lora_as_peft_saves_it)
{
    settings s = {.n = 0};
    set_reward(&s, "out");
    set(&s, "adapter.name=lora");
    set(&s, "adapter.r=2");
    train_to(&s, 2);
    lathe_safetensors *set = open_file("out", 2, "adapter_model.safetensors");
    cr_expect(lathe_safetensors_find(set, "base_model.model.score.weight"));
    lathe_safetensors_close(set);
    json_t *config = open_json("out", 2, "adapter_config.json");
    cr_expect_str_eq(json_string_value(json_object_get(config, "task_type")), "SEQ_CLS");
    const json_t *saved = json_object_get(config, "modules_to_save");
    cr_expect_eq(json_array_size(saved), 1);
    cr_expect_str_eq(json_string_value(json_array_get(saved, 0)), "score");
    json_decref(config);
}

Test(stage_heads, begin_like_a_new_layer_of_the_model)
{
    settings s = {.n = 0};
    double square = 0.0;
    set_reward(&s, "out");
    set(&s, "model.initializer_range=0.5");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int32_t row = lathe_params_find(&run->params, "score.weight");
    cr_assert_geq(row, 0);
    cr_expect_eq(run->params.rows[row]->trainable, 1);
    const float *w = lathe_store_master(&run->store, row);
    for (int i = 0; i < 32; i++)
        square += (double)w[i] * (double)w[i];
    /* 32 numbers: the standard deviation is known to a factor of 1 +- 1/8 (one sigma) */
    cr_expect(square / 32.0 > 0.25 * 0.4 && square / 32.0 < 0.25 * 2.0, "%g", square / 32.0);
    lathe_run_close(run);
}

Test(stage_heads, a_reward_model_is_refused_where_a_language_model_is_needed)
{
    static const char *const parts[] = {"is a sequence classifier of 1 label",
                                        "no head over the vocabulary", "expected a language model",
                                        NULL};
    settings s = {.n = 0}, next = {.n = 0};
    lathe_run *run = NULL;
    set_reward(&s, "out");
    train_to(&s, 1);
    set_training(&next, "next");
    set(&next, "model.path=%s/out/step-00000001", folder);
    set(&next, "stage.name=dpo");
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, next.list, &run), LATHE_E_CONFIG);
    expect_parts(parts);
}

Test(stage_heads, samples_of_text_from_a_reward_model_are_refused)
{
    static const char *const parts[] = {"generate.every = 2", "generates no text", NULL};
    settings s = {.n = 0};
    lathe_run *run = NULL;
    set_reward(&s, "out");
    set(&s, "generate.every=2");
    set(&s, "generate.prompt=part");
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG);
    expect_parts(parts);
}

Test(stage_heads, text_of_a_reward_model_is_refused)
{
    static const char *const parts[] = {"stage \"rm\"", "which generates no text", NULL};
    settings s = {.n = 0};
    lathe_run *run = NULL;
    set_reward(&s, "out");
    cr_assert_eq(open_run_status(LATHE_OPEN_INFER, s.list, &run), LATHE_E_CONFIG);
    expect_parts(parts);
}

/* Removes the manifest, so that a changed configuration is not taken for damage. */
static void forget_hashes(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/out/step-00000001/manifest.json", folder);
    cr_assert_eq(unlink(path), 0);
}

Test(stage_heads, a_classifier_of_other_labels_is_refused)
{
    static const char *const parts[] = {"is a sequence classifier of 3 labels",
                                        "trains a score of 1", NULL};
    settings s = {.n = 0}, next = {.n = 0};
    lathe_run *run = NULL;
    char path[300];
    set_reward(&s, "out");
    train_to(&s, 1);
    json_t *config = open_json("out", 1, "config.json");
    cr_assert_eq(json_object_set_new(config, "id2label",
                                     json_pack("{s:s,s:s,s:s}", "0", "A", "1", "B", "2", "C")),
                 0);
    snprintf(path, sizeof path, "%s/out/step-00000001/config.json", folder);
    cr_assert_eq(json_dump_file(config, path, 0), 0);
    json_decref(config);
    forget_hashes();
    set_training(&next, "next");
    set(&next, "model.path=%s/out/step-00000001", folder);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, next.list, &run), LATHE_E_CONFIG);
    expect_parts(parts);
}

/* With every score 0 the loss of a pair is -log sigmoid(-margin). */
Test(stage_heads, a_column_margin_of_the_data_is_the_margin_of_the_pair)
{
    static const double margins[3] = {0.5, 0.0, 2.0}; /* the second record has no margin */
    settings s = {.n = 0};
    lathe_evaluation e;
    char path[256];
    double want = 0.0;
    snprintf(path, sizeof path, "%s/valid.jsonl", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 3; i++) {
        fprintf(f, "{\"prompt\": \"part %d: \", \"chosen\": \"good\", \"rejected\": \"no\"", i);
        if (i != 1)
            fprintf(f, ", \"margin\": %g", margins[i]);
        fprintf(f, "}\n");
        want += log1p(exp(margins[i])) / 3.0;
    }
    fclose(f);
    set_reward(&s, "out");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int32_t row = lathe_params_find(&run->params, "score.weight");
    memset(lathe_store_master(&run->store, row), 0, 32 * sizeof(float));
    OK(lathe_evaluate(run, 0, NULL, &e));
    cr_expect_float_eq(e.loss, want, 1e-6, "%.9g, want %.9g", e.loss, want);
    lathe_run_close(run);
}

/* Saved by the bytes tokenizer: pad is the end of text, 256. Without it the last token counts. */
Test(stage_heads, a_classifier_keeps_its_padding_token_or_has_none)
{
    settings s = {.n = 0}, again = {.n = 0}, without = {.n = 0};
    char path[300];
    set_reward(&s, "out");
    train_to(&s, 1);
    json_t *config = open_json("out", 1, "config.json");
    cr_expect_eq(json_integer_value(json_object_get(config, "pad_token_id")), 256);
    set_training(&again, "again");
    set(&again, "model.path=%s/out/step-00000001", folder);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, again.list);
    cr_expect_eq(run->model.pad, 256);
    lathe_run_close(run);
    cr_assert_eq(json_object_set_new(config, "pad_token_id", json_null()), 0);
    snprintf(path, sizeof path, "%s/out/step-00000001/config.json", folder);
    cr_assert_eq(json_dump_file(config, path, 0), 0);
    json_decref(config);
    forget_hashes();
    set_training(&without, "without");
    set(&without, "model.path=%s/out/step-00000001", folder);
    run = open_run(LATHE_OPEN_TRAIN, without.list);
    cr_expect_eq(run->model.pad, -1);
    lathe_run_close(run);
}

/* The stage distill and the teacher of a run: loss and gradients against PyTorch, memory, resuming,
 * refusals. Goldens: tests/golden/distill.py. */
#include "checkpoint/state/checkpoint.h"
#include "run/parts/teacher.h"
#include "support/golden_folders.h"
#include "support/padded_models.h"
#include "support/small_run.h"

enum { B = 2, T = 19 };

static char folder[] = "/tmp/lathe_distill_XXXXXX";

static void remove_folder(void)
{
    if (strstr(folder, "XXXXXX") == NULL) /* the test made it */
        (void)lathe_dir_remove(folder);
}

TestSuite(distill, .fini = remove_folder);

/* ---- against PyTorch ---- */

static const float *golden_tensor(const lathe_safetensors *golden, const char *what,
                                  const char *variant, const char *name)
{
    char key[256];
    snprintf(key, sizeof key, "%s.%s%s%s", what, variant, name ? "." : "", name ? name : "");
    const lathe_st_tensor *t = lathe_safetensors_find(golden, key);
    return t ? t->data : NULL;
}

static void check_gradients(const lathe_run *run, const lathe_safetensors *golden,
                            const char *variant, double n_targets, int expected)
{
    int n_seen = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *p = run->params.rows[i];
        const float *want = golden_tensor(golden, "grad", variant, p->name);
        const int64_t n = lathe_desc_count(&p->desc);
        if (!want)
            continue;
        const float *got = lathe_store_grad(&run->store, i);
        float *mean = malloc((size_t)n * sizeof *mean);
        for (int64_t k = 0; k < n; k++)
            mean[k] = got[k] / (float)n_targets;
        compare(p->name, mean, want, n, 1e-5);
        free(mean);
        n_seen++;
    }
    cr_expect_eq(n_seen, expected);
}

/* `file`: the golden in data/; `model`, `teacher`: paths of folders. */
static void check_models(const char *file, const char *model, const char *teacher,
                         const char *variant, const char *const *stage)
{
    settings s = {.n = 0};
    int32_t targets[B * T];
    lathe_safetensors *golden = NULL;
    lathe_forward_result f = {.size = sizeof f};
    char path[512];
    set(&s, "model.path=%s", model);
    set(&s, "teacher.path=%s", teacher);
    set(&s, "stage.name=distill");
    set_all(&s, stage);
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.micro_batch_size=%d", B);
    set(&s, "train.precision=fp32");
    set(&s, "train.head_chunk_rows=7");
    set(&s, "train.max_steps=10");
    (void)snprintf(path, sizeof path, PADDED_DATA "%s", file);
    OK(lathe_safetensors_open(path, &golden));
    const int32_t *ids = lathe_safetensors_find(golden, "input_ids")->data;
    const int32_t *mask = lathe_safetensors_find(golden, "mask")->data;
    double n = 0.0;
    for (int i = 0; i < B * T; i++) {
        targets[i] = mask[i] ? ids[i + 1] : -1;
        n += mask[i];
    }
    const lathe_run_batch batch = {
        .size = sizeof batch, .n_rows = B, .row_tokens = T, .tokens = ids, .targets = targets};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    const double loss = (double)*golden_tensor(golden, "loss", variant, NULL);
    const double ce = (double)*golden_tensor(golden, "cross_entropy", variant, NULL);
    const double d = (double)*golden_tensor(golden, "divergence", variant, NULL);
    cr_expect_eq(f.count, n);
    cr_expect_float_eq(f.loss_sum / n, loss, 1e-5 * loss, "%s: %.8f, PyTorch %.8f", variant,
                       f.loss_sum / n, loss);
    cr_expect_float_eq(run->sum.metric_sums[0] / n, ce, 1e-5 * ce);
    cr_expect_float_eq(run->sum.metric_sums[1] / n, d, 1e-5 * d);
    OK(lathe_backward(run, NULL));
    check_gradients(run, golden, variant, n, 5);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

static void check_variant(const char *variant, const char *const *stage)
{
    check_models("distill.safetensors", MODELS "llama_tied", MODELS "qwen2", variant, stage);
}

static const char *const forward[] = {"stage.alpha=0.3", "stage.temperature=2", NULL};
static const char *const reverse[] = {"stage.alpha=0.0", "stage.temperature=1.5",
                                      "stage.divergence=reverse", NULL};
static const char *const jsd[] = {"stage.alpha=0.5", "stage.divergence=jsd", "stage.beta=0.3",
                                  NULL};

Test(distill, forward_divergence_and_its_gradients_are_those_of_pytorch)
{
    check_variant("forward", forward);
}

Test(distill, reverse_divergence_and_its_gradients_are_those_of_pytorch)
{
    check_variant("reverse", reverse);
}

Test(distill, jensen_shannon_divergence_and_its_gradients_are_those_of_pytorch)
{
    check_variant("jsd", jsd);
}

/* One tokenizer, and embeddings of 128 rows in the model, 150 or 100 in the teacher. */
Test(distill, a_teacher_with_another_number_of_rows_is_that_of_pytorch)
{
    static const char *const teachers[] = {"more", "fewer"};
    static const char *const *const stages[] = {forward, reverse, jsd};
    static const char *const names[] = {"forward", "reverse", "jsd"};
    char padded[] = "/tmp/lathe_padded_XXXXXX", model[64], teacher[64], variant[64];
    padded_models_make(padded, "llama_tied");
    (void)snprintf(model, sizeof model, "%s/model", padded);
    for (int i = 0; i < 6; i++) {
        (void)snprintf(teacher, sizeof teacher, "%s/%s", padded, teachers[i / 3]);
        (void)snprintf(variant, sizeof variant, "%s.%s", names[i % 3], teachers[i / 3]);
        check_models("distill_padded.safetensors", model, teacher, variant, stages[i % 3]);
    }
    (void)lathe_dir_remove(padded);
}

/* ---- runs ---- */

static void write_examples(void)
{
    char path[256];
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/train.jsonl", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 16; i++)
        fprintf(f, "{\"prompt\": \"part %d: \", \"completion\": \"made in %d ways\"}\n", i, i % 3);
    fclose(f);
}

static void set_run(settings *s, const char *stage, const char *out)
{
    set(s, "data.datasets=[{path = \"%s/train.jsonl\"}]", folder);
    set(s, "data.cache_dir=%s/cache", folder);
    set(s, "checkpoint.dir=%s/%s", folder, out);
    set(s, "tokenizer.path=bytes");
    set(s, "log.progress=off");
    set(s, "data.seq_len=48");
    set(s, "stage.name=%s", stage);
    set(s, "optimizer.lr=5e-3");
    set(s, "scheduler.name=constant");
    set(s, "train.threads=1");
    set(s, "train.micro_batch_size=2");
}

static void train_to(settings *s, int steps)
{
    static char said[4096];
    lathe_train_result result;
    set(s, "train.max_steps=%d", steps);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    OK(train_said(run, said, sizeof said, &result));
    lathe_run_close(run);
}

/* A teacher of another width, with random weights, in bf16. */
static void make_teacher(const char *name)
{
    settings s = {.n = 0};
    set_run(&s, "sft", name);
    set_llama(&s, 1, 48, 2, 2, 64);
    set(&s, "checkpoint.save_dtype=bf16");
    train_to(&s, 1);
}

static void set_distill(settings *s, const char *out)
{
    set_run(s, "distill", out);
    set_llama(s, 1, 32, 2, 2, 64);
    set(s, "teacher.path=%s/teacher/step-00000001", folder);
    set(s, "train.precision=fp32");
}

static lathe_safetensors *open_file(const char *out, int step, const char *file)
{
    lathe_safetensors *set = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s/%s/step-%08d/%s", folder, out, step, file);
    OK(lathe_safetensors_open(path, &set));
    return set;
}

static void resumes_with(const char *const *more, const char *file)
{
    settings whole = {.n = 0}, first = {.n = 0}, second = {.n = 0};
    write_examples();
    make_teacher("teacher");
    set_distill(&whole, "whole");
    set_all(&whole, more);
    train_to(&whole, 5);
    set_distill(&first, "parts");
    set_all(&first, more);
    train_to(&first, 2);
    set_distill(&second, "parts");
    set_all(&second, more);
    train_to(&second, 5);
    lathe_safetensors *x = open_file("whole", 5, file), *y = open_file("parts", 5, file);
    cr_assert_eq(lathe_safetensors_count(x), lathe_safetensors_count(y));
    for (int64_t i = 0; i < lathe_safetensors_count(x); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(x, i);
        const lathe_st_tensor *u = lathe_safetensors_find(y, t->name);
        cr_assert(u && !strstr(t->name, "teacher"), "%s", t->name);
        cr_expect_eq(memcmp(t->data, u->data, (size_t)lathe_desc_bytes(&t->desc)), 0, "%s",
                     t->name);
    }
    lathe_safetensors_close(x);
    lathe_safetensors_close(y);
}

Test(distill, a_resumed_run_has_the_same_bits_and_saves_no_teacher)
{
    static const char *const none[] = {NULL};
    resumes_with(none, "model.safetensors");
}

Test(distill, a_resumed_run_with_lora_has_the_same_bits)
{
    static const char *const lora[] = {"adapter.name=lora", "adapter.r=2", NULL};
    resumes_with(lora, "adapter_model.safetensors");
}

/* bf16 weights beside an fp32 policy: half of 4 bytes a number, and vectors in f32. */
Test(distill, the_teacher_is_in_its_own_dtype_and_a_category_of_the_plan)
{
    settings s = {.n = 0};
    int64_t bytes = 0;
    write_examples();
    make_teacher("teacher");
    set_distill(&s, "out");
    set(&s, "train.max_steps=1");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const lathe_params *own = &run->teacher->params;
    for (int32_t i = 0; i < own->n; i++) {
        const int64_t n = lathe_desc_count(&own->rows[i]->desc);
        bytes += (n * (own->rows[i]->desc.rank < 2 ? 4 : 2) + 63) / 64 * 64;
    }
    cr_expect_eq(run->planned.by[LATHE_MEM_MODELS], bytes);
    cr_expect_eq(run->machine.used.by[LATHE_MEM_MODELS], bytes);
    cr_expect_eq(lathe_mem_total(&run->planned), lathe_mem_total(&run->machine.peak));
    lathe_run_close(run);
}

/* The arena of a training whose head takes `rows` tokens at a time. */
static int64_t arena_of(const char *out, const char *rows)
{
    settings s = {.n = 0};
    set_distill(&s, out);
    set(&s, "train.head_chunk_rows=%s", rows);
    set(&s, "train.max_steps=1");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int64_t bytes = run->programs.arena_bytes;
    lathe_run_close(run);
    return bytes;
}

/* The logits of both models for 96 tokens and 320 words in f32 take 245760 bytes, those of 8 tokens
 * a twelfth. At least half of what that saves is seen in the arena, where other values are as large
 * at other times. */
Test(distill, the_plan_holds_no_logits_of_the_whole_batch)
{
    write_examples();
    make_teacher("teacher");
    const int64_t chunks = arena_of("out", "8"), whole = arena_of("whole", "96");
    cr_expect_gt(whole - chunks, (int64_t)2 * 96 * 320 * 4 / 2, "%lld bytes instead of %lld",
                 (long long)chunks, (long long)whole);
}

/* ---- refusals ---- */

static void expect_refused(settings *s, const char *const *parts)
{
    lathe_run *run = NULL;
    set(s, "train.max_steps=1");
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s->list, &run), LATHE_E_CONFIG);
    expect_parts(parts);
}

Test(distill, without_a_teacher_is_refused)
{
    static const char *const parts[] = {"learns from a teacher", "set teacher.path", NULL};
    settings s = {.n = 0};
    write_examples();
    set_run(&s, "distill", "out");
    set_llama(&s, 1, 32, 2, 2, 64);
    expect_refused(&s, parts);
}

Test(distill, a_teacher_of_another_vocabulary_is_refused)
{
    static const char *const parts[] = {"the teacher has a vocabulary of 128 tokens",
                                        "the model one of 320", NULL};
    settings s = {.n = 0};
    write_examples();
    set_run(&s, "distill", "out");
    set_llama(&s, 1, 32, 2, 2, 64);
    set(&s, "teacher.path=" MODELS "qwen2");
    expect_refused(&s, parts);
}

Test(distill, a_teacher_of_fewer_positions_is_refused)
{
    static const char *const parts[] = {"the teacher has 64 positions", "data.seq_len = 80", NULL};
    settings s = {.n = 0};
    lathe_run *run = NULL;
    set(&s, "model.path=" MODELS "llama_untied");
    set(&s, "teacher.path=" MODELS "qwen2");
    set(&s, "stage.name=distill");
    set(&s, "data.seq_len=80");
    cr_assert_eq(open_run_status(LATHE_OPEN_BATCHES, s.list, &run), LATHE_E_CONFIG);
    expect_parts(parts);
}

Test(distill, a_teacher_that_is_no_language_model_or_no_folder_is_refused)
{
    static const char *const classifier[] = {"is a sequence classifier",
                                             "expected a language model", NULL};
    static const char *const missing[] = {"teacher.path: no such folder", NULL};
    settings s = {.n = 0}, t = {.n = 0};
    write_examples();
    set_run(&s, "distill", "out");
    set_llama(&s, 1, 32, 2, 2, 64);
    set(&s, "teacher.path=" LATHE_TEST_DATA "/golden/data/reward/llama");
    expect_refused(&s, classifier);
    set_run(&t, "distill", "out");
    set_llama(&t, 1, 32, 2, 2, 64);
    set(&t, "teacher.path=%s/nothing", folder);
    expect_refused(&t, missing);
}

/* The bytes tokenizer of the run, and the tokenizer in the folder of the teacher. */
Test(distill, a_teacher_with_another_tokenizer_is_refused)
{
    static const char *const parts[] = {"the teacher has another vocabulary", "token ", NULL};
    settings s = {.n = 0};
    char from[300], to[300];
    write_examples();
    make_teacher("teacher");
    snprintf(from, sizeof from, "%s/golden/data/tokenizer/llama3.json", LATHE_TEST_DATA);
    snprintf(to, sizeof to, "%s/teacher/step-00000001/tokenizer.json", folder);
    cr_assert_eq(symlink(from, to), 0);
    set_distill(&s, "out");
    expect_refused(&s, parts);
}

Test(distill, a_teacher_whose_weights_are_incomplete_is_refused_before_the_run_starts)
{
    static const char *const parts[] = {"model.safetensors", NULL};
    settings s = {.n = 0};
    char path[300];
    write_examples();
    make_teacher("teacher");
    snprintf(path, sizeof path, "%s/teacher/step-00000001/model.safetensors", folder);
    cr_assert_eq(remove(path), 0);
    set_distill(&s, "out");
    lathe_run *run = NULL;
    set(&s, "train.max_steps=1");
    cr_assert_neq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_OK);
    expect_parts(parts);
}

/* Distillation into a model whose head over the vocabulary has an adapter: loss and gradients
 * against PEFT and PyTorch, memory, resuming. Goldens: tests/golden/distill_adapted.py. */
#include "support/golden_folders.h"
#include "support/stored_case.h"

#define ADAPTERS LATHE_TEST_DATA "/golden/data/adapters/"
#define GOLDEN LATHE_TEST_DATA "/golden/data/distill_adapted.safetensors"

enum { B = 2, T = 19 };

TestSuite(distill_adapted, .init = setup, .fini = teardown);

/* ---- against PEFT ---- */

typedef struct variant {
    const char *name, *adapter, *model, *teacher;
    int n_trained;
    const char *stage[5];
    int vocab, k; /* k: of a stored teacher; 0: the teacher is a model of the run */
    double temperature;
} variant;

static const lathe_st_tensor *golden_tensor(const lathe_safetensors *golden, const char *what,
                                            const variant *v, const char *key)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s%s%s", what, v->name, key ? "." : "", key ? key : "");
    const lathe_st_tensor *t = lathe_safetensors_find(golden, name);
    cr_assert(t, "the golden file lacks %s", name);
    return t;
}

static double golden_number(const lathe_safetensors *golden, const char *what, const variant *v)
{
    return (double)*(const float *)golden_tensor(golden, what, v, NULL)->data;
}

/* All of them, under the names of PEFT's file. */
static void check_gradients(const lathe_run *run, const lathe_safetensors *golden, const variant *v,
                            double n_targets)
{
    const lathe_adapter_v1 *adapter = run->parts.adapter.table;
    int n_seen = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        const float *got = lathe_store_grad(&run->store, i);
        char key[512];
        if (!got)
            continue;
        adapter->file_key(run->parts.adapter.self, row->name, key, sizeof key);
        const lathe_st_tensor *want = golden_tensor(golden, "grad", v, key);
        const int64_t n = lathe_desc_count(&row->desc), cols = row->desc.dims[1];
        float *mean = malloc((size_t)n * sizeof *mean);
        for (int64_t k = 0; k < n; k++)
            mean[row->transposed ? k % cols * (n / cols) + k / cols : k] =
                got[k] / (float)n_targets;
        cr_assert_eq(lathe_desc_count(&want->desc), n);
        compare(key, mean, want->data, n, 1e-5);
        free(mean);
        n_seen++;
    }
    cr_expect_eq(n_seen, v->n_trained, "%s: %d gradients", v->name, n_seen);
}

static lathe_run *open_variant(const variant *v)
{
    settings s = {.n = 0};
    set(&s, "model.path=" MODELS "%s", v->model);
    set(&s, "model.adapter=" ADAPTERS "%s", v->adapter);
    set(&s, "stage.name=distill");
    set_all(&s, v->stage);
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.micro_batch_size=%d", B);
    set(&s, "train.precision=fp32");
    set(&s, "train.head_chunk_rows=7");
    set(&s, "train.max_steps=10");
    if (v->k == 0) {
        set(&s, "teacher.path=" MODELS "%s", v->teacher);
        return open_run(LATHE_OPEN_BATCHES, s.list);
    }
    make_empty_folder(v->k, v->temperature, T, v->vocab);
    set(&s, "tokenizer.path=bytes");
    set(&s, "teacher.stored=%s", in_folder("golden"));
    return open_run(LATHE_OPEN_BATCHES, s.list);
}

static void check_loss(const lathe_run *run, const lathe_safetensors *golden, const variant *v,
                       double sum, double n)
{
    const double loss = golden_number(golden, "loss", v),
                 d = golden_number(golden, "divergence", v);
    const double ce = golden_number(golden, "cross_entropy", v);
    cr_expect_float_eq(sum / n, loss, 1e-5 * loss, "%s: %.8f, PyTorch %.8f", v->name, sum / n,
                       loss);
    cr_expect_float_eq(run->sum.metric_sums[0] / n, ce, 1e-5 * ce);
    cr_expect_float_eq(run->sum.metric_sums[1] / n, d, 1e-5 * d, "%s: %.8f, PyTorch %.8f", v->name,
                       run->sum.metric_sums[1] / n, d);
}

static void check_variant(const variant *v)
{
    int32_t targets[B * T];
    lathe_safetensors *golden = NULL;
    lathe_forward_result f = {.size = sizeof f};
    double n = 0.0;
    OK(lathe_safetensors_open(GOLDEN, &golden));
    const int32_t *ids = lathe_safetensors_find(golden, "input_ids")->data;
    const int32_t *mask = lathe_safetensors_find(golden, "mask")->data;
    for (int i = 0; i < B * T; i++) {
        targets[i] = mask[i] ? ids[i + 1] : -1;
        n += mask[i];
    }
    lathe_batch_input inputs[2] = {{"teacher_logprobs", NULL}, {"teacher_tokens", NULL}};
    if (v->k > 0) {
        inputs[0].values = golden_tensor(golden, "values", v, NULL)->data;
        inputs[1].values = golden_tensor(golden, "tokens", v, NULL)->data;
    }
    const lathe_run_batch batch = {.size = sizeof batch,
                                   .n_rows = B,
                                   .row_tokens = T,
                                   .tokens = ids,
                                   .targets = targets,
                                   .inputs = v->k > 0 ? inputs : NULL,
                                   .n_inputs = v->k > 0 ? 2 : 0};
    lathe_run *run = open_variant(v);
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    cr_expect_eq(f.count, n);
    check_loss(run, golden, v, f.loss_sum, n);
    OK(lathe_backward(run, NULL));
    check_gradients(run, golden, v, n);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

Test(distill_adapted, lora_of_an_untied_head_learns_the_reverse_divergence)
{
    const variant v = {
        .name = "untied_lora",
        .adapter = "outer_untied",
        .model = "llama_untied",
        .teacher = "qwen2",
        .n_trained = 8,
        .stage = {"stage.alpha=0", "stage.temperature=1.5", "stage.divergence=reverse"}};
    check_variant(&v);
}

Test(distill_adapted, lora_of_a_tied_head_learns_the_forward_divergence)
{
    const variant v = {.name = "tied_lora",
                       .adapter = "outer_apart",
                       .model = "llama_tied",
                       .teacher = "qwen2",
                       .n_trained = 4,
                       .stage = {"stage.alpha=0.3", "stage.temperature=2"}};
    check_variant(&v);
}

Test(distill_adapted, dora_of_an_untied_head_learns_the_jensen_shannon_divergence)
{
    const variant v = {.name = "untied_dora",
                       .adapter = "outer_dora_head",
                       .model = "llama_untied",
                       .teacher = "qwen2",
                       .n_trained = 12,
                       .stage = {"stage.alpha=0.5", "stage.divergence=jsd", "stage.beta=0.3"}};
    check_variant(&v);
}

Test(distill_adapted, dora_of_a_tied_head_with_a_softcap_learns_the_forward_divergence)
{
    const variant v = {.name = "tied_dora",
                       .adapter = "outer_dora_softcap",
                       .model = "gemma2",
                       .teacher = "gemma3",
                       .n_trained = 3,
                       .stage = {"stage.alpha=0.3", "stage.temperature=2"}};
    check_variant(&v);
}

Test(distill_adapted, lora_that_embedding_and_head_share_learns_the_jensen_shannon_divergence)
{
    const variant v = {.name = "shared_lora",
                       .adapter = "outer_shared",
                       .model = "llama_tied",
                       .teacher = "qwen2",
                       .n_trained = 6,
                       .stage = {"stage.alpha=0.3", "stage.temperature=1.5", "stage.divergence=jsd",
                                 "stage.beta=0.6"}};
    check_variant(&v);
}

Test(distill_adapted, lora_that_embedding_and_head_share_learns_stored_tokens_and_all_others)
{
    const variant v = {
        .name = "stored_shared_lora",
        .adapter = "outer_shared",
        .model = "llama_tied",
        .n_trained = 6,
        .stage = {"stage.alpha=0.2", "stage.temperature=2", "stage.divergence=reverse"},
        .vocab = 128,
        .k = 4,
        .temperature = 2.0};
    check_variant(&v);
}

Test(distill_adapted, lora_of_an_untied_head_learns_the_stored_tokens_alone)
{
    const variant v = {.name = "stored_untied_lora",
                       .adapter = "outer_untied",
                       .model = "llama_untied",
                       .n_trained = 8,
                       .stage = {"stage.alpha=0.3", "stage.temperature=2", "stage.add_tail=false"},
                       .vocab = 128,
                       .k = 6,
                       .temperature = 1.0};
    check_variant(&v);
}

Test(distill_adapted, lora_of_a_tied_head_learns_stored_tokens_and_all_others)
{
    const variant v = {.name = "stored_tied_lora",
                       .adapter = "outer_apart",
                       .model = "llama_tied",
                       .n_trained = 4,
                       .stage = {"stage.divergence=jsd", "stage.beta=0.3"},
                       .vocab = 128,
                       .k = 3,
                       .temperature = 1.0};
    check_variant(&v);
}

Test(distill_adapted, dora_of_an_untied_head_learns_stored_tokens_and_all_others)
{
    const variant v = {.name = "stored_untied_dora",
                       .adapter = "outer_dora_head",
                       .model = "llama_untied",
                       .n_trained = 12,
                       .stage = {"stage.alpha=0.3", "stage.temperature=2"},
                       .vocab = 128,
                       .k = 5,
                       .temperature = 2.0};
    check_variant(&v);
}

Test(distill_adapted, dora_of_a_tied_head_with_a_softcap_learns_the_stored_tokens_alone)
{
    const variant v = {.name = "stored_tied_dora",
                       .adapter = "outer_dora_softcap",
                       .model = "gemma2",
                       .n_trained = 3,
                       .stage = {"stage.alpha=0", "stage.divergence=jsd", "stage.beta=0.7",
                                 "stage.add_tail=false"},
                       .vocab = 64,
                       .k = 4,
                       .temperature = 1.0};
    check_variant(&v);
}

/* ---- runs ---- */

static void set_adapter(settings *s, const char *name)
{
    set(s, "adapter.name=%s", name);
    set(s, "adapter.r=2");
    set(s, "adapter.target_modules=[\"q_proj\", \"lm_head\"]");
}

/* A run of the adapter `name`, on the teacher or on what is stored of it. */
static void set_learner(settings *s, const char *name, int is_stored, const char *out)
{
    set_student(s, out);
    set_adapter(s, name);
    if (is_stored)
        set(s, "teacher.stored=%s", in_folder("top"));
    else
        set(s, "teacher.path=%s", in_folder("teacher/step-00000001"));
}

static void run_to(const char *name, int is_stored, const char *out, int steps)
{
    settings s = {.n = 0};
    set_learner(&s, name, is_stored, out);
    train_to(&s, steps);
}

static lathe_safetensors *saved(const char *out)
{
    lathe_safetensors *set = NULL;
    char name[200];
    snprintf(name, sizeof name, "%s/step-00000005/adapter_model.safetensors", out);
    OK(lathe_safetensors_open(in_folder(name), &set));
    return set;
}

static void check_resuming(const char *name, int is_stored)
{
    int has_head = 0;
    run_to(name, is_stored, "whole", 5);
    run_to(name, is_stored, "parts", 2);
    run_to(name, is_stored, "parts", 5);
    lathe_safetensors *x = saved("whole"), *y = saved("parts");
    cr_assert_eq(lathe_safetensors_count(x), lathe_safetensors_count(y));
    for (int64_t i = 0; i < lathe_safetensors_count(x); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(x, i);
        const lathe_st_tensor *u = lathe_safetensors_find(y, t->name);
        has_head += strstr(t->name, "lm_head") != NULL;
        cr_assert(u, "%s", t->name);
        cr_expect_eq(memcmp(t->data, u->data, (size_t)lathe_desc_bytes(&t->desc)), 0, "%s",
                     t->name);
    }
    cr_expect_eq(has_head, strcmp(name, "dora") == 0 ? 3 : 2);
    lathe_safetensors_close(x);
    lathe_safetensors_close(y);
    OK(lathe_dir_remove(in_folder("whole")));
    OK(lathe_dir_remove(in_folder("parts")));
}

Test(distill_adapted, a_resumed_run_has_the_same_bits)
{
    make_teacher();
    (void)store_k("top", 6);
    for (int i = 0; i < 4; i++)
        check_resuming(i % 2 ? "dora" : "lora", i / 2);
}

/* A training whose head takes `rows` tokens at a time. */
static lathe_run *open_learner(const char *name, int is_stored, const char *rows)
{
    settings s = {.n = 0};
    set_learner(&s, name, is_stored, "out");
    set(&s, "train.head_chunk_rows=%s", rows);
    set(&s, "train.max_steps=1");
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

/* 96 tokens and 320 words. The products and, with the magnitude, their multiples take 4 bytes each;
 * those of 8 tokens a twelfth. */
static void check_memory(const char *name, int is_stored)
{
    int64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        lathe_run *run = open_learner(name, is_stored, i ? "96" : "8");
        bytes[i] = run->programs.arena_bytes;
        cr_expect_eq(lathe_mem_total(&run->planned), lathe_mem_total(&run->machine.peak));
        lathe_run_close(run);
    }
    cr_expect_gt(bytes[1] - bytes[0], (int64_t)96 * V * 4 / 2, "%s: %lld bytes instead of %lld",
                 name, (long long)bytes[0], (long long)bytes[1]);
}

Test(distill_adapted, the_plan_is_exact_and_holds_no_logits_of_the_whole_batch)
{
    make_teacher();
    (void)store_k("top", 6);
    for (int i = 0; i < 4; i++)
        check_memory(i % 2 ? "dora" : "lora", i / 2);
}

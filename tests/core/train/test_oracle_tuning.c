/* Fine-tuning compared with the libraries that define it: DPO's loss, rewards and gradients (TRL),
 * LoRA's logits, gradients and files (PEFT), NF4's logits (bitsandbytes). From
 * tests/golden/runs.py. */
#include <unistd.h>

#include "base/fs.h"
#include "checkpoint/state/adapter_file.h"
#include "run/state/run_saved.h"
#include "support/run_case.h"

#define RUNS LATHE_TEST_DATA "/golden/data/runs/"

enum { PAIRS = 3, PAIR_TOKENS = 20, DPO_STEPS = 4, B = 2, T = 23 };

static const lathe_st_tensor *tensor(const lathe_safetensors *golden, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(golden, name);
    cr_assert(t, "the golden lacks %s", name);
    return t;
}

/* A parameter's name in the golden: the model's own, or PEFT's key. */
static void golden_key(const lathe_run *run, int32_t param, char *out, int64_t capacity)
{
    const lathe_adapter_v1 *adapter = run->parts.adapter.table;
    const char *name = run->params.rows[param]->name;
    int64_t n = snprintf(out, (size_t)capacity, "grad.");
    if (param >= run->params.n_model)
        adapter->file_key(run->parts.adapter.self, name, out + n, capacity - n);
    else
        snprintf(out + n, (size_t)(capacity - n), "%s", name);
}

/* Checks every gradient, divided by count; returns their number. */
static int32_t check_gradients(const lathe_run *run, const lathe_safetensors *golden, double count,
                               double tolerance)
{
    int32_t n_checked = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const float *got = lathe_store_grad(&run->store, i);
        if (!got)
            continue;
        char key[256];
        golden_key(run, i, key, (int64_t)sizeof key);
        const int64_t n = lathe_desc_count(&run->params.rows[i]->desc);
        float *mean = malloc((size_t)n * sizeof *mean);
        for (int64_t k = 0; k < n; k++)
            mean[k] = got[k] / (float)count;
        cr_assert_eq(lathe_desc_count(&tensor(golden, key)->desc), n);
        compare(key, mean, tensor(golden, key)->data, n, tolerance);
        free(mean);
        n_checked++;
    }
    return n_checked;
}

/* ---- DPO ---- */

static double golden_f64(const lathe_safetensors *golden, const char *name, int64_t at)
{
    return ((const double *)tensor(golden, name)->data)[at];
}

/* 1e-4 of the value, or of the sums of log-probabilities (about 70 each) whose difference it is. */
static void check_figure(const char *what, int64_t step, double got, double want)
{
    cr_assert_float_eq(got, want, 1e-4 * fabs(want) + 2e-6, "%s, step %lld: %.9g, TRL's %.9g", what,
                       (long long)step + 1, got, want);
}

static void preference_steps(lathe_run *run, const lathe_safetensors *golden)
{
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 2 * PAIRS,
                                   .row_tokens = PAIR_TOKENS,
                                   .tokens = tensor(golden, "tokens")->data,
                                   .targets = tensor(golden, "targets")->data};
    for (int64_t step = 0; step < DPO_STEPS; step++) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
        cr_assert_eq(f.count, (double)PAIRS);
        check_figure("loss", step, f.loss_sum / f.count, golden_f64(golden, "loss", step));
        cr_assert_eq(run->programs.train.stage.n_metrics, 6);
        for (int32_t i = 0; i < 6; i++)
            check_figure(run->programs.train.stage.metrics[i].name, step,
                         run->sum.metric_sums[i] / (double)PAIRS,
                         golden_f64(golden, run->programs.train.stage.metrics[i].name, step));
        OK(lathe_backward(run, NULL));
        if (step + 1 < DPO_STEPS)
            OK(lathe_step(run, NULL));
    }
}

static void check_preferences(const char *name, const char *const *settings, int32_t n_gradients)
{
    char path[512];
    lathe_safetensors *golden;
    snprintf(path, sizeof path, RUNS "%s.safetensors", name);
    OK(lathe_safetensors_open(path, &golden));
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    if (run->params.n > run->params.n_model && !run->params.has_reference)
        OK(lathe__adapter_file_read(lathe__run_saved(run), RUNS "lora"));
    preference_steps(run, golden);
    cr_assert_eq(check_gradients(run, golden, PAIRS, 2e-4), n_gradients);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

#define DPO_SETTINGS                                                                               \
    "stage.name=dpo", "stage.beta=0.1", "data.seq_len=20", "train.micro_batch_size=3",             \
        "train.precision=fp32", "train.max_steps=1000000000", "train.max_grad_norm=1.0",           \
        "optimizer.name=adamw", "optimizer.lr=2e-3", "optimizer.beta2=0.95",                       \
        "optimizer.weight_decay=0", "scheduler.name=cosine"

Test(oracle_tuning, dpo_with_a_reference_copy_agrees_with_trl)
{
    static const char *const settings[] = {"model.path=" MODELS "llama_tied", "adapter.name=full",
                                           DPO_SETTINGS, NULL};
    check_preferences("dpo_full", settings, 20);
}

Test(oracle_tuning, dpo_over_a_frozen_base_agrees_with_trl)
{
    static const char *const settings[] = {"model.path=" MODELS "llama_untied",
                                           "adapter.name=lora",
                                           "adapter.r=4",
                                           "adapter.alpha=6",
                                           "adapter.target_modules=[\"q_proj\", \"v_proj\"]",
                                           DPO_SETTINGS,
                                           NULL};
    check_preferences("dpo_lora", settings, 8);
}

Test(oracle_tuning, dpo_agrees_with_trl_when_layers_are_computed_again)
{
    static const char *const settings[] = {"model.path=" MODELS "llama_tied", "adapter.name=full",
                                           "train.recompute=layer", DPO_SETTINGS, NULL};
    check_preferences("dpo_full", settings, 20);
}

/* ---- LoRA and NF4 ---- */

/* The batch of models.py: tokens, each the target of the one before. */
typedef struct next_token_case {
    lathe_safetensors *model;
    int32_t targets[B * T];
    lathe_run_batch batch;
} next_token_case;

static void next_token_open(next_token_case *c)
{
    OK(lathe_safetensors_open(MODELS "llama_untied/golden.safetensors", &c->model));
    const int32_t *ids = tensor(c->model, "input_ids")->data;
    for (int i = 0; i < B * T; i++)
        c->targets[i] = i % T == T - 1 ? -1 : ids[i + 1];
    c->batch = (lathe_run_batch){.size = (uint32_t)sizeof c->batch,
                                 .n_rows = B,
                                 .row_tokens = T,
                                 .tokens = ids,
                                 .targets = c->targets};
}

#define LORA_SETTINGS                                                                              \
    "model.path=" MODELS "llama_untied", "adapter.name=lora", "adapter.r=4", "adapter.alpha=6",    \
        "adapter.target_modules=[\"q_proj\", \"v_proj\"]", "data.seq_len=23",                      \
        "train.micro_batch_size=2", "train.precision=fp32", "train.max_steps=20"

Test(oracle_tuning, lora_agrees_with_peft)
{
    static const char *const settings[] = {LORA_SETTINGS, NULL};
    lathe_safetensors *golden;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    next_token_case c;
    OK(lathe_safetensors_open(RUNS "lora/golden.safetensors", &golden));
    next_token_open(&c);
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    OK(lathe_forward(run, &c.batch, LATHE_FORWARD_LOGITS, &f));
    compare("a fresh adapter changes nothing", f.logits, tensor(c.model, "logits")->data,
            B * T * f.vocab_size, 2e-5);
    OK(lathe__adapter_file_read(lathe__run_saved(run), RUNS "lora"));
    OK(lathe_forward(run, &c.batch, LATHE_FORWARD_LOGITS, &f));
    compare("logits", f.logits, tensor(golden, "logits")->data, B * T * f.vocab_size, 2e-5);
    OK(lathe_forward(run, &c.batch, LATHE_FORWARD_TRAIN, &f));
    const double want = golden_f64(golden, "loss", 0);
    cr_assert_float_eq(f.loss_sum / f.count, want, 1e-5 * want);
    OK(lathe_backward(run, NULL));
    cr_assert_eq(check_gradients(run, golden, f.count, 1e-4), 8);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
    lathe_safetensors_close(c.model);
}

Test(oracle_tuning, lora_writes_the_file_that_peft_writes)
{
    static const char *const settings[] = {LORA_SETTINGS, NULL};
    char dir[] = "/tmp/lathe-lora-XXXXXX", saved[64], file[96];
    lathe_safetensors *ours, *peft;
    cr_assert(mkdtemp(dir));
    snprintf(saved, sizeof saved, "%s/adapter", dir);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", saved);
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    OK(lathe__adapter_file_read(lathe__run_saved(run), RUNS "lora"));
    OK(lathe_save(run, saved));
    lathe_run_close(run);
    OK(lathe_safetensors_open(file, &ours));
    OK(lathe_safetensors_open(RUNS "lora/adapter_model.safetensors", &peft));
    cr_assert_eq(lathe_safetensors_count(ours), 8);
    cr_assert_eq(lathe_safetensors_count(peft), 8);
    for (int64_t i = 0; i < 8; i++) {
        const lathe_st_tensor *want = lathe_safetensors_at(peft, i);
        const lathe_st_tensor *got = tensor(ours, want->name);
        cr_assert_eq(memcmp(&got->desc, &want->desc, sizeof got->desc), 0, "%s", want->name);
        cr_assert_eq(memcmp(got->data, want->data, (size_t)lathe_desc_bytes(&want->desc)), 0, "%s",
                     want->name);
    }
    lathe_safetensors_close(ours);
    lathe_safetensors_close(peft);
    OK(lathe_dir_remove(dir));
}

Test(oracle_tuning, nf4_logits_are_those_of_bitsandbytes_weights_and_lora_trains_on_them)
{
    static const char *const settings[] = {LORA_SETTINGS,           "quant.name=nf4",
                                           "optimizer.name=adamw",  "optimizer.lr=3e-2",
                                           "scheduler.name=cosine", NULL};
    lathe_safetensors *golden;
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    next_token_case c;
    OK(lathe_safetensors_open(RUNS "nf4.safetensors", &golden));
    next_token_open(&c);
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    OK(lathe_forward(run, &c.batch, LATHE_FORWARD_LOGITS, &f));
    compare("nf4 logits", f.logits, tensor(golden, "logits")->data, B * T * f.vocab_size, 2e-5);
    double first = 0.0, loss = 0.0;
    for (int step = 0; step < 20; step++) {
        OK(lathe_forward(run, &c.batch, LATHE_FORWARD_TRAIN, &f));
        loss = f.loss_sum / f.count;
        first = step == 0 ? loss : first;
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, NULL));
    }
    cr_assert(loss < 0.9 * first, "the loss went from %g to %g in 20 steps", first, loss);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
    lathe_safetensors_close(c.model);
}

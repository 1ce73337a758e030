/* DPO whose reference is another adapter over the same base: losses, rewards and gradients of PEFT
 * with two adapters (tests/golden/reference_adapter.py), and what a run refuses. */
#include "support/run_case.h"

#define ADAPTERS LATHE_TEST_DATA "/golden/data/adapters/"
#define RUNS LATHE_TEST_DATA "/golden/data/runs/"

enum { PAIRS = 3, PAIR_TOKENS = 20, STEPS = 4 };

#define DPO_SETTINGS                                                                               \
    "stage.name=dpo", "stage.beta=0.1", "data.seq_len=20", "train.micro_batch_size=3",             \
        "train.precision=fp32", "train.max_steps=1000000000", "train.max_grad_norm=1.0",           \
        "optimizer.name=adamw", "optimizer.lr=2e-3", "optimizer.beta2=0.95",                       \
        "optimizer.weight_decay=0", "scheduler.name=constant"

static const lathe_st_tensor *tensor(const lathe_safetensors *golden, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(golden, name);
    cr_assert(t, "the golden lacks %s", name);
    return t;
}

/* 1e-4 of the value, or of the sums of log-probabilities (about 70 each) whose difference it is. */
static void check_figure(const lathe_safetensors *golden, const char *what, int step, double got)
{
    const double want = ((const double *)tensor(golden, what)->data)[step];
    cr_assert_float_eq(got, want, 1e-4 * fabs(want) + 2e-6, "%s, step %d: %.9g, PEFT's %.9g", what,
                       step + 1, got, want);
}

static int32_t check_gradients(const lathe_run *run, const lathe_safetensors *golden)
{
    const lathe_adapter_v1 *adapter = run->parts.adapter.table;
    int32_t checked = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        const float *got = lathe_store_grad(&run->store, i);
        char key[256] = "grad.";
        if (!got)
            continue;
        adapter->file_key(run->parts.adapter.self, row->name, key + 5, (int64_t)sizeof key - 5);
        const int64_t n = lathe_desc_count(&row->desc), cols = row->desc.dims[1];
        float *mean = malloc((size_t)n * sizeof *mean);
        for (int64_t k = 0; k < n; k++)
            mean[row->transposed ? k % cols * (n / cols) + k / cols : k] = got[k] / (float)PAIRS;
        cr_assert_eq(lathe_desc_count(&tensor(golden, key)->desc), n);
        compare(key, mean, tensor(golden, key)->data, n, 5e-4);
        free(mean);
        checked++;
    }
    return checked;
}

static void check_case(const char *name, const char *policy, const char *reference,
                       int32_t n_gradients)
{
    char path[512], begin[512], other[512];
    lathe_safetensors *golden, *pairs;
    snprintf(path, sizeof path, ADAPTERS "reference_%s.safetensors", name);
    snprintf(begin, sizeof begin, "model.adapter=" ADAPTERS "%s", policy);
    snprintf(other, sizeof other, "model.reference_adapter=" ADAPTERS "%s", reference);
    OK(lathe_safetensors_open(path, &golden));
    OK(lathe_safetensors_open(RUNS "dpo_lora.safetensors", &pairs));
    const char *settings[] = {"model.path=" MODELS "llama_untied", begin, other, DPO_SETTINGS,
                              NULL};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 2 * PAIRS,
                                   .row_tokens = PAIR_TOKENS,
                                   .tokens = tensor(pairs, "tokens")->data,
                                   .targets = tensor(pairs, "targets")->data};
    for (int step = 0; step < STEPS; step++) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
        check_figure(golden, "loss", step, f.loss_sum / f.count);
        cr_assert_eq(run->programs.train.stage.n_metrics, 6);
        for (int32_t i = 0; i < 6; i++)
            check_figure(golden, run->programs.train.stage.metrics[i].name, step,
                         run->sum.metric_sums[i] / (double)PAIRS);
        OK(lathe_backward(run, NULL));
        if (step + 1 < STEPS)
            OK(lathe_step(run, NULL));
    }
    cr_expect_eq(check_gradients(run, golden), n_gradients);
    /* the base is in memory once: what is added are the frozen matrices of the adapter */
    int64_t n_added = 0;
    for (int32_t i = 0; i < run->params.n; i++)
        n_added +=
            run->params.rows[i]->reference ? lathe_desc_count(&run->params.rows[i]->desc) : 0;
    cr_expect_lt(n_added, lathe_desc_count(&run->params.rows[0]->desc) * 4);
    cr_expect_gt(n_added, 0);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
    lathe_safetensors_close(pairs);
}

Test(reference_adapter, the_policy_has_the_embedding_and_the_head)
{
    check_case("other", "outer_untied", "merge_b", 8);
}

Test(reference_adapter, the_reference_has_the_embedding_and_the_head)
{
    check_case("outer", "merge_a", "outer_untied", 8);
}

static void refused(const char *reference, const char *stage, const char *more, const char *why)
{
    char other[512];
    lathe_run *run = NULL;
    snprintf(other, sizeof other, "model.reference_adapter=%s", reference);
    const char *settings[] = {"model.path=" MODELS "llama_untied",
                              "adapter.name=lora",
                              "data.seq_len=20",
                              "train.precision=fp32",
                              "train.max_steps=4",
                              stage,
                              other,
                              more,
                              NULL};
    cr_assert_eq(open_run_status(LATHE_OPEN_BATCHES, settings, &run), LATHE_E_CONFIG, "%s", why);
    cr_expect(strstr(lathe_error_message(), why), "no '%s' in: %s", why, lathe_error_message());
}

Test(reference_adapter, without_a_use_or_an_adapter_is_refused)
{
    static const char dpo[] = "stage.name=dpo";
    refused(ADAPTERS "merge_a", "stage.name=pretrain", NULL,
            "model.reference_adapter has no effect: stage \"pretrain\"");
    refused(ADAPTERS "merge_a", dpo, "stage.reference_free=true", "compares with no reference");
    refused("/nowhere", dpo, NULL, "model.reference_adapter: no such folder: /nowhere");
    refused(MODELS "llama_untied", dpo, NULL, "has no adapter_model.safetensors");
}

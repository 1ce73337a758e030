/* Models with experts: 50 steps of AdamW with the load balancing loss on, compared with PyTorch's
 * and transformers', and how the figures of routers are shown. Goldens: tests/golden/experts.py. */
#include "checkpoint/state/adapter_file.h"
#include "files/safetensors/expert_tensors.h"
#include "run/state/run_saved.h"
#include "support/run_case.h"

enum { B = 2, T = 16 };

#define RUNS LATHE_TEST_DATA "/golden/data/runs/"

static const lathe_st_tensor *tensor(const lathe_safetensors *golden, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(golden, name);
    cr_assert(t, "the golden lacks %s", name);
    return t;
}

static double metric(const lathe_run *run, const char *name)
{
    for (int32_t i = 0; i < run->programs.train.stage.n_metrics; i++)
        if (strcmp(run->programs.train.stage.metrics[i].name, name) == 0)
            return run->sum.metric_sums[i];
    cr_assert(0, "no figure %s", name);
    return 0.0;
}

/* One step; *out_aux: the load balancing loss of its batch. */
static double one_step(lathe_run *run, const lathe_safetensors *golden, int64_t step,
                       double *out_aux)
{
    const lathe_st_tensor *tokens = tensor(golden, "tokens");
    const int64_t at = step % tokens->desc.dims[0] * B * T;
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = B,
                                   .row_tokens = T,
                                   .tokens = (const int32_t *)tokens->data + at,
                                   .targets =
                                       (const int32_t *)tensor(golden, "targets")->data + at};
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    lathe_step_result r = {.size = (uint32_t)sizeof r};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    *out_aux = metric(run, "router_aux_loss") / f.count;
    OK(lathe_backward(run, NULL));
    OK(lathe_step(run, &r));
    return r.loss;
}

static void replay(const char *name, const char *const *kept)
{
    char path[512], model[512];
    lathe_safetensors *golden;
    snprintf(path, sizeof path, RUNS "experts_%s.safetensors", name);
    snprintf(model, sizeof model, "model.path=" MODELS "%s", name);
    const char *const settings[] = {model,
                                    "data.seq_len=16",
                                    "train.micro_batch_size=2",
                                    "train.precision=fp32",
                                    "train.max_steps=50",
                                    "train.max_grad_norm=0",
                                    "optimizer.name=adamw",
                                    "optimizer.lr=1e-3",
                                    "optimizer.beta2=0.999",
                                    "optimizer.weight_decay=0.1",
                                    "scheduler.name=constant",
                                    NULL};
    OK(lathe_safetensors_open(path, &golden));
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    const int64_t n_steps = tensor(golden, "loss")->desc.dims[0];
    double worst = 0.0, worst_aux = 0.0;
    for (int64_t step = 0; step < n_steps; step++) {
        const double want = ((const double *)tensor(golden, "loss")->data)[step];
        const double want_aux = ((const double *)tensor(golden, "aux_loss")->data)[step];
        double aux;
        const double got = one_step(run, golden, step, &aux);
        worst = fmax(worst, fabs(got - want));
        worst_aux = fmax(worst_aux, fabs(aux - want_aux));
        cr_assert(fabs(got - want) <= 1e-5, "%s, step %lld: loss %.9g, transformers' %.9g", name,
                  (long long)step + 1, got, want);
        cr_assert(fabs(aux - want_aux) <= 1e-5, "%s, step %lld: aux loss %.9g, not %.9g", name,
                  (long long)step + 1, aux, want_aux);
    }
    printf("%s, %lld steps, largest errors: loss %.2g, aux_loss %.2g\n", name, (long long)n_steps,
           worst, worst_aux);
    for (int i = 0; kept[i]; i++) {
        char key[256];
        snprintf(key, sizeof key, "final.%s", kept[i]);
        const int32_t param = lathe_params_find(&run->params, kept[i]);
        cr_assert(param >= 0, "no parameter %s", kept[i]);
        compare(key, lathe_store_master(&run->store, param), tensor(golden, key)->data,
                lathe_desc_count(&run->params.rows[param]->desc), 1e-3);
    }
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

Test(oracle_experts, fifty_steps_of_mixtral_have_the_losses_of_transformers)
{
    static const char *const kept[] = {"model.layers.1.block_sparse_moe.experts.w2.weight",
                                       "model.layers.1.block_sparse_moe.gate.weight", NULL};
    replay("mixtral", kept);
}

Test(oracle_experts, fifty_steps_of_olmoe_have_the_losses_of_transformers)
{
    static const char *const kept[] = {"model.layers.1.mlp.experts.down_proj.weight",
                                       "model.layers.1.mlp.gate.weight", NULL};
    replay("olmoe", kept);
}

Test(oracle_experts, fifty_steps_of_qwen3_moe_have_the_losses_of_transformers)
{
    static const char *const kept[] = {"model.layers.1.mlp.experts.down_proj.weight",
                                       "model.layers.1.mlp.gate.weight", NULL};
    replay("qwen3_moe_step", kept);
}

Test(oracle_experts, fifty_steps_of_gpt_oss_have_the_losses_of_transformers)
{
    static const char *const kept[] = {"model.layers.1.mlp.experts.down_proj",
                                       "model.layers.1.mlp.experts.gate_up_proj",
                                       "model.layers.1.mlp.experts.gate_up_proj_bias",
                                       "model.layers.1.mlp.router.weight",
                                       "model.layers.1.self_attn.sinks",
                                       NULL};
    replay("gpt_oss", kept);
}

/* Batch k of a golden, whose row 1 ends in padding. */
static lathe_run_batch padded_batch(const lathe_safetensors *golden, int64_t k)
{
    const lathe_st_tensor *tokens = tensor(golden, "tokens");
    const int64_t at = k % tokens->desc.dims[0] * B * T;
    return (lathe_run_batch){.size = (uint32_t)sizeof(lathe_run_batch),
                             .n_rows = B,
                             .row_tokens = T,
                             .tokens = (const int32_t *)tokens->data + at,
                             .targets = (const int32_t *)tensor(golden, "targets")->data + at,
                             .doc_start = (const int32_t *)tensor(golden, "doc_start")->data + at};
}

/* Compares loss, balance and z-loss of each step. */
Test(oracle_experts, balance_by_layer_and_z_loss_are_those_of_pytorch)
{
    static const char *const settings[] = {"model.path=" MODELS "glm4_moe",
                                           "moe.balance_loss=0.02",
                                           "moe.balance_over=layer",
                                           "moe.z_loss=0.01",
                                           "data.seq_len=16",
                                           "train.micro_batch_size=2",
                                           "train.precision=fp32",
                                           "train.max_steps=10",
                                           "train.max_grad_norm=0",
                                           "optimizer.name=adamw",
                                           "optimizer.lr=1e-3",
                                           "optimizer.beta2=0.999",
                                           "optimizer.weight_decay=0",
                                           "scheduler.name=constant",
                                           NULL};
    static const char *const kept[] = {"final.model.layers.1.mlp.gate.weight",
                                       "final.model.layers.2.mlp.gate.weight"};
    static const char *const names[] = {"aux_loss", "z_loss"};
    static const char *const figures[] = {"router_aux_loss", "router_z_loss"};
    lathe_safetensors *golden;
    OK(lathe_safetensors_open(RUNS "experts_losses.safetensors", &golden));
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    const int64_t n_steps = tensor(golden, "loss")->desc.dims[0];
    for (int64_t step = 0; step < n_steps; step++) {
        const lathe_run_batch batch = padded_batch(golden, step);
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        lathe_step_result r = {.size = (uint32_t)sizeof r};
        OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
        for (int i = 0; i < 2; i++) {
            const double want = ((const double *)tensor(golden, names[i])->data)[step];
            const double got = metric(run, figures[i]) / f.count;
            cr_assert(fabs(got - want) <= 1e-5, "step %lld: %s %.9g, PyTorch's %.9g",
                      (long long)step + 1, figures[i], got, want);
        }
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, &r));
        const double want = ((const double *)tensor(golden, "loss")->data)[step];
        cr_assert(fabs(r.loss - want) <= 1e-5, "step %lld: loss %.9g, PyTorch's %.9g",
                  (long long)step + 1, r.loss, want);
    }
    for (int i = 0; i < 2; i++) {
        const int32_t param = lathe_params_find(&run->params, kept[i] + 6);
        cr_assert(param >= 0, "no parameter %s", kept[i]);
        compare(kept[i], lathe_store_master(&run->store, param), tensor(golden, kept[i])->data,
                lathe_desc_count(&run->params.rows[param]->desc), 1e-3);
    }
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

static const char *const bias_settings[] = {"model.path=" MODELS "glm4_moe_groups",
                                            "moe.bias_rate=0.02",
                                            "data.seq_len=16",
                                            "train.micro_batch_size=2",
                                            "train.gradient_accumulation_steps=2",
                                            "train.precision=fp32",
                                            "train.max_steps=8",
                                            "train.max_grad_norm=0",
                                            "optimizer.name=adamw",
                                            "optimizer.lr=1e-3",
                                            "optimizer.beta2=0.999",
                                            "optimizer.weight_decay=0",
                                            "scheduler.name=constant",
                                            NULL};
static const char *const biases[] = {"final.model.layers.0.mlp.gate.e_score_correction_bias",
                                     "final.model.layers.1.mlp.gate.e_score_correction_bias"};

static void one_micro_batch(lathe_run *run, const lathe_safetensors *golden, int64_t k)
{
    const lathe_run_batch batch = padded_batch(golden, k);
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
}

static const float *master(const lathe_run *run, const char *name)
{
    const int32_t param = lathe_params_find(&run->params, name);
    cr_assert(param >= 0, "no parameter %s", name);
    return lathe_store_master(&run->store, param);
}

/* A step has two batches with padding. In the middle of a step the run is saved, in bf16, and
 * another one goes on: its biases and weights have the same bits. */
Test(oracle_experts, biases_of_routers_move_by_the_load_as_in_pytorch)
{
    char dir[] = "/tmp/lathe_experts_XXXXXX", line[80], saved[80];
    const char *more[sizeof bias_settings / sizeof bias_settings[0] + 1] = {
        "checkpoint.save_dtype=bf16"};
    lathe_safetensors *golden;
    cr_assert_not_null(mkdtemp(dir));
    (void)snprintf(saved, sizeof saved, "%s/saved", dir);
    memcpy(more + 1, bias_settings, sizeof bias_settings);
    OK(lathe_safetensors_open(RUNS "experts_bias.safetensors", &golden));
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, more),
              *other = open_run(LATHE_OPEN_BATCHES, more);
    for (int64_t step = 0; step < 8; step++) {
        const double want = ((const double *)tensor(golden, "loss")->data)[step];
        lathe_step_result r = {.size = (uint32_t)sizeof r};
        one_micro_batch(run, golden, 2 * step);
        if (step == 4) {
            OK(lathe_save(run, saved));
            OK(lathe_load(other, saved));
        }
        one_micro_batch(run, golden, 2 * step + 1);
        if (step >= 4)
            one_micro_batch(other, golden, 2 * step + 1);
        OK(lathe_step(run, &r));
        cr_assert(fabs(r.loss - want) <= 1e-5, "step %lld: loss %.9g, PyTorch's %.9g",
                  (long long)step + 1, r.loss, want);
        if (step >= 4)
            OK(lathe_step(other, &r));
        if (step >= 4 && step < 7)
            one_micro_batch(other, golden, 2 * step + 2);
    }
    for (int i = 0; i < 2; i++) {
        compare(biases[i], master(run, biases[i] + 6), tensor(golden, biases[i])->data, 8, 1e-6);
        cr_expect_arr_eq(master(run, biases[i] + 6), master(other, biases[i] + 6),
                         8 * sizeof(float));
    }
    const char *const weight = "model.layers.1.mlp.experts.down_proj.weight";
    const int64_t n =
        lathe_desc_count(&run->params.rows[lathe_params_find(&run->params, weight)]->desc);
    cr_expect_arr_eq(master(run, weight), master(other, weight), (size_t)n * sizeof(float));
    lathe_run_close(other);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
    (void)snprintf(line, sizeof line, "rm -rf %s", dir);
    cr_assert_eq(system(line), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): a test's folder */
}

/* A bias that moves must be saved, also with an average of the weights, and there must be one. */
Test(oracle_experts, a_rate_without_a_bias_that_is_saved_is_refused)
{
    static const char *const models[] = {"olmoe", "glm4_moe", "glm4_moe", "glm4_moe"};
    static const char *const adapters[] = {"full", "lora", "full", "full"};
    static const char *const averages[] = {"none", "none", "ema", "none"};
    for (int i = 0; i < 4; i++) {
        char model[300], adapter[40], average[40];
        const lathe_status want = i < 3 ? LATHE_E_CONFIG : LATHE_OK;
        (void)snprintf(average, sizeof average, "train.weight_average=%s", averages[i]);
        (void)snprintf(model, sizeof model, "model.path=" MODELS "%s", models[i]);
        (void)snprintf(adapter, sizeof adapter, "adapter.name=%s", adapters[i]);
        const char *const settings[] = {model,
                                        adapter,
                                        average,
                                        "moe.bias_rate=0.001",
                                        "data.seq_len=16",
                                        "train.micro_batch_size=2",
                                        "train.precision=fp32",
                                        "train.max_steps=1",
                                        "optimizer.name=adamw",
                                        "optimizer.lr=1e-3",
                                        NULL};
        lathe_run *run = NULL;
        cr_expect_eq(open_run_status(LATHE_OPEN_BATCHES, settings, &run), want, "%s, %s", models[i],
                     adapters[i]);
        lathe_run_close(run);
    }
}

/* A model without experts has no router, and settings for one would do nothing. */
Test(oracle_experts, settings_of_routers_are_refused_without_experts)
{
    static const char *const keys[] = {"moe.z_loss=0.01", "moe.balance_loss=0.01",
                                       "moe.balance_over=layer", NULL};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *const settings[] = {"model.path=" MODELS "llama_tied",
                                        "data.seq_len=16",
                                        "train.micro_batch_size=2",
                                        "train.precision=fp32",
                                        "train.max_steps=1",
                                        "optimizer.name=adamw",
                                        "optimizer.lr=1e-3",
                                        keys[i],
                                        NULL};
        const lathe_status want = keys[i] ? LATHE_E_CONFIG : LATHE_OK;
        lathe_run *run = NULL;
        cr_expect_eq(open_run_status(LATHE_OPEN_BATCHES, settings, &run), want, "%s",
                     keys[i] ? keys[i] : "no key of [moe]");
        lathe_run_close(run);
    }
}

/* Compares what the adapter has learned with PEFT's, expert by expert. */
static int compare_experts(const lathe_run *run, const lathe_safetensors *golden)
{
    int n_compared = 0;
    for (int32_t i = run->params.n_model; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        const lathe_adapter_v1 *adapter = run->parts.adapter.table;
        const int64_t each = lathe_desc_count(&row->desc) / (row->n_experts ? row->n_experts : 1);
        char key[300] = "final.", of_expert[310];
        cr_assert_eq(row->n_experts, 6, "%s", row->name);
        adapter->file_key(run->parts.adapter.self, row->name, key + 6, (int64_t)sizeof key - 6);
        for (int32_t e = 0; e < row->n_experts; e++) {
            cr_assert(lathe_expert_tensor_name(key, e, of_expert, sizeof of_expert) > 0);
            compare(of_expert, (const float *)lathe_store_master(&run->store, i) + e * each,
                    tensor(golden, of_expert)->data, each, 1e-4);
            n_compared++;
        }
    }
    return n_compared;
}

Test(oracle_experts, twenty_steps_of_lora_on_experts_are_those_of_peft)
{
    static const char *const settings[] = {"model.path=" MODELS "olmoe",
                                           "adapter.name=lora",
                                           "adapter.r=2",
                                           "adapter.alpha=3",
                                           "adapter.target_modules=[\"down_proj\"]",
                                           "data.seq_len=16",
                                           "train.micro_batch_size=2",
                                           "train.precision=fp32",
                                           "train.max_steps=20",
                                           "train.max_grad_norm=0",
                                           "optimizer.name=adamw",
                                           "optimizer.lr=1e-3",
                                           "optimizer.beta2=0.999",
                                           "optimizer.weight_decay=0",
                                           "scheduler.name=constant",
                                           NULL};
    lathe_safetensors *golden;
    OK(lathe_safetensors_open(RUNS "experts_lora/golden.safetensors", &golden));
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    OK(lathe__adapter_file_read(lathe__run_saved(run), RUNS "experts_lora"));
    for (int64_t step = 0; step < tensor(golden, "loss")->desc.dims[0]; step++) {
        const double want = ((const double *)tensor(golden, "loss")->data)[step];
        double aux;
        const double got = one_step(run, golden, step, &aux);
        cr_assert(fabs(got - want) <= 1e-5, "step %lld: loss %.9g, PEFT's %.9g",
                  (long long)step + 1, got, want);
    }
    cr_assert_eq(compare_experts(run, golden), 2 * 2 * 6);
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

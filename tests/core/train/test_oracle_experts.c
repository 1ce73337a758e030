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

/* Training trajectories compared with PyTorch's: AdamW over 100 steps, Muon over 20, step by step.
 * Goldens: tests/golden/runs.py. */
#include "support/run_case.h"

enum { B = 2, T = 16, ACCUMULATION = 2 };

#define RUNS LATHE_TEST_DATA "/golden/data/runs/"

static const lathe_st_tensor *tensor(const lathe_safetensors *golden, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(golden, name);
    cr_assert(t, "the golden lacks %s", name);
    return t;
}

/* Largest relative error allowed per metric. Losses: the project's promise. The others carry the
 * same rounding of fp32 sums through the update. */
static const struct {
    const char *name;
    double tolerance;
} figures[] = {{"loss", 1e-4}, {"grad_norm", 1e-3}, {"param_norm", 1e-5}, {"lr", 1e-12}};
#define N_FIGURES (sizeof figures / sizeof figures[0])

static void one_micro_batch(lathe_run *run, const lathe_safetensors *golden, int64_t micro)
{
    const lathe_st_tensor *tokens = tensor(golden, "tokens");
    const int64_t at = micro % tokens->desc.dims[0] * B * T;
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = B,
                                   .row_tokens = T,
                                   .tokens = (const int32_t *)tokens->data + at,
                                   .targets =
                                       (const int32_t *)tensor(golden, "targets")->data + at};
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
}

static void replay(const char *name, const char *const *settings, const char *const *kept,
                   double final_tolerance)
{
    char path[512];
    lathe_safetensors *golden;
    snprintf(path, sizeof path, RUNS "%s.safetensors", name);
    OK(lathe_safetensors_open(path, &golden));
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, settings);
    const int64_t n_steps = tensor(golden, "loss")->desc.dims[0];
    double worst[N_FIGURES] = {0.0};
    for (int64_t step = 0; step < n_steps; step++) {
        lathe_step_result r = {.size = (uint32_t)sizeof r};
        for (int64_t k = 0; k < ACCUMULATION; k++)
            one_micro_batch(run, golden, step * ACCUMULATION + k);
        OK(lathe_step(run, &r));
        const double got[N_FIGURES] = {r.loss, r.grad_norm, r.param_norm, r.lr};
        for (size_t i = 0; i < N_FIGURES; i++) {
            const double want = ((const double *)tensor(golden, figures[i].name)->data)[step];
            const double error = fabs(got[i] - want);
            worst[i] = fmax(worst[i], want != 0.0 ? error / fabs(want) : error);
            cr_assert(error <= figures[i].tolerance * fabs(want),
                      "%s, step %lld: %s is %.9g, PyTorch's %.9g", name, (long long)step + 1,
                      figures[i].name, got[i], want);
        }
    }
    printf("%s, %lld steps, largest relative errors: loss %.2g, grad_norm %.2g, param_norm %.2g\n",
           name, (long long)n_steps, worst[0], worst[1], worst[2]);
    for (int i = 0; kept[i]; i++) {
        char key[256];
        snprintf(key, sizeof key, "final.%s", kept[i]);
        const int32_t param = lathe_params_find(&run->params, kept[i]);
        cr_assert(param >= 0, "no parameter %s", kept[i]);
        compare(key, lathe_store_master(&run->store, param), tensor(golden, key)->data,
                lathe_desc_count(&run->params.rows[param]->desc), final_tolerance);
    }
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

Test(oracle_training, a_hundred_adamw_steps_have_pytorchs_losses)
{
    static const char *const settings[] = {"model.path=" MODELS "llama_tied",
                                           "data.seq_len=16",
                                           "train.micro_batch_size=2",
                                           "train.gradient_accumulation_steps=2",
                                           "train.precision=fp32",
                                           "train.max_steps=100",
                                           "train.max_grad_norm=1.0",
                                           "optimizer.name=adamw",
                                           "optimizer.lr=2e-3",
                                           "optimizer.beta2=0.95",
                                           "optimizer.weight_decay=0.1",
                                           "scheduler.name=cosine",
                                           "scheduler.warmup_steps=10",
                                           NULL};
    static const char *const kept[] = {"model.layers.1.mlp.down_proj.weight", "model.norm.weight",
                                       NULL};
    replay("adamw", settings, kept, 1e-3);
}

Test(oracle_training, muon_steps_have_pytorchs_losses)
{
    static const char *const settings[] = {"model.path=" MODELS "llama_untied",
                                           "data.seq_len=16",
                                           "train.micro_batch_size=2",
                                           "train.gradient_accumulation_steps=2",
                                           "train.precision=fp32",
                                           "train.max_steps=20",
                                           "train.max_grad_norm=1.0",
                                           "optimizer.name=muon",
                                           "optimizer.lr=0.02",
                                           "optimizer.weight_decay=0.1",
                                           "optimizer.ns_dtype=f32",
                                           "optimizer.adamw_lr=3e-3",
                                           "optimizer.adamw_weight_decay=0.05",
                                           "scheduler.name=cosine",
                                           "scheduler.warmup_steps=4",
                                           NULL};
    static const char *const kept[] = {"model.layers.0.self_attn.k_proj.weight",
                                       "model.layers.1.mlp.down_proj.weight", "model.norm.weight",
                                       NULL};
    replay("muon", settings, kept, 1e-3);
}

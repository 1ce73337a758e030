/* Merging the adapter during a training (adapter.merge_every): a run against PyTorch and PEFT with
 * the functions of ReLoRA's authors, the function before and after a merge, fp32 masters under
 * bf16, checkpoints, refusals. Golden: tests/golden/relora.py. */
#include "checkpoint/state/checkpoint.h"
#include "support/source_case.h"

#define FOLDER "/tmp/lathe-relora-XXXXXX"

enum { B = 2, T = 16, M = 3, STEPS = 12, EVERY = 4 };

static const lathe_st_tensor *tensor(const lathe_safetensors *golden, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(golden, name);
    cr_assert(t, "the golden lacks %s", name);
    return t;
}

/* ---- against PyTorch ---- */

static int n_zeros(const lathe_run *run)
{
    int n = 0;
    for (int32_t i = run->params.n_model; i < run->params.n; i++)
        for (int32_t k = 0; k < run->store.rows[i].n_slots; k++) {
            const float *x = lathe_store_slot(&run->store, i, k);
            const int64_t count = lathe_desc_count(&run->store.rows[i].slots[k].desc);
            for (int64_t e = 0; e < count; e++)
                n += x[e] == 0.0f;
        }
    return n;
}

/* A loss of 4.8 in f32, summed over 30 targets in another order; the rate is computed in double. */
static void replay(lathe_run *run, const lathe_safetensors *golden)
{
    const int32_t *tokens = tensor(golden, "tokens")->data,
                  *targets = tensor(golden, "targets")->data;
    for (int step = 0; step < STEPS; step++) {
        const int64_t at = (int64_t)(step % M) * B * T;
        const lathe_run_batch batch = {.size = sizeof batch,
                                       .n_rows = B,
                                       .row_tokens = T,
                                       .tokens = tokens + at,
                                       .targets = targets + at};
        lathe_forward_result f = {.size = sizeof f};
        lathe_step_result r = {.size = sizeof r};
        OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, &r));
        const double loss = ((const double *)tensor(golden, "loss")->data)[step];
        const double lr = ((const double *)tensor(golden, "lr")->data)[step];
        cr_expect_float_eq(r.loss, loss, 2e-5 * loss, "step %d: loss %.8f, PyTorch's %.8f",
                           step + 1, r.loss, loss);
        cr_expect_float_eq(r.lr, lr, 1e-12, "step %d: lr %.12f, PyTorch's %.12f", step + 1, r.lr,
                           lr);
        if ((step + 1) % EVERY == 0)
            cr_expect_eq(n_zeros(run),
                         ((const int32_t *)tensor(golden, "zeros")->data)[step / EVERY],
                         "step %d: %d zeros in the state", step + 1, n_zeros(run));
    }
}

Test(relora, losses_rates_state_and_weights_are_those_of_pytorch)
{
    static const char *const list[] = {"model.path=" MODELS "llama_untied",
                                       "model.seed=77",
                                       "train.seed=77",
                                       "data.seq_len=16",
                                       "train.micro_batch_size=2",
                                       "train.precision=fp32",
                                       "train.max_steps=12",
                                       "train.max_grad_norm=0",
                                       "adapter.name=lora",
                                       "adapter.r=4",
                                       "adapter.alpha=6",
                                       "adapter.target_modules=[\"q_proj\", \"v_proj\"]",
                                       "adapter.merge_every=4",
                                       "adapter.merge_reset=prune",
                                       "adapter.merge_prune_ratio=0.9",
                                       "adapter.merge_warmup_steps=2",
                                       "optimizer.name=adamw",
                                       "optimizer.lr=0.005",
                                       "optimizer.beta2=0.95",
                                       "optimizer.eps=1e-5",
                                       "optimizer.weight_decay=0",
                                       "scheduler.name=cosine_with_min_lr",
                                       "scheduler.min_lr_ratio=0.1",
                                       "scheduler.warmup_steps=2",
                                       NULL};
    static const char *const shown[] = {"model.layers.0.self_attn.q_proj.weight",
                                        "model.layers.1.self_attn.v_proj.weight"};
    lathe_safetensors *golden = NULL;
    OK(lathe_safetensors_open(LATHE_TEST_DATA "/golden/data/relora.safetensors", &golden));
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, list);
    replay(run, golden);
    for (int k = 0; k < 2; k++) {
        char key[128];
        const int32_t i = lathe_params_find(&run->params, shown[k]);
        snprintf(key, sizeof key, "final.%s", shown[k]);
        const lathe_st_tensor *want = tensor(golden, key);
        /* three merges of updates that differ as the losses do */
        compare(shown[k], lathe_store_master(&run->store, i), want->data,
                lathe_desc_count(&want->desc), 2e-5);
    }
    lathe_run_close(run);
    lathe_safetensors_close(golden);
}

/* ---- what a merge changes ---- */

static const char *const every_adapter[][4] = {
    {"adapter.name=lora", "adapter.r=4", NULL},
    {"adapter.init=pissa", "adapter.r=4", "adapter.name=lora", NULL},
    {"adapter.init=mica", "adapter.r=4", "adapter.name=lora", NULL},
    {"adapter.name=lora_plus", "adapter.r=4", NULL},
    {"adapter.name=dora", "adapter.r=4", NULL},
    {"adapter.name=oft", "adapter.block_size=4", NULL}};
enum { N_ADAPTERS = sizeof every_adapter / sizeof every_adapter[0] };

static void set_merging(settings *s, const char *dir, const char *const *adapter)
{
    configure(s, dir);
    set_all(s, adapter);
    set(s, "adapter.merge_every=2");
    set(s, "data.prefetch=0");
}

static double eval_loss(lathe_run *run, const lathe_run_batch *batch)
{
    lathe_forward_result f = {.size = sizeof f};
    OK(lathe_forward(run, batch, 0, &f));
    return f.loss_sum / f.count;
}

static void train(lathe_run *run, int steps)
{
    for (int k = 0; k < steps; k++) {
        lathe_forward_result f = {.size = sizeof f};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, NULL));
    }
}

static double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += fabs((double)a[i] - (double)b[i]);
    return sum;
}

/* The run whose merge is due computes after it what a run without merges computes: only rounding of
 * f32 differs. Its adapter begins anew with other values than at the start, and its base moved. */
static void check_function(const char *dir, const char *const *adapter)
{
    int32_t tokens[32], targets[32];
    settings with = {.n = 0}, without = {.n = 0};
    set_merging(&with, dir, adapter);
    configure(&without, dir);
    set_all(&without, adapter);
    for (int i = 0; i < 32; i++)
        targets[i] = tokens[i] = 97 + i % 23;
    const lathe_run_batch batch = {
        .size = sizeof batch, .n_rows = 2, .row_tokens = 16, .tokens = tokens, .targets = targets};
    lathe_run *merged = open_run(LATHE_OPEN_TRAIN, with.list);
    lathe_run *plain = open_run(LATHE_OPEN_TRAIN, without.list);
    const int32_t q = lathe_params_find(&plain->params, "model.layers.0.self_attn.q_proj.weight");
    const int64_t n = lathe_desc_count(&plain->params.rows[q]->desc);
    train(plain, 2);
    const double before = eval_loss(plain, &batch);
    train(merged, 2);
    const double after = eval_loss(merged, &batch);
    cr_expect_float_eq(after, before, 2e-5 * before, "%s: %.8f without a merge, %.8f after it",
                       adapter[0], before, after);
    cr_expect_gt(
        distance(lathe_store_master(&merged->store, q), lathe_store_master(&plain->store, q), n),
        1e-3, "%s: the base did not move", adapter[0]);
    train(merged, 4);
    cr_expect_lt(eval_loss(merged, &batch), before + 0.5, "%s", adapter[0]);
    lathe_run_close(merged);
    lathe_run_close(plain);
}

Test(relora, a_merge_keeps_the_function_of_every_adapter)
{
    char dir[] = FOLDER;
    make_folder(dir, 4000);
    for (int k = 0; k < N_ADAPTERS; k++)
        check_function(dir, every_adapter[k]);
    OK(lathe_dir_remove(dir));
}

Test(relora, each_merge_gives_the_adapter_other_values)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    float first[64], second[64];
    make_folder(dir, 4000);
    set_merging(&s, dir, every_adapter[0]);
    set(&s, "adapter.merge_reset=zero");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int32_t a =
        lathe_params_find(&run->params, "model.layers.0.self_attn.q_proj.lora_A.weight");
    const int32_t b =
        lathe_params_find(&run->params, "model.layers.0.self_attn.q_proj.lora_B.weight");
    cr_assert(a >= 0 && b >= 0);
    memcpy(first, lathe_store_master(&run->store, a), sizeof first);
    train(run, 2);
    memcpy(second, lathe_store_master(&run->store, a), sizeof second);
    cr_expect_gt(distance(first, second, 64), 1.0);
    train(run, 2);
    cr_expect_gt(distance(second, lathe_store_master(&run->store, a), 64), 1.0);
    const int64_t n = lathe_desc_count(&run->params.rows[b]->desc);
    for (int64_t i = 0; i < n; i++)
        cr_expect_eq(lathe_store_master(&run->store, b)[i], 0.0f);
    cr_expect_gt(n_zeros(run), 0);
    for (int32_t k = 0; k < run->store.rows[a].n_slots; k++)
        cr_expect_eq(((const float *)lathe_store_slot(&run->store, a, k))[0], 0.0f);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* In bf16 the frozen weights of a run are bf16 alone; those that are merged into keep fp32 masters,
 * or an update below half a unit in the last place would be lost at each merge. */
Test(relora, updates_that_bf16_would_round_away_are_kept)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    int kept = 0, moved = 0;
    make_folder(dir, 4000);
    make_source(dir, "bf16");
    from_source(&s, dir);
    set(&s, "train.precision=bf16");
    set(&s, "optimizer.lr=1e-5");
    set_all(&s, every_adapter[0]);
    set(&s, "adapter.merge_every=2");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const int32_t q = lathe_params_find(&run->params, "model.layers.0.self_attn.q_proj.weight");
    const int64_t n = lathe_desc_count(&run->params.rows[q]->desc);
    uint16_t *start = malloc((size_t)n * sizeof *start);
    memcpy(start, lathe_store_shadow(&run->store, q), (size_t)n * sizeof *start);
    train(run, 2);
    const float *master = lathe_store_master(&run->store, q);
    const uint16_t *shadow = lathe_store_shadow(&run->store, q);
    for (int64_t i = 0; i < n; i++) {
        cr_expect_eq(shadow[i], lathe_f32_to_bf16(master[i]), "%lld", (long long)i);
        moved += shadow[i] != start[i];
        kept += shadow[i] == start[i] && master[i] != lathe_bf16_to_f32(start[i]);
    }
    cr_expect_gt(kept, n / 2, "%d of %lld updates are below bf16, %d are not", kept, (long long)n,
                 moved);
    lathe_run_close(run);
    free(start);
    OK(lathe_dir_remove(dir));
}

/* ---- checkpoints ---- */

static void check_resume(const char *const *adapter, const char *const *more)
{
    char dir[] = FOLDER;
    settings s = {.n = 0};
    make_folder(dir, 4000);
    make_source(dir, "bf16");
    from_source(&s, dir);
    set(&s, "train.precision=bf16");
    set_all(&s, adapter);
    set(&s, "adapter.merge_every=2");
    set_all(&s, more);
    OK(train_once(&s, NULL, NULL));
    cr_assert_eq(rename(in(dir, "out"), in(dir, "whole")), 0);
    set(&s, "train.stop_after=3"); /* between two merges */
    OK(train_once(&s, NULL, NULL));
    s.list[--s.n] = NULL;
    OK(train_once(&s, NULL, NULL));
    static const char *const files[] = {"model.safetensors", "adapter_model.safetensors",
                                        "state/masters.safetensors", "state/optimizer.safetensors"};
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++)
        expect_same_file(in(dir, "whole/step-00000006/%s", files[k]),
                         in(dir, "out/step-00000006/%s", files[k]));
    cr_expect_gt(n_other(in(dir, "source"), in(dir, "out/step-00000006"), "proj"), 0,
                 "%s: the saved base is that of the beginning", adapter[0]);
    cr_expect_eq(n_other(in(dir, "source"), in(dir, "out/step-00000006"), "norm"), 0,
                 "%s: frozen weights changed", adapter[0]);
    OK(lathe_dir_remove(dir));
}

Test(relora, a_resumed_run_has_the_same_bits)
{
    static const char *const none[] = {NULL};
    static const char *const beside[] = {"checkpoint.every=1", "checkpoint.keep_best=1",
                                         "adapter.merge_reset=random",
                                         "adapter.merge_prune_ratio=0.5", NULL};
    for (int k = 0; k < N_ADAPTERS; k++)
        check_resume(every_adapter[k], none);
    check_resume(every_adapter[0], beside);
}

/* The folder is the base as it is now, with the adapter beside it; PEFT is told so. */
Test(relora, a_checkpoint_names_itself_as_the_base)
{
    char dir[] = FOLDER, *text = NULL, *real = NULL;
    settings s = {.n = 0};
    int64_t n = 0;
    make_folder(dir, 4000);
    make_source(dir, "bf16");
    from_source(&s, dir);
    set_all(&s, every_adapter[0]);
    set(&s, "adapter.merge_every=2");
    set(&s, "train.max_steps=2");
    OK(train_once(&s, NULL, NULL));
    OK(lathe_file_read(in(dir, "out/step-00000002/adapter_config.json"), 0, &text, &n));
    real = realpath(in(dir, "out/step-00000002"), NULL);
    cr_assert(real);
    cr_expect(strstr(text, real), "no %s in %s", real, text);
    free(real);
    free(text);
    OK(lathe_dir_remove(dir));
}

/* ---- refusals ---- */

static void check_refused(const char *dir, const char *const *more, const char *const *parts)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure(&s, dir);
    set_all(&s, more);
    cr_expect_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG, "%s", parts[0]);
    expect_parts(parts);
    lathe_run_close(run);
}

#define LORA "adapter.name=lora", "adapter.merge_every=2"

Test(relora, what_merging_contradicts_is_refused_by_name)
{
    static const struct {
        const char *set[6], *parts[4];
    } cases[] = {
        {{"adapter.name=full", "adapter.merge_every=2"},
         {"adapter \"full\" has nothing to merge", "leave merge_every at 0"}},
        {{"adapter.name=freeze", "adapter.layers=1", "adapter.merge_every=2"},
         {"adapter \"freeze\" has nothing to merge"}},
        {{LORA, "quant.name=nf4", "model.hidden_size=64"},
         {"q_proj.weight' is quantized (nf4)", "mostly smaller than the steps of the format"}},
        {{LORA, "train.weight_average=ema"}, {"train.weight_average", "begins anew"}},
        {{LORA, "optimizer.name=schedule_free_adamw", "scheduler.name=constant"},
         {"optimizer \"schedule_free_adamw\"", "would pull it back"}},
        {{LORA, "stage.name=dpo"},
         {"stage \"dpo\"", "compares the model with the one before training"}},
        {{"adapter.name=lora", "adapter.merge_reset=zero"},
         {"adapter.merge_reset belongs to merging"}},
        {{LORA, "adapter.merge_warmup_steps=2"}, {"adapter.merge_warmup_steps = 2 is not below"}},
        {{LORA, "adapter.merge_reset=zero", "adapter.merge_prune_ratio=0.5"},
         {"adapter.merge_prune_ratio has no effect"}},
        {{LORA, "adapter.merge_reset=prune", "optimizer.name=adamw_8bit",
          "optimizer.min_8bit_size=0"},
         {"adapter.merge_reset = \"prune\" with optimizer \"adamw_8bit\"",
          "choose \"zero\" or \"none\""}},
        {{LORA, "optimizer.name=galore", "optimizer.rank=2", "adapter.merge_reset=zero"},
         {"adapter.merge_reset = \"zero\" with optimizer \"galore\"", "choose \"none\""}},
    };
    char dir[] = FOLDER;
    make_folder(dir, 4000);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        check_refused(dir, cases[k].set, cases[k].parts);
    OK(lathe_dir_remove(dir));
}

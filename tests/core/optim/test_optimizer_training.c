/* Every optimizer learns: with the same small model, seed and data, STEPS steps each, the loss of
 * text that was not trained on falls by at least MARGIN nats. docs/optimizers.md states the
 * margin. */
#include "support/small_run.h"

#define STEPS 80
#define MARGIN 3.0

/* Rates are round numbers near each optimizer's best; optimizers without a row use the common
 * rate. */
static const struct {
    const char *name, *settings[4];
} rows[] = {
    {"adafactor", {"optimizer.lr=1e-2", "optimizer.scale_parameter=false"}},
    {"adamw_8bit", {"optimizer.lr=5e-3", "optimizer.min_8bit_size=1024"}},
    {"apollo", {"optimizer.lr=1e-2", "optimizer.rank=16", "optimizer.update_proj_gap=30"}},
    {"galore", {"optimizer.lr=2e-2", "optimizer.rank=16", "optimizer.update_proj_gap=30"}},
    {"lion", {"optimizer.lr=2e-3"}},
    {"muon", {"optimizer.lr=2e-2", "optimizer.adamw_lr=5e-3"}},
    {"sgd", {"optimizer.lr=0.5", "optimizer.momentum=0.9"}},
    {"signsgd", {"optimizer.lr=2e-3"}},
    {"sophia", {"optimizer.lr=2e-3"}},
};

static lathe_run *open_small(const char *dir, const char *name)
{
    settings s = {.n = 0};
    set_data(&s, dir);
    set_llama(&s, 2, 64, 4, 2, 128);
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=%d", STEPS);
    set(&s, "train.micro_batch_size=4");
    set(&s, "train.seed=1");
    set(&s, "train.threads=1");
    set(&s, "data.seq_len=32");
    set(&s, "data.validation_split=0.1");
    set(&s, "optimizer.name=%s", name);
    set(&s, "scheduler.name=constant");
    const int at = s.n;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int k = 0; strcmp(rows[i].name, name) == 0 && k < 4 && rows[i].settings[k]; k++)
            set(&s, "%s", rows[i].settings[k]);
    if (s.n == at)
        set(&s, "optimizer.lr=5e-3");
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

static double validation(lathe_run *run)
{
    lathe_evaluation e;
    OK(lathe_evaluate(run, 0, NULL, &e));
    return e.loss;
}

Test(optimizer_training, all_of_them_learn, .timeout = 300)
{
    char dir[] = "/tmp/lathe-training-XXXXXX";
    lathe_registry *registry = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **list = NULL;
    int64_t n = 0;
    make_folder(dir, 40000);
    OK(lathe_registry_create(&registry));
    OK(lathe_registry_scan(registry, LATHE_KIND_OPTIMIZER));
    OK(lathe_registry_list(registry, LATHE_KIND_OPTIMIZER, &arena, &list, &n));
    cr_assert_eq(n, 13);
    for (int64_t i = 0; i < n; i++) {
        const char *name = list[i]->plugin->name;
        lathe_run *run = open_small(dir, name);
        const double before = validation(run);
        for (int k = 0; k < STEPS; k++) {
            lathe_forward_result f = {.size = sizeof f};
            lathe_step_result r = {.size = sizeof r};
            OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
            OK(lathe_backward(run, NULL));
            OK(lathe_step(run, &r));
        }
        const double after = validation(run);
        cr_log_info("%-20s %.3f -> %.3f", name, before, after);
        cr_expect(after < before - MARGIN, "%s: %g after %g", name, after, before);
        lathe_run_close(run);
    }
    lathe_registry_destroy(registry);
    lathe_arena_fini(&arena);
    OK(lathe_dir_remove(dir));
}

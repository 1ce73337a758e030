/* Training on a device that runs work only when the host waits for it, and whose memory the host
 * cannot access: results are bitwise those of the CPU, with and without captured steps. An access
 * to device memory from the host raises SIGSEGV; to unified memory, while work is queued. */
#include "support/far_case.h"
#include "train/training.h"

/* Settings on top of set_small. */
typedef struct far_training {
    const char *name;
    const char *set[10];
    int is_pairs;
    int is_plain; /* also without captures, and in unified memory */
} far_training;

static const far_training trainings[] = {
    {"adamw, fp32", {"train.precision=fp32"}, 0, 0},
    {"adamw, bf16", {"train.precision=bf16", "train.max_grad_norm=0.05"}, 0, 1},
    {"adamw, bf16 state", {"train.precision=bf16", "optimizer.state_dtype=bf16"}, 0, 0},
    {"adamw, fp16", {"train.precision=fp16", "train.loss_scale_init=16777216"}, 0, 0},
    {"clipped by value", {"train.precision=fp32", "train.max_grad_value=1e-4"}, 0, 0},
    {"many micro-batches", {"train.precision=fp32", "train.gradient_accumulation_steps=7"}, 0, 0},
    {"muon", {"train.precision=bf16", "optimizer.name=muon", "train.recompute=layer"}, 0, 1},
    {"sophia",
     {"train.precision=bf16", "optimizer.name=sophia", "optimizer.estimate_every=2",
      "optimizer.state_dtype=bf16"},
     0,
     1},
    {"schedule_free_adamw",
     {"train.precision=bf16", "optimizer.name=schedule_free_adamw", "scheduler.name=constant",
      "data.validation_split=0.2", "train.eval_every=2", "checkpoint.every=3"},
     0,
     1},
    {"sophia, all that is planned",
     {"train.precision=fp32", "optimizer.name=sophia", "optimizer.estimate_every=1",
      "train.weight_average=ema", "data.validation_split=0.2", "train.eval_every=1"},
     0,
     0},
    {"lora",
     {"train.precision=fp32", "adapter.name=lora", "adapter.r=4", "adapter.dropout=0.1"},
     0,
     0},
    {"lora, merged",
     {"train.precision=bf16", "adapter.name=lora", "adapter.r=4", "adapter.merge_every=2",
      "adapter.merge_reset=prune"},
     0,
     1},
    {"dora, merged",
     {"train.precision=fp32", "adapter.name=dora", "adapter.r=4", "adapter.merge_every=3",
      "adapter.merge_reset=random", "optimizer.name=muon"},
     0,
     0},
    {"qlora, nf4",
     {"train.precision=bf16", "adapter.name=lora", "adapter.r=4", "quant.name=nf4"},
     0,
     1},
    {"qlora, int8",
     {"train.precision=bf16", "adapter.name=lora", "adapter.r=4", "quant.name=int8"},
     0,
     0},
    {"dpo", {"stage.name=dpo", "train.precision=fp32"}, 1, 1},
    {"rm", {"stage.name=rm", "train.precision=bf16"}, 1, 1},
    {"rm, lora", {"stage.name=rm", "train.precision=fp32", "adapter.name=lora"}, 1, 0},
    {"dpo, lora", {"stage.name=dpo", "train.precision=bf16", "adapter.name=lora"}, 1, 0},
    {"ema",
     {"train.precision=bf16", "train.weight_average=ema", "data.validation_split=0.2",
      "train.eval_every=2"},
     0,
     0},
    {"all that is planned",
     {"train.precision=bf16", "checkpoint.every=2", "generate.every=2", "train.weight_average=ema",
      "data.validation_split=0.2"},
     0,
     0},
    {"swa",
     {"train.precision=fp32", "train.weight_average=swa", "data.validation_split=0.2",
      "train.eval_every=3", "train.weight_average_start=2"},
     0,
     0},
};
#define N_TRAININGS (sizeof trainings / sizeof trainings[0])

/* Gradients in bf16, and everything that reads them: clipping, updates by element, block, tensor
 * and matrix, estimates, averages. */
#define NARROW "train.precision=bf16", "train.grad_dtype=bf16"
static const far_training narrow_trainings[] = {
    {"adamw, bf16 gradients", {NARROW, "train.max_grad_norm=0.05"}, 0, 1},
    {"clipped by value, bf16 gradients", {NARROW, "train.max_grad_value=1e-4"}, 0, 0},
    {"many micro-batches, bf16 gradients", {NARROW, "train.gradient_accumulation_steps=7"}, 0, 0},
    {"muon, bf16 gradients", {NARROW, "optimizer.name=muon", "train.recompute=layer"}, 0, 1},
    {"sophia, bf16 gradients",
     {NARROW, "optimizer.name=sophia", "optimizer.estimate_every=2"},
     0,
     0},
    {"schedule_free_adamw, bf16 gradients",
     {NARROW, "optimizer.name=schedule_free_adamw", "scheduler.name=constant",
      "data.validation_split=0.2", "train.eval_every=2"},
     0,
     0},
    {"adamw, bf16 gradients, state away",
     {NARROW, "train.offload_optimizer=true", "train.offload_buffer=0.02"},
     0,
     1},
    {"muon, bf16 gradients, state away",
     {NARROW, "optimizer.name=muon", "train.offload_optimizer=true", "train.offload_buffer=0.02"},
     0,
     0},
    {"qlora, bf16 gradients", {NARROW, "adapter.name=lora", "adapter.r=4", "quant.name=nf4"}, 0, 0},
};
#define N_NARROW (sizeof narrow_trainings / sizeof narrow_trainings[0])

static void write_pairs(const char *dir)
{
    char path[256];
    snprintf(path, sizeof path, "%s/corpus.jsonl", dir);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 80; i++)
        fprintf(f, "{\"prompt\": \"q %d?\", \"chosen\": \" good %d\", \"rejected\": \" no %d\"}\n",
                i, i * i, i);
    fclose(f);
}

/* Checks the plan to the byte, and that nothing more is allocated during the run. */
static void check_memory(const char *name, int where, const lathe_run *run)
{
    for (int32_t k = 0; k < LATHE_N_MEM; k++) {
        const long long planned = run->planned.by[k];
        cr_assert_eq(run->machine.used.by[k], planned, "%s, %s: %lld bytes of %s, planned %lld",
                     name, where_names[where], (long long)run->machine.used.by[k],
                     lathe_mem_name(k), planned);
        cr_assert_eq(run->machine.peak.by[k], planned, "%s, %s: peak %lld of %s, planned %lld",
                     name, where_names[where], (long long)run->machine.peak.by[k],
                     lathe_mem_name(k), planned);
    }
    cr_assert_eq(run->planned.by[LATHE_MEM_STAGING] > 0, where != ON_CPU);
}

static void train(const far_training *t, int where, snapshot *out, char **figures)
{
    char dir[] = "/tmp/lathe_far_XXXXXX";
    settings s = {.n = 0};
    lathe_run *run = NULL;
    lathe_train_result result = {0};
    make_folder(dir, 20000);
    set_small(&s, dir, where);
    if (t->is_pairs) {
        write_pairs(dir);
        set(&s, "data.datasets=[{path = \"%s/corpus.jsonl\"}]", dir);
    }
    set_all(&s, t->set);
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_eq(lathe_machine_memory(&run->machine)->is_in_place, where == ON_CPU);
    FILE *quiet = fopen("/dev/null", "w");
    const lathe_train_options options = {.out = quiet};
    OK(lathe_train(run, &options, &result));
    fclose(quiet);
    snapshot_take(out, run);
    check_memory(t->name, where, run);
    lathe_run_close(run);
    *figures = figures_of(dir);
    OK(lathe_dir_remove(dir));
}

static void check_training(const far_training *t)
{
    snapshot got[N_WHERE];
    char *figures[N_WHERE];
    const int n_where = t->is_plain ? N_WHERE : ON_FAR + 1;
    for (int w = 0; w < n_where; w++) {
        train(t, w, &got[w], &figures[w]);
        char what[128];
        snprintf(what, sizeof what, "%s on %s", t->name, where_names[w]);
        cr_assert_str_eq(figures[w], figures[0], "%s", what);
        snapshot_compare(what, &got[w], &got[0]);
    }
    cr_assert(strstr(figures[0], "step 6 "), "%s", figures[0]);
    for (int w = 0; w < n_where; w++) {
        snapshot_free(&got[w]);
        free(figures[w]);
    }
}

Test(far_training, of_whole_models_has_the_bits_of_the_cpu)
{
    for (size_t i = 0; i < 10; i++)
        check_training(&trainings[i]);
}

Test(far_training, of_adapters_pairs_and_averages_has_the_bits_of_the_cpu)
{
    for (size_t i = 10; i < N_TRAININGS; i++)
        check_training(&trainings[i]);
}

Test(far_training, with_gradients_in_bf16_has_the_bits_of_the_cpu)
{
    for (size_t i = 0; i < N_NARROW; i++)
        check_training(&narrow_trainings[i]);
}

/* Number of times the host waits in the loop's third step. */
static int64_t waits_of(const char *const *more)
{
    char dir[] = "/tmp/lathe_far_XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_small(&s, dir, ON_FAR);
    set_all(&s, more);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    lathe_train_result result = {0};
    const lathe_train_options options = {.out = NULL};
    lathe_training t = {.run = run, .options = &options, .result = &result};
    int64_t before = 0;
    for (int i = 0; i < 3; i++) {
        lathe_step_record step;
        before = run->machine.n_syncs;
        OK(lathe__training_step(&t, &step));
        cr_assert_eq(step.result.skipped, 0);
    }
    const int64_t n = run->machine.n_syncs - before;
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
    return n;
}

/* One wait for the losses and the norm, one for the metrics. A norm after clipping by value adds
 * one, and so does a fifth micro-batch, for which no input buffer is free. */
Test(far_training, waits_twice_a_step)
{
    static const struct {
        const char *set[2];
        int waits;
    } cases[] = {{{NULL}, 2},
                 {{"train.max_grad_norm=0.05"}, 2},
                 {{"train.precision=fp16"}, 2},
                 {{"optimizer.name=muon"}, 2},
                 {{"train.grad_dtype=bf16"}, 2},
                 {{"train.max_grad_value=1e-4"}, 3},
                 {{"train.gradient_accumulation_steps=5"}, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t waits = waits_of(cases[i].set);
        cr_assert_eq(waits, cases[i].waits, "%s: %lld waits", cases[i].set[0], (long long)waits);
    }
}

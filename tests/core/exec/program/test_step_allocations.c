/* Steps allocate nothing. The test counts malloc, calloc, realloc, aligned_alloc and posix_memalign
 * of the whole process over whole steps, by calling module: Lathe and its plugins must not call
 * them. oneDNN allocates a map of arguments at each call; its allocations and those of the C++ and
 * OpenMP libraries are counted separately and printed. Under a sanitizer, which has its own
 * allocator, the tests are skipped. */
#include "support/heap_counter.h"
#include "support/small_run.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SKIP_UNDER_SANITIZERS cr_skip_test("the sanitizer's allocator is in place")
#else
#define SKIP_UNDER_SANITIZERS (void)0
#endif

/* ---- the steps ---- */

enum { B = 2, T = 24, WARM = 2, STEPS = 3 };

static void one_step(lathe_run *run, const lathe_run_batch *batch)
{
    for (int k = 0; k < 2; k++) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        OK(lathe_forward(run, batch, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
    }
    lathe_step_result r = {.size = (uint32_t)sizeof r};
    OK(lathe_step(run, &r));
}

/* Runs steps on the run's own data (batch NULL) or on a given batch. */
static void check_steps(const char *name, lathe_run *run, const lathe_run_batch *batch)
{
    for (int k = 0; k < WARM; k++)
        one_step(run, batch);
    for (int k = 0; k < N_ORIGINS; k++)
        atomic_store(&heap_counts[k], 0);
    atomic_store(&heap_counting, 1);
    for (int k = 0; k < STEPS; k++)
        one_step(run, batch);
    atomic_store(&heap_counting, 0);
    printf("%-34s Lathe %lld, libraries %lld per step\n", name,
           atomic_load(&heap_counts[FROM_LATHE]),
           atomic_load(&heap_counts[FROM_LIBRARIES]) / STEPS);
    cr_assert_eq(atomic_load(&heap_counts[FROM_LATHE]), 0,
                 "%s: %lld allocations in %d steps, first by %s", name,
                 atomic_load(&heap_counts[FROM_LATHE]), STEPS, heap_first_caller);
}

static void check_by_hand(const char *const *more)
{
    settings s = {.n = 0};
    int32_t tokens[2 * B * T], targets[2 * B * T];
    char name[128] = "";
    for (int i = 0; i < 2 * B * T; i++) {
        tokens[i] = i * 7 % 300;
        targets[i] = i % T == T - 1 ? -1 : (i + 1) * 7 % 300;
    }
    set_llama(&s, 2, 64, 4, 2, 96);
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.micro_batch_size=%d", B);
    set(&s, "train.max_steps=100");
    set_all(&s, more);
    int rows = B;
    for (int i = 0; more[i]; i++) {
        strncat(name, more[i], sizeof name - strlen(name) - 2);
        strcat(name, " ");
        rows = strcmp(more[i], "stage.name=dpo") == 0 ? 2 * B : rows;
    }
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = rows,
                                   .row_tokens = T,
                                   .tokens = tokens,
                                   .targets = targets};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    check_steps(name, run, &batch);
    lathe_run_close(run);
}

Test(step_allocations, the_counter_counts)
{
    SKIP_UNDER_SANITIZERS;
    atomic_store(&heap_counting, 1);
    void *volatile p = malloc(10);
    p = realloc(p, 20);
    atomic_store(&heap_counting, 0);
    free(p);
    const int64_t mine = atomic_load(&heap_counts[FROM_TEST]);
    cr_assert_eq(mine, 2, "%lld calls of the test were counted, %lld of libraries, %lld of Lathe",
                 (long long)mine, atomic_load(&heap_counts[FROM_LIBRARIES]),
                 atomic_load(&heap_counts[FROM_LATHE]));
    /* and a call made inside Lathe counts as Lathe's */
    settings s = {.n = 0};
    set_llama(&s, 1, 16, 2, 2, 16);
    set(&s, "data.seq_len=4");
    atomic_store(&heap_counting, 1);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    atomic_store(&heap_counting, 0);
    lathe_run_close(run);
    cr_assert_gt(atomic_load(&heap_counts[FROM_LATHE]), 100);
}

Test(step_allocations, are_none_whatever_the_parts)
{
    SKIP_UNDER_SANITIZERS;
    static const char *const cases[][6] = {
        {"train.precision=fp32", "optimizer.name=adamw"},
        {"train.precision=bf16", "optimizer.name=adamw"},
        {"train.precision=bf16", "optimizer.name=muon"},
        {"train.precision=fp32", "optimizer.name=muon", "scheduler.name=reduce_on_plateau"},
        {"train.precision=fp32", "optimizer.name=sophia", "optimizer.estimate_every=1"},
        {"train.precision=bf16", "optimizer.name=sophia", "optimizer.estimate_every=2"},
        {"optimizer.name=sophia", "optimizer.estimate_every=1", "adapter.name=lora",
         "adapter.dropout=0.1"},
        {"train.precision=bf16", "train.recompute=layer"},
        {"train.precision=bf16", "attention.name=reference"},
        {"train.precision=fp16", "optimizer.state_dtype=bf16"},
        {"train.precision=fp16", "optimizer.name=muon", "optimizer.state_dtype=bf16"},
        {"train.precision=fp16", "adapter.name=lora", "quant.name=int8"},
        {"adapter.name=lora", "adapter.dropout=0.1"},
        {"train.weight_average=ema"},
        {"train.weight_average=swa", "train.precision=fp32"},
        {"optimizer.name=schedule_free_adamw", "scheduler.name=constant"},
        {"adapter.name=lora", "quant.name=nf4"},
        {"adapter.name=lora", "quant.name=int8", "train.precision=fp32"},
        {"adapter.name=lora", "quant.name=mxfp4"},
        {"stage.name=dpo"},
        {"stage.name=dpo", "adapter.name=lora"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_by_hand(cases[i]);
}

Test(step_allocations, are_none_with_batches_from_files)
{
    SKIP_UNDER_SANITIZERS;
    char dir[] = "/tmp/lathe-allocations-XXXXXX";
    settings s = {.n = 0};
    make_folder(dir, 20000);
    set_llama(&s, 2, 64, 4, 2, 96);
    set_data(&s, dir);
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.micro_batch_size=%d", B);
    set(&s, "train.max_steps=100");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    check_steps("own data", run, NULL);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* The plan compared with the allocations, byte by byte and by category, over many configurations;
 * and with the memory of the process. */
#include "support/small_run.h"

/* A configuration: settings in addition to the base ones. */
typedef struct plan_case {
    const char *model; /* "llama", "qwen3", "gpt2" */
    const char *set[10];
} plan_case;

static const plan_case cases[] = {
    {"llama", {"train.precision=fp32"}},
    {"llama", {"train.precision=bf16"}},
    {"qwen3", {"train.precision=fp32", "data.validation_split=0.2"}},
    {"qwen3", {"train.precision=bf16", "train.recompute=layer"}},
    {"gpt2", {"train.precision=fp32", "train.recompute=attention"}},
    {"gpt2", {"train.precision=bf16", "train.recompute=mlp", "data.validation_split=0.2"}},
    {"llama", {"optimizer.name=muon", "train.precision=fp32"}},
    {"llama", {"optimizer.name=muon", "train.precision=bf16", "data.validation_split=0.2"}},
    {"gpt2", {"optimizer.name=muon", "optimizer.ns_dtype=f32"}},
    {"llama", {"optimizer.name=sophia", "train.precision=fp32"}},
    {"gpt2", {"optimizer.name=sophia", "data.validation_split=0.2", "train.recompute=layer"}},
    {"qwen3", {"optimizer.name=sophia", "adapter.name=lora", "adapter.dropout=0.1"}},
    {"llama", {"optimizer.name=sophia", "train.head_chunk_rows=24", "train.precision=fp16"}},
    {"llama", {"adapter.name=lora", "train.precision=fp32"}},
    {"llama", {"adapter.name=lora", "adapter.dropout=0.1", "data.validation_split=0.2"}},
    {"qwen3", {"adapter.name=lora", "quant.name=nf4", "data.validation_split=0.2"}},
    {"gpt2", {"adapter.name=lora", "quant.name=nf4", "train.precision=fp32"}},
    {"llama", {"adapter.name=lora", "quant.name=nf4", "train.recompute=layer"}},
    {"llama", {"adapter.name=lora", "quant.name=int8", "train.precision=fp32"}},
    {"qwen3", {"adapter.name=lora", "quant.name=int8", "optimizer.name=muon"}},
    {"llama", {"stage.name=dpo", "train.precision=fp32"}},
    {"gpt2", {"stage.name=dpo", "train.recompute=layer"}},
    {"qwen3", {"stage.name=dpo", "adapter.name=lora", "data.validation_split=0.2"}},
    {"llama", {"stage.name=dpo", "adapter.name=lora", "quant.name=nf4", "train.recompute=layer"}},
    {"llama", {"attention.name=reference", "train.precision=fp32"}},
    {"llama", {"train.head_chunk_rows=24", "train.micro_batch_size=3"}},
    {"llama", {"train.precision=fp16", "optimizer.state_dtype=bf16"}},
    {"gpt2", {"train.precision=fp16", "optimizer.name=muon", "optimizer.state_dtype=bf16"}},
    {"qwen3", {"train.precision=fp16", "adapter.name=lora", "quant.name=nf4"}},
    {"llama", {"generate.every=1", "train.precision=fp32"}},
    {"gpt2", {"generate.every=1", "checkpoint.every=2", "data.validation_split=0.2"}},
    {"qwen3", {"generate.every=2", "adapter.name=lora", "quant.name=nf4"}},
    {"llama", {"checkpoint.every=2"}},
    {"llama", {"train.weight_average=ema", "checkpoint.every=2", "data.validation_split=0.2"}},
    {"qwen3", {"train.weight_average=swa", "adapter.name=lora", "quant.name=nf4"}},
    {"gpt2",
     {"optimizer.name=schedule_free_adamw", "scheduler.name=constant", "checkpoint.every=2"}},
    {"llama", {"checkpoint.every=2", "checkpoint.async=false"}},
    {"gpt2", {"checkpoint.every_minutes=5", "adapter.name=lora", "data.validation_split=0.2"}},
};
#define N_CASES (sizeof cases / sizeof cases[0])

static void set_model(settings *s, const char *model)
{
    if (strcmp(model, "gpt2") == 0) {
        static const char *const gpt2[] = {"model.model_type=gpt2",
                                           "model.vocab_size=300",
                                           "model.n_embd=48",
                                           "model.n_layer=3",
                                           "model.n_head=4",
                                           "model.n_positions=128",
                                           NULL};
        set_all(s, gpt2);
        return;
    }
    set_llama(s, 3, 48, 4, 2, 100);
    if (strcmp(model, "qwen3") == 0)
        snprintf(s->text[0], sizeof s->text[0], "model.model_type=qwen3");
}

/* Pairs and documents in one file each, as each stage needs. */
static void write_pairs(const char *dir)
{
    char path[256];
    snprintf(path, sizeof path, "%s/corpus.jsonl", dir);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 60; i++)
        fprintf(f,
                "{\"prompt\": \"question %d?\", \"chosen\": \" a good answer %d\", \"rejected\": "
                "\" no\"}\n",
                i, i * i);
    fclose(f);
}

static void describe(const plan_case *c, char *out, size_t capacity)
{
    int n = snprintf(out, capacity, "%s", c->model);
    for (int i = 0; i < 10 && c->set[i]; i++)
        n += snprintf(out + n, capacity - (size_t)n, " %s", c->set[i]);
}

static void check_same(const char *name, const char *when, const lathe_run *run)
{
    for (int32_t k = 0; k < LATHE_N_MEM; k++) {
        cr_assert_eq(run->machine.used.by[k], run->planned.by[k],
                     "%s, %s: %lld bytes of %s are held, %lld were planned", name, when,
                     (long long)run->machine.used.by[k], lathe_mem_name(k),
                     (long long)run->planned.by[k]);
        cr_assert_eq(run->machine.peak.by[k], run->planned.by[k],
                     "%s, %s: the peak of %s is %lld bytes, %lld were planned", name, when,
                     lathe_mem_name(k), (long long)run->machine.peak.by[k],
                     (long long)run->planned.by[k]);
    }
    cr_assert_gt(lathe_mem_total(&run->planned), 0);
}

static void one_step(lathe_run *run)
{
    for (int32_t k = 0; k < run->set.gradient_accumulation_steps; k++) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        cr_assert(isfinite(f.loss_sum));
        OK(lathe_backward(run, NULL));
    }
    OK(lathe_step(run, NULL));
}

/* The bytes that `lathe plan` prints: the same, although it opens neither weights nor data. */
static void check_plan_mode(const char *name, const settings *s, const lathe_mem_bytes *want)
{
    lathe_run *plan = open_run(LATHE_OPEN_PLAN, s->list);
    for (int32_t k = 0; k < LATHE_N_MEM; k++) {
        cr_assert_eq(plan->machine.used.by[k], 0, "%s: a plan holds memory", name);
        cr_assert_eq(plan->planned.by[k], want->by[k], "%s: planned alone, %s is %lld, not %lld",
                     name, lathe_mem_name(k), (long long)plan->planned.by[k],
                     (long long)want->by[k]);
    }
    lathe_run_close(plan);
}

static void check_case(const plan_case *c, const char *dir)
{
    settings s = {.n = 0};
    char name[512];
    int dpo = 0, evaluates = 0;
    describe(c, name, sizeof name);
    set_model(&s, c->model);
    set_data(&s, dir);
    set(&s, "data.seq_len=40");
    set(&s, "train.micro_batch_size=2");
    set(&s, "train.gradient_accumulation_steps=2");
    set(&s, "train.max_steps=4");
    for (int i = 0; i < 10 && c->set[i]; i++) {
        set(&s, "%s", c->set[i]);
        dpo |= strcmp(c->set[i], "stage.name=dpo") == 0;
        evaluates |= strncmp(c->set[i], "data.validation_split", 21) == 0;
    }
    if (dpo)
        set(&s, "data.datasets=[{path = \"%s/corpus.jsonl\"}]", dir);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    check_same(name, "opened", run);
    one_step(run);
    one_step(run);
    check_same(name, "after two steps", run);
    if (evaluates) {
        lathe_evaluation e;
        OK(lathe_evaluate(run, 0, NULL, &e));
        cr_assert(isfinite(e.loss));
        check_same(name, "after an evaluation", run);
    }
    check_plan_mode(name, &s, &run->planned);
    lathe_run_close(run);
}

Test(memory_plan, is_what_the_allocator_gives_to_the_byte)
{
    char dir[] = "/tmp/lathe-plan-XXXXXX";
    make_folder(dir, 6000);
    write_pairs(dir);
    for (size_t i = 0; i < N_CASES; i++)
        check_case(&cases[i], dir);
    OK(lathe_dir_remove(dir));
}

/* kB of a line of /proc/self/status. */
static int64_t status_kb(const char *key)
{
    char line[256];
    long long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    cr_assert(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %lld", &kb);
    fclose(f);
    cr_assert_gt(kb, 0);
    return (int64_t)kb;
}

/* A run of about 300 MB: the growth of the process compared with the plan. A tiny run comes first,
 * so that libraries, code and pools are already loaded. */
Test(memory_plan, is_what_the_process_holds_within_five_percent)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip_test("a sanitizer's own memory is resident too");
#endif
    char dir[] = "/tmp/lathe-plan-XXXXXX";
    make_folder(dir, 200000);
    write_pairs(dir);
    check_case(&cases[1], dir);
    settings s = {.n = 0};
    set_llama(&s, 6, 512, 8, 4, 1408);
    set_data(&s, dir);
    set(&s, "data.seq_len=256");
    set(&s, "train.micro_batch_size=2");
    set(&s, "train.max_steps=4");
    set(&s, "optimizer.name=adamw");
    const int64_t before = status_kb("VmRSS") * 1024;
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    one_step(run);
    const double held = (double)(status_kb("VmRSS") * 1024 - before);
    const double peak = (double)(status_kb("VmHWM") * 1024 - before);
    const double planned = (double)lathe_mem_total(&run->planned);
    printf("planned %.1f MB, resident %.1f MB (%+.2f %%), peak %.1f MB (%+.2f %%)\n", planned / 1e6,
           held / 1e6, 100.0 * (held / planned - 1.0), peak / 1e6, 100.0 * (peak / planned - 1.0));
    cr_assert_gt(planned, 150e6);
    cr_assert(fabs(held / planned - 1.0) < 0.05, "resident %.0f bytes, planned %.0f", held,
              planned);
    cr_assert(fabs(peak / planned - 1.0) < 0.05, "peak %.0f bytes, planned %.0f", peak, planned);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

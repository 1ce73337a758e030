/* Batches of short sequences run through programs of short rows: the bits do not depend on
 * data.seq_len, long sequences get long rows, and the memory is in the plan. */
#include "exec/program/short_programs.h"
#include "run/api/primitives.h"

#include "base/hash.h"
#include "support/small_run.h"
#include "train/train.h"

static char folder[] = "/tmp/lathe_short_rows_XXXXXX";

/* n pairs whose chosen answer has `repeats` words. */
static void write_pairs(const char *name, int n, int repeats)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "{\"prompt\": \"part %d: \", \"chosen\": \"oil", i);
        for (int k = 0; k < repeats; k++)
            fprintf(f, " drips");
        fprintf(f, "\", \"rejected\": \"no %d\"}\n", i);
    }
    fclose(f);
}

static void setup(void)
{
    cr_assert(mkdtemp(folder));
    write_pairs("short.jsonl", 16, 1);
    write_pairs("long.jsonl", 16, 20); /* 133 to 135 bytes with the prompt and end of text */
    write_pairs("valid.jsonl", 5, 2);
}

static void teardown(void)
{
    OK(lathe_dir_remove(folder));
}

TestSuite(short_rows, .init = setup, .fini = teardown);

static lathe_run *open_pairs(const char *file, int seq_len, const char *more)
{
    settings s = {.n = 0};
    set(&s, "data.datasets=[{path = \"%s/%s\"}]", folder, file);
    set(&s, "data.validation=[{path = \"%s/valid.jsonl\"}]", folder);
    set(&s, "data.cache_dir=%s/cache", folder);
    set(&s, "checkpoint.dir=%s/out", folder);
    set(&s, "tokenizer.path=bytes");
    set(&s, "log.progress=off");
    set_llama(&s, 1, 32, 2, 2, 512);
    set(&s, "data.seq_len=%d", seq_len);
    set(&s, "stage.name=dpo");
    set(&s, "train.threads=1");
    set(&s, "train.max_steps=4");
    set(&s, "train.micro_batch_size=3");
    set(&s, "train.gradient_accumulation_steps=2");
    if (more)
        set(&s, "%s", more);
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

Test(short_rows, lengths_are_seven_at_most_in_steps_of_64)
{
    static const struct {
        int64_t row_tokens;
        int32_t n;
        int64_t first, last;
    } cases[] = {{16, 0, 0, 0},     {64, 0, 0, 0},      {65, 1, 64, 64},     {200, 3, 64, 192},
                 {512, 7, 64, 448}, {513, 4, 128, 512}, {1024, 7, 128, 896}, {8192, 7, 1024, 7168}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t out[LATHE_MAX_SHORT];
        const int32_t n = lathe__short_lengths(cases[i].row_tokens, out);
        cr_assert_eq(n, cases[i].n, "%lld: %d", (long long)cases[i].row_tokens, n);
        if (n > 0)
            cr_assert(out[0] == cases[i].first && out[n - 1] == cases[i].last, "%lld",
                      (long long)cases[i].row_tokens);
    }
}

typedef struct outcome {
    double losses[4], eval_loss;
    uint64_t masters;
    int64_t tokens, row_tokens; /* row_tokens: of the last training program */
} outcome;

static outcome train(const char *file, int seq_len, const char *more)
{
    outcome out;
    lathe_evaluation e;
    lathe_run *run = open_pairs(file, seq_len, more);
    for (int i = 0; i < 4; i++) {
        lathe_step_result r = {.size = sizeof r};
        for (int k = 0; k < 2; k++) {
            lathe_forward_result f = {.size = sizeof f};
            OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
            OK(lathe_backward(run, NULL));
        }
        OK(lathe_step(run, &r));
        out.losses[i] = r.loss;
    }
    OK(lathe_evaluate(run, 0, NULL, &e));
    out.eval_loss = e.loss;
    out.masters = lathe_hash64(run->store.masters, run->store.master_bytes);
    out.tokens = run->at.tokens;
    out.row_tokens = run->programs.trained->row_tokens;
    cr_assert_eq(run->programs.evaluated->row_tokens, 64);
    for (int32_t k = 0; k < LATHE_N_MEM; k++)
        cr_assert_eq(run->machine.peak.by[k], run->planned.by[k], "%s", lathe_mem_name(k));
    lathe_run_close(run);
    return out;
}

static void expect_equal(const outcome *a, const outcome *b)
{
    for (int i = 0; i < 4; i++)
        cr_expect(a->losses[i] == b->losses[i], "step %d: %.9g and %.9g", i + 1, a->losses[i],
                  b->losses[i]);
    cr_expect(a->eval_loss == b->eval_loss, "%.9g and %.9g", a->eval_loss, b->eval_loss);
    cr_expect_eq(a->masters, b->masters);
    cr_expect_eq(a->tokens, b->tokens);
}

Test(short_rows, the_bits_of_short_pairs_do_not_depend_on_seq_len)
{
    static const char *const precisions[] = {"train.precision=fp32", "train.precision=bf16"};
    for (int i = 0; i < 2; i++) {
        const outcome exact = train("short.jsonl", 64, precisions[i]);
        const outcome wide = train("short.jsonl", 300, precisions[i]);
        cr_assert_eq(exact.row_tokens, 64);
        cr_assert_eq(wide.row_tokens, 64);
        expect_equal(&exact, &wide);
    }
}

Test(short_rows, long_pairs_get_long_rows)
{
    const outcome exact = train("long.jsonl", 192, "train.precision=fp32");
    const outcome wide = train("long.jsonl", 500, "train.precision=fp32");
    cr_assert_eq(exact.row_tokens, 192);
    cr_assert_eq(wide.row_tokens, 192);
    expect_equal(&exact, &wide);
}

/* Padding is not counted: of 4 steps of 2 batches of 3 pairs, 24 pairs. */
Test(short_rows, tokens_are_counted_without_padding)
{
    const outcome o = train("short.jsonl", 300, "train.precision=fp32");
    cr_expect(o.tokens > 24 * 2 * 10 && o.tokens < 24 * 2 * 30, "%lld", (long long)o.tokens);
}

/* Log-probabilities of a batch of the caller's, whose rows end in a document without targets. */
Test(short_rows, logprobs_of_padding_are_0)
{
    enum { T = 200, N = 30 };
    int32_t tokens[2 * T], targets[2 * T], doc_start[2 * T];
    float got[2 * T], want[2 * N];
    lathe_run *run = open_pairs("short.jsonl", T, "train.precision=fp32");
    for (int i = 0; i < 2 * T; i++) {
        tokens[i] = 1 + i % 7;
        targets[i] = i % T < N ? 2 + i % 5 : -1;
        doc_start[i] = i % T < N ? 0 : N;
        got[i] = 1.0f;
    }
    const lathe_run_batch padded = {.size = sizeof padded,
                                    .n_rows = 2,
                                    .row_tokens = T,
                                    .tokens = tokens,
                                    .targets = targets,
                                    .doc_start = doc_start};
    OK(lathe__evaluated_logprobs(run, &padded, got));
    cr_assert_eq(run->programs.evaluated->row_tokens, 64);
    for (int i = 0; i < 2 * N; i++) {
        tokens[i] = tokens[i / N * T + i % N];
        targets[i] = targets[i / N * T + i % N];
    }
    const lathe_run_batch exact = {
        .size = sizeof exact, .n_rows = 2, .row_tokens = N, .tokens = tokens, .targets = targets};
    OK(lathe__evaluated_logprobs(run, &exact, want));
    for (int i = 0; i < 2 * T; i++)
        cr_assert_eq(got[i], i % T < N ? want[i / T * N + i % T] : 0.0f, "%d", i);
    lathe_run_close(run);
}

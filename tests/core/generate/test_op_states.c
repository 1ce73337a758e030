/* Ops of plugins that keep a state of each sequence: generation gives each sequence its own, copies
 * it with prompts that are shared, and gives the bits of a whole forward. The model is that of
 * examples/models/ripple. */
#include "graph/ir/plugin_op.h"
#include "support/small_run.h"

#define ON_CPU 0
static void set_where(settings *s, int where)
{
    (void)where;
    set(s, "device.name=cpu");
}
#include "support/generate_case.h"

enum { N = MAX_PROMPTS };

static char dir[] = "/tmp/lathe_ripple_XXXXXX";

static void setup(void)
{
    make_folder(dir, 4000);
}

static void teardown(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(op_states, .init = setup, .fini = teardown);

static lathe_run *open_ripple(int32_t mode, int batch, int threads, const char *more)
{
    settings s = {.n = 0};
    set_where(&s, ON_CPU);
    set_data(&s, dir);
    set(&s, "plugins.paths=[\"%s/tests/rippling\"]", LATHE_TEST_BUILD);
    set(&s, "model.model_type=ripple");
    set(&s, "model.hidden_size=32");
    set(&s, "model.intermediate_size=48");
    set(&s, "model.num_hidden_layers=2");
    set(&s, "model.num_attention_heads=4");
    set(&s, "model.vocab_size=300");
    set(&s, "data.seq_len=64");
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=3");
    set(&s, "train.micro_batch_size=2");
    set(&s, "train.threads=%d", threads);
    set(&s, "generate.batch=%d", batch);
    if (more)
        set(&s, "%s", more);
    return open_run(mode, s.list);
}

static const lathe_sampling sampled = {
    .size = (uint32_t)sizeof sampled, .max_new_tokens = 12, .temperature = 0.9, .top_p = 1.0};

Test(op_states, sequences_have_the_bits_of_a_whole_forward_in_every_batch)
{
    static const int batches[][2] = {{1, 1}, {5, 1}, {5, 3}, {24, 2}};
    lathe_generation want[N], got[N];
    lathe_run *alone = open_ripple(LATHE_OPEN_BATCHES, 1, 1, NULL);
    generate(alone, &sampled, N, want);
    for (int i = 0; i < N; i++)
        expect_logprobs(alone, &want[i], "alone");
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        char what[64];
        lathe_run *run = open_ripple(LATHE_OPEN_BATCHES, batches[b][0], batches[b][1], NULL);
        (void)snprintf(what, sizeof what, "batch %d, %d threads", batches[b][0], batches[b][1]);
        generate(run, &sampled, N, got);
        expect_same(got, want, N, what);
        generate(run, &sampled, N, got); /* in slots that others have used */
        expect_same(got, want, N, what);
        lathe_run_close(run);
    }
    lathe_run_close(alone);
}

/* The states are in the plan: 3 hidden states of each slot. */
Test(op_states, plan_counts_the_states)
{
    lathe_run *run = open_ripple(LATHE_OPEN_BATCHES, 5, 1, NULL);
    lathe_generation made[N];
    generate(run, &sampled, N, made);
    const lathe_graph *g = lathe_exec_graph(lathe_generator_exec(run->generator));
    cr_assert_eq(g->n_states, 1);
    const lathe_desc *pool = &g->values[g->states[0]].desc;
    cr_expect_eq(pool->dims[0], 5 + 8 + 1); /* sequences, kept prompts, zeros */
    cr_expect_eq(lathe_desc_bytes(pool), 14 * 3 * 32 * 4);
    cr_expect_eq(run->machine.used.by[LATHE_MEM_CACHE],
                 lathe_generator_needs(run->generator).cache_bytes);
    lathe_run_close(run);
}

Test(op_states, the_model_trains_with_every_recomputation)
{
    static const char *const modes[] = {"train.recompute=none", "train.recompute=layer",
                                        "train.recompute=pointwise"};
    double first = 0.0;
    for (int i = 0; i < 3; i++) {
        lathe_run *run = open_ripple(LATHE_OPEN_TRAIN, 1, 2, modes[i]);
        lathe_train_result result;
        char said[4096] = "";
        OK(train_said(run, said, sizeof said, &result));
        const int32_t w = lathe_params_find(&run->params, "model.ripple.weight");
        cr_assert_geq(w, 0);
        const double now = (double)lathe_store_master(&run->store, w)[5];
        cr_expect(i == 0 || now == first, "%s: %.9g, %.9g", modes[i], now, first);
        first = now;
        lathe_run_close(run);
        char out[64]; /* else the next run goes on */
        (void)snprintf(out, sizeof out, "%s/out", dir);
        OK(lathe_dir_remove(out));
    }
}

/* Stages that make their own batches: rollouts, their state in checkpoints, stops, and what such a
 * stage refuses. */
#include "train/rollout.h"

#include <unistd.h>

#include "base/hash.h"
#include "generate/generator.h"
#include "support/small_run.h"

enum { STEPS = 6 }; /* a rollout has four steps: two epochs of two minibatches */

static char folder[] = "/tmp/lathe_rollout_XXXXXX";

static void setup(void)
{
    char path[256];
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/prompts.jsonl", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 10; i++)
        fprintf(f, "{\"prompt\": \"part %d\"}\n", i);
    fclose(f);
}

static void teardown(void)
{
    OK(lathe_dir_remove(folder));
}

TestSuite(rollout, .init = setup, .fini = teardown);

/* max_steps 0: unset */
static void ppo_settings(settings *s, int max_steps)
{
    s->n = 0;
    set(s, "data.datasets=[{path = \"%s/prompts.jsonl\"}]", folder);
    set(s, "data.cache_dir=%s/cache", folder);
    set(s, "checkpoint.dir=%s/out", folder);
    set(s, "tokenizer.path=bytes");
    set(s, "log.progress=off");
    set_llama(s, 1, 32, 2, 2, 64);
    set(s, "data.seq_len=32");
    set(s, "stage.name=ppo");
    set(s, "stage.prompts=2");
    set(s, "stage.group=4");
    set(s, "stage.max_new_tokens=6");
    set(s, "stage.epochs=2");
    set(s, "stage.minibatches=2");
    set(s, "stage.kl_coef=0.05");
    set(s, "reward.name=length");
    set(s, "reward.rule=target");
    set(s, "reward.tokens=3");
    set(s, "optimizer.lr=1e-2");
    set(s, "train.precision=fp32");
    set(s, "train.threads=1");
    set(s, "train.micro_batch_size=3");
    if (max_steps > 0)
        set(s, "train.max_steps=%d", max_steps);
}

static void one_step(lathe_run *run, lathe_rollout *out)
{
    *out = (lathe_rollout){.stop = NULL};
    OK(lathe_rollout_step(run, out));
    cr_assert_eq(out->bad, 0);
    cr_assert_eq(out->is_stopped, 0);
    OK(lathe_step(run, NULL));
}

static uint64_t masters_of(const lathe_run *run)
{
    return lathe_hash64(run->store.masters, run->store.master_bytes);
}

/* The run has used as much memory of each category as was planned. */
static void expect_planned_memory(const lathe_run *run)
{
    for (int32_t k = 0; k < LATHE_N_MEM; k++)
        cr_assert_eq(run->machine.peak.by[k], run->planned.by[k], "%s: %lld used, %lld planned",
                     lathe_mem_name(k), (long long)run->machine.peak.by[k],
                     (long long)run->planned.by[k]);
}

/* Saves after each step, loads into another run, and compares all that follows. */
static void resume_everywhere(const settings *s)
{
    uint64_t want[STEPS];
    double figures[STEPS][LATHE_MAX_STAGE_FIGURES];
    char path[256];
    lathe_rollout r;
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    for (int i = 0; i < STEPS; i++) {
        one_step(run, &r);
        want[i] = masters_of(run);
        memcpy(figures[i], r.figures, sizeof figures[i]);
        cr_expect(isfinite(r.figures[0]) && r.figures[0] <= 0.0);
        cr_expect(i == 0 || want[i] != want[i - 1]);
    }
    cr_expect_eq(figures[0][0], figures[3][0], "one rollout has one reward");
    expect_planned_memory(run);
    lathe_run_close(run);
    for (int stop = 1; stop < STEPS; stop++) {
        snprintf(path, sizeof path, "%s/saved-%d", folder, stop);
        run = open_run(LATHE_OPEN_TRAIN, s->list);
        for (int i = 0; i < stop; i++)
            one_step(run, &r);
        OK(lathe_save(run, path));
        lathe_run_close(run);
        run = open_run(LATHE_OPEN_TRAIN, s->list);
        OK(lathe_load(run, path));
        for (int i = stop; i < STEPS; i++) {
            one_step(run, &r);
            cr_expect_eq(masters_of(run), want[i], "stopped after step %d, step %d differs", stop,
                         i + 1);
            cr_expect_arr_eq(r.figures, figures[i], sizeof figures[i], "step %d", i + 1);
        }
        lathe_run_close(run);
    }
}

Test(rollout, resumes_with_the_same_bits_at_every_step_of_a_rollout)
{
    settings s;
    ppo_settings(&s, STEPS);
    resume_everywhere(&s);
}

Test(rollout, resumes_with_a_critic_and_an_adaptive_coefficient_with_the_same_bits)
{
    settings s;
    ppo_settings(&s, STEPS);
    set(&s, "stage.advantage=gae");
    set(&s, "stage.kl_in_reward=true");
    set(&s, "stage.kl_target=0.01");
    set(&s, "stage.kl_horizon=10");
    resume_everywhere(&s);
}

/* Without a critic its head is neither planned nor trained. */
Test(rollout, a_critic_is_a_parameter_only_where_advantages_need_it)
{
    settings s;
    ppo_settings(&s, STEPS);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    cr_expect_lt(lathe_params_find(&run->params, "value.weight"), 0);
    lathe_run_close(run);
    set(&s, "stage.advantage=gae");
    run = open_run(LATHE_OPEN_PLAN, s.list);
    const int32_t row = lathe_params_find(&run->params, "value.weight");
    cr_assert_geq(row, 0);
    cr_expect_eq(run->params.rows[row]->trainable, 1);
    lathe_run_close(run);
}

/* The nodes of the training program that compute log-probabilities. */
static int n_logprobs(const lathe_run *run)
{
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    int n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == LATHE_OP_HEAD_LOGPROB;
    return n;
}

/* A divergence in the reward is computed once per rollout; no training step has the reference. */
Test(rollout, a_divergence_in_the_reward_costs_no_training_step_anything)
{
    settings s;
    ppo_settings(&s, STEPS);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    const double in_the_loss = run->programs.train.flops;
    const int of_both = n_logprobs(run);
    lathe_run_close(run);
    set(&s, "stage.kl_in_reward=true");
    run = open_run(LATHE_OPEN_PLAN, s.list);
    cr_expect_lt(run->programs.train.flops, in_the_loss);
    cr_expect_eq(n_logprobs(run), of_both - 1);
    cr_expect_eq(run->params.has_reference, 1);
    lathe_run_close(run);
}

/* A stopped step takes no prompts and changes nothing; the next one is what it would have been. */
Test(rollout, a_stop_before_the_gradients_changes_nothing)
{
    settings s;
    ppo_settings(&s, STEPS);
    volatile sig_atomic_t stop = 1;
    lathe_rollout r = {.stop = &stop};
    lathe_run *plain = open_run(LATHE_OPEN_TRAIN, s.list);
    one_step(plain, &r);
    const uint64_t want = masters_of(plain);
    lathe_run_close(plain);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    const uint64_t before = masters_of(run);
    r = (lathe_rollout){.stop = &stop};
    OK(lathe_rollout_step(run, &r));
    cr_expect_eq(r.is_stopped, 1);
    cr_expect_eq(run->sum.backwards, 0);
    cr_expect_eq(masters_of(run), before);
    one_step(run, &r);
    cr_expect_eq(masters_of(run), want);
    lathe_run_close(run);
}

/* The largest number of blocks of the KV cache in use in a rollout of 48 completions. A completion
 * of these settings takes one block. */
static int32_t max_blocks(int batch)
{
    settings s;
    lathe_rollout r;
    ppo_settings(&s, STEPS);
    set(&s, "stage.group=24");
    set(&s, "generate.batch=%d", batch);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    one_step(run, &r);
    const int32_t max = lathe_generator_max_blocks(run->generator);
    lathe_run_close(run);
    return max;
}

Test(rollout, generate_batch_is_the_number_of_completions_at_a_time)
{
    const int32_t of_48 = max_blocks(48), of_4 = max_blocks(4);
    cr_expect_geq(of_48, 44, "%d blocks", of_48);  /* all except those that ended early */
    cr_expect_leq(of_4, 4 + 2, "%d blocks", of_4); /* and those of the two kept prompts */
}

/* Other settings of the stage make another state. */
Test(rollout, a_state_of_other_settings_is_refused)
{
    settings s;
    ppo_settings(&s, STEPS);
    char path[256];
    lathe_rollout r;
    snprintf(path, sizeof path, "%s/saved", folder);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    one_step(run, &r);
    OK(lathe_save(run, path));
    lathe_run_close(run);
    set(&s, "stage.prompts=4");
    run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_expect_eq(lathe_load(run, path), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "bytes of the stage's state"), "%s",
              lathe_error_message());
    lathe_run_close(run);
}

static void expect_refused(const char *setting, int max_steps, const char *message)
{
    settings s;
    lathe_run *run = NULL;
    ppo_settings(&s, max_steps);
    set(&s, "%s", setting);
    cr_expect_neq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_OK, "%s", setting);
    cr_expect(strstr(lathe_error_message(), message), "%s: %s", setting, lathe_error_message());
    lathe_run_close(run);
}

Test(rollout, settings_without_a_meaning_are_refused)
{
    expect_refused("train.gradient_accumulation_steps=2", STEPS, "decides itself how many batches");
    expect_refused("data.validation_split=0.5", STEPS, "has no loss over data to evaluate");
    expect_refused("stage.max_new_tokens=32", STEPS, "leaves no room for a prompt");
    expect_refused("train.threads=1", 0, "set train.max_steps");
}

/* Without kl_coef no reference model is planned. */
Test(rollout, a_reference_is_kept_only_for_a_divergence)
{
    settings s;
    ppo_settings(&s, STEPS);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    cr_expect_eq(run->params.has_reference, 1);
    lathe_run_close(run);
    set(&s, "stage.kl_coef=0");
    run = open_run(LATHE_OPEN_PLAN, s.list);
    cr_expect_eq(run->params.has_reference, 0);
    lathe_run_close(run);
}

/* A reward model that another run has trained scores prompt and completion. */
Test(rollout, a_reward_model_is_a_folder)
{
    settings s = {.n = 0};
    char path[256];
    lathe_rollout r;
    snprintf(path, sizeof path, "%s/pairs.jsonl", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 4; i++)
        fprintf(f, "{\"prompt\": \"part %d\", \"chosen\": \"yes\", \"rejected\": \"no\"}\n", i);
    fclose(f);
    set(&s, "data.datasets=[{path = \"%s/pairs.jsonl\"}]", folder);
    set(&s, "data.cache_dir=%s/cache", folder);
    set(&s, "checkpoint.dir=%s/rm", folder);
    set(&s, "tokenizer.path=bytes");
    set(&s, "log.progress=off");
    set_llama(&s, 1, 32, 2, 2, 64);
    set(&s, "data.seq_len=32");
    set(&s, "stage.name=rm");
    set(&s, "train.max_steps=1");
    set(&s, "train.threads=1");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    snprintf(path, sizeof path, "%s/judge", folder);
    OK(lathe_save(run, path));
    lathe_run_close(run);
    ppo_settings(&s, STEPS);
    settings with = {.n = 0};
    for (int i = 0; i < s.n; i++)
        if (strncmp(s.list[i], "reward.", 7) != 0)
            set(&with, "%s", s.list[i]);
    set(&with, "reward.model=%s", path);
    run = open_run(LATHE_OPEN_TRAIN, with.list);
    one_step(run, &r);
    cr_expect(isfinite(r.figures[0]) && r.figures[0] != 0.0, "%g", r.figures[0]);
    expect_planned_memory(run);
    lathe_run_close(run);
}

/* Its data have prompts and no targets. */
Test(rollout, an_evaluation_of_the_stage_is_refused)
{
    settings s;
    lathe_run *run = NULL;
    ppo_settings(&s, STEPS);
    cr_expect_eq(open_run_status(LATHE_OPEN_EVALUATE, s.list, &run), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "has no loss over data to evaluate: evaluate the model "
                                            "with another stage"),
              "%s", lathe_error_message());
    lathe_run_close(run);
}

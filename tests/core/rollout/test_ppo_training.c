/* Trainings of the stage ppo: they resume to the same bits at every step of a rollout, count what
 * cannot be learnt, and refuse settings that leave nothing to learn. */
#include "core/run/checkpoint_case.h"

enum { STEPS = 9, STEPS_OF_ROLLOUT = 4 };

static char dir[64];

static void make_dir(void)
{
    char path[128];
    snprintf(dir, sizeof dir, "/tmp/lathe-ppo-XXXXXX");
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/prompts.jsonl", dir);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    for (int i = 0; i < 7; i++)
        fprintf(f, "{\"prompt\": \"%.*s\", \"answer\": %d}\n", 3 + i, "turn the wheel", i);
    fclose(f);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(ppo_training, .init = make_dir, .fini = drop_dir);

/* Two prompts of two completions: the four steps of a rollout are two epochs of two minibatches. */
static void configure_ppo(settings *s)
{
    set_llama(s, 1, 16, 2, 1, 24);
    set(s, "data.datasets=[{path = \"%s/prompts.jsonl\"}]", dir);
    set(s, "data.cache_dir=%s/cache", dir);
    set(s, "data.seq_len=24");
    set(s, "data.prefetch=0");
    set(s, "checkpoint.dir=%s/out", dir);
    set(s, "tokenizer.path=bytes");
    set(s, "log.progress=off");
    set(s, "stage.name=ppo");
    set(s, "stage.prompts=2");
    set(s, "stage.group=2");
    set(s, "stage.max_new_tokens=6");
    set(s, "train.precision=fp32");
    set(s, "train.micro_batch_size=1");
    set(s, "train.max_steps=%d", STEPS);
    set(s, "train.threads=1");
    set(s, "optimizer.name=adamw");
    set(s, "optimizer.lr=0.01");
    set(s, "optimizer.weight_decay=0");
    set(s, "reward.name=length");
    set(s, "reward.rule=target");
    set(s, "reward.tokens=3");
}

static void several_steps(settings *s)
{
    set(s, "stage.epochs=2");
    set(s, "stage.minibatches=2");
    set(s, "stage.scale_rewards=none");
    set(s, "stage.aggregation=sequence");
}

static const char *const files[] = {"model.safetensors", "state/optimizer.safetensors",
                                    "state/stage.safetensors", NULL};

/* Trains without a pause, and keeps the last checkpoint as "whole". */
static void train_whole(const settings *s)
{
    OK(train_once(s, NULL, NULL));
    cr_assert_eq(rename(in(dir, "out/step-%08d", STEPS), in(dir, "whole")), 0);
    OK(lathe_dir_remove(in(dir, "out")));
}

static void expect_whole(void)
{
    for (int i = 0; files[i]; i++)
        expect_same_file(in(dir, "whole/%s", files[i]),
                         in(dir, "out/step-%08d/%s", STEPS, files[i]));
    OK(lathe_dir_remove(in(dir, "out")));
}

/* Changes train.stop_after, the last setting. At STEPS the run ends without a pause. */
static void stop_after(settings *s, int step)
{
    snprintf(s->text[s->n - 1], sizeof s->text[0], "train.stop_after=%d", step);
}

/* Steps 4 and 8 end a rollout; the others are between two epochs of it or within one. */
Test(ppo_training, resumed_between_and_within_epochs_it_gives_the_same_bits)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    several_steps(&s);
    set(&s, "train.stop_after=%d", STEPS);
    train_whole(&s);
    for (int k = 1; k < STEPS; k++) {
        const char at[] = {(char)('0' + k), '\0'};
        stop_after(&s, k);
        OK(train_once(&s, NULL, NULL));
        cr_assert_str_eq(steps_in(dir), at);
        stop_after(&s, STEPS);
        OK(train_once(&s, NULL, NULL));
        expect_whole();
    }
}

Test(ppo_training, resumed_beside_a_reference_model_it_gives_the_same_bits)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    several_steps(&s);
    set(&s, "stage.kl_coef=0.1");
    set(&s, "stage.entropy_coef=0.01");
    set(&s, "adapter.name=lora");
    set(&s, "train.stop_after=%d", STEPS);
    train_whole(&s);
    stop_after(&s, 3);
    OK(train_once(&s, NULL, NULL));
    stop_after(&s, STEPS);
    OK(train_once(&s, NULL, NULL));
    for (int i = 1; files[i]; i++)
        expect_same_file(in(dir, "whole/%s", files[i]),
                         in(dir, "out/step-%08d/%s", STEPS, files[i]));
}

/* Trains with the stop flag set, so that the run ends before it has generated a rollout. */
static void stop_at_once(const settings *s, int64_t want_step)
{
    static const volatile sig_atomic_t stop = 1;
    lathe_train_result r;
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    FILE *f = tmpfile();
    const lathe_train_options options = {.out = f, .stop = &stop};
    OK(lathe_train(run, &options, &r));
    cr_expect_eq(r.interrupted, 1);
    cr_expect_eq(r.step, want_step);
    fclose(f);
    lathe_run_close(run);
}

Test(ppo_training, stopped_before_a_rollout_it_takes_the_same_prompts_again)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    several_steps(&s);
    set(&s, "train.stop_after=%d", STEPS);
    train_whole(&s);
    stop_after(&s, STEPS_OF_ROLLOUT);
    OK(train_once(&s, NULL, NULL));
    stop_after(&s, STEPS);
    stop_at_once(&s, STEPS_OF_ROLLOUT);
    OK(train_once(&s, NULL, NULL));
    expect_whole();
}

/* Text of the run's metrics.jsonl. */
static const char *metrics(void)
{
    static char text[32768];
    FILE *f = fopen(in(dir, "out/metrics.jsonl"), "r");
    cr_assert(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

Test(ppo_training, groups_of_equal_rewards_are_counted_and_change_no_weight)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    set(&s, "reward.rule=overlong"); /* 0 for all of them */
    set(&s, "reward.tokens=1000");
    set(&s, "train.max_steps=1");
    OK(train_once(&s, NULL, NULL));
    cr_expect(strstr(metrics(), "\"frac_reward_zero_std\": 1"), "%s", metrics());
    cr_expect(strstr(metrics(), "\"update_ratio\": 0,"), "%s", metrics());
}

Test(ppo_training, completions_cut_at_the_limit_may_be_masked)
{
    settings s = {.n = 0};
    const char *text = NULL;
    configure_ppo(&s);
    set(&s, "stage.mask_cut=true"); /* a random model hardly ends a text within two tokens */
    set(&s, "stage.max_new_tokens=2");
    set(&s, "train.max_steps=1");
    OK(train_once(&s, NULL, &text));
    cr_expect(strstr(text, "none of the tokens was a target"), "%s", text);
}

static void expect_refused(const char *setting, const char *part)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure_ppo(&s);
    set(&s, "%s", setting);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG, "%s", setting);
    expect_message(part);
}

Test(ppo_training, settings_that_leave_nothing_to_learn_are_refused)
{
    expect_refused("stage.max_new_tokens=24",
                   "max_new_tokens = 24 leaves no room for a prompt in rows of data.seq_len = 24");
    expect_refused("stage.minibatches=3",
                   "minibatches = 3 does not divide the 4 completions of a rollout");
    expect_refused("stage.prompts=65536", "are more than the 65536 that a rollout may have");
    expect_refused("stage.dro_beta=0.5", "dro_beta has no meaning for loss_type \"ppo\"");
    expect_refused("stage.kl_estimator=k1", "kl_estimator has no meaning without kl_coef");
}

/* Trainings of the stage ppo: they resume to the same bits at every step of a rollout, count what
 * cannot be learnt, and refuse settings that leave nothing to learn. */
#include <math.h>

#include "support/checkpoint_case.h"

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

/* Several steps with a critic, and a divergence in the reward whose weight adapts. */
static void critic_steps(settings *s)
{
    set(s, "stage.epochs=2");
    set(s, "stage.minibatches=2");
    set(s, "stage.advantage=gae");
    set(s, "stage.lambda=0.9");
    set(s, "stage.cliprange_value=0.01");
    set(s, "stage.kl_coef=0.1");
    set(s, "stage.kl_in_reward=true");
    set(s, "stage.kl_target=0.05");
    set(s, "stage.kl_horizon=5");
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

/* Text of the run's metrics.jsonl. */
static const char *metrics(void)
{
    static char text[131072];
    FILE *f = fopen(in(dir, "out/metrics.jsonl"), "r");
    cr_assert(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* The value of a figure in the line of a step of metrics.jsonl. */
static double figure(int step, const char *name)
{
    char at[32], key[64];
    snprintf(at, sizeof at, "{\"step\": %d,", step);
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *line = strstr(metrics(), at);
    cr_assert(line, "no step %d", step);
    const char *found = strstr(line, key), *end = strchr(line, '\n');
    cr_assert(found && (!end || found < end), "step %d has no %s", step, name);
    return strtod(found + strlen(key), NULL);
}

/* Stops after each of the steps, resumes, and compares with the run without a pause. Steps 4 and 8
 * end a rollout; the others are between two epochs of it or within one. */
static void resume_at_steps(settings *s, int first, int last)
{
    set(s, "train.stop_after=%d", STEPS);
    train_whole(s);
    for (int k = first; k <= last; k++) {
        const char at[] = {(char)('0' + k), '\0'};
        stop_after(s, k);
        OK(train_once(s, NULL, NULL));
        cr_assert_str_eq(steps_in(dir), at);
        stop_after(s, STEPS);
        OK(train_once(s, NULL, NULL));
        expect_whole();
    }
}

Test(ppo_training, resumed_between_and_within_epochs_it_gives_the_same_bits)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    several_steps(&s);
    resume_at_steps(&s, 1, STEPS - 1);
}

Test(ppo_training, resumed_with_a_critic_and_an_adaptive_coefficient_it_gives_the_same_bits)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    critic_steps(&s);
    OK(train_once(&s, NULL, NULL));
    const double first = figure(1, "objective/kl_coef"), last = figure(STEPS, "objective/kl_coef");
    cr_expect_float_eq(first, 0.1, 1e-9);
    cr_expect(last != first && figure(5, "objective/kl_coef") != last,
              "the coefficient does not move: %g, %g", first, last);
    cr_expect(figure(4, "val/clipfrac") > 0.0, "no value is clipped");
    OK(lathe_dir_remove(in(dir, "out")));
    resume_at_steps(&s, 1, STEPS - 1);
}

/* The coefficient weighs the loss of groups: it stays the same within a rollout. */
Test(ppo_training, resumed_with_an_adaptive_coefficient_of_the_loss_it_gives_the_same_bits)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    several_steps(&s);
    set(&s, "stage.kl_coef=0.1");
    set(&s, "stage.kl_target=0.05");
    set(&s, "stage.kl_horizon=5");
    resume_at_steps(&s, 3, 6);
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
    expect_refused("stage.group=1", "group = 1 leaves no other completion of the prompt");
}

/* `text`: of settings that are refused, one per element. */
static void expect_all_refused(const char *const *list, const char *part)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure_ppo(&s);
    for (int i = 0; list[i]; i++)
        set(&s, "%s", list[i]);
    cr_assert_eq(open_run_status(LATHE_OPEN_TRAIN, s.list, &run), LATHE_E_CONFIG, "%s", list[0]);
    expect_message(part);
}

#define REFUSED(part, ...) expect_all_refused((const char *const[]){__VA_ARGS__, NULL}, part)

Test(ppo_training, settings_of_a_critic_that_is_not_there_are_refused)
{
    REFUSED("gamma has no meaning for advantage \"group\", which has no critic: leave it out, or "
            "set advantage to \"gae\"",
            "stage.gamma=0.9");
    REFUSED("lambda has no meaning for advantage \"group\"", "stage.lambda=0.9");
    REFUSED("vf_coef has no meaning for advantage \"group\"", "stage.vf_coef=0.5");
    REFUSED("cliprange_value has no meaning for advantage \"group\"", "stage.cliprange_value=1");
    REFUSED("whiten_advantages has no meaning for advantage \"group\"",
            "stage.whiten_advantages=false");
    REFUSED("scale_rewards has no meaning for advantage \"gae\"", "stage.advantage=gae",
            "stage.scale_rewards=none");
    REFUSED("stage.vf_coef is 0", "stage.advantage=gae", "stage.vf_coef=0");
    REFUSED("did you mean 'lambda'?", "stage.advantage=gae", "stage.lam=0.9");
}

Test(ppo_training, settings_of_a_divergence_without_an_effect_are_refused)
{
    REFUSED("kl_in_reward has no meaning without kl_coef", "stage.kl_in_reward=true");
    REFUSED("kl_target has no meaning without kl_coef", "stage.kl_target=6");
    REFUSED("kl_horizon has no meaning without kl_coef", "stage.kl_horizon=100");
    REFUSED("kl_horizon has no meaning without kl_target, which makes kl_coef adapt",
            "stage.kl_coef=0.1", "stage.kl_horizon=100");
    REFUSED("kl_horizon = 3 is less than the 4 completions of one rollout", "stage.kl_coef=0.1",
            "stage.kl_target=6", "stage.kl_horizon=3");
}

/* ---- the critic ---- */

/* Completions are 6 tokens long, and 3 are wanted: the reward is -1, and so is each value. */
Test(ppo_training, a_critic_learns_the_value_of_each_token)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    set(&s, "stage.advantage=gae");
    set(&s, "stage.vf_coef=1");
    set(&s, "train.max_steps=60");
    OK(train_once(&s, NULL, NULL));
    cr_expect(fabs(figure(1, "val/mean")) < 0.5, "%g", figure(1, "val/mean"));
    cr_expect_float_eq(figure(60, "val/mean"), figure(60, "reward"), 0.15, "%g, the reward is %g",
                       figure(60, "val/mean"), figure(60, "reward"));
    cr_expect_lt(figure(60, "loss/value"), 0.1 * figure(1, "loss/value"));
}

/* Whether a file of a folder has this text, such as the name of a tensor. */
static int has_text(const char *path, const char *text)
{
    lathe_map map;
    OK(lathe_map_open(path, &map));
    const int found = memmem(map.data, (size_t)map.bytes, text, strlen(text)) != NULL;
    lathe_map_close(&map);
    return found;
}

/* Trains for one step into `out`, which is then called `name`. */
static void train_one(const settings *s, const char *name)
{
    char to[256];
    OK(train_once(s, NULL, NULL));
    snprintf(to, sizeof to, "%s", in(dir, "%s", name));
    cr_assert_eq(rename(in(dir, "out/step-00000001"), to), 0);
    OK(lathe_dir_remove(in(dir, "out")));
}

Test(ppo_training, a_critic_is_saved_with_the_policy_and_only_where_there_is_one)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    set(&s, "train.max_steps=1");
    train_one(&s, "group");
    cr_expect(!has_text(in(dir, "group/model.safetensors"), "value.weight"));
    set(&s, "stage.advantage=gae");
    train_one(&s, "critic");
    cr_expect(has_text(in(dir, "critic/model.safetensors"), "value.weight"));
    set(&s, "adapter.name=lora");
    train_one(&s, "lora");
    cr_expect(!has_text(in(dir, "lora/model.safetensors"), "value.weight"));
    cr_expect(has_text(in(dir, "lora/adapter_model.safetensors"), "value.weight"));
    cr_expect(has_text(in(dir, "lora/adapter_config.json"), "\"modules_to_save\""));
}

/* One step of a run that begins from a folder. */
static void train_from(const char *path, const char *advantage)
{
    settings s = {.n = 0};
    configure_ppo(&s);
    settings with = {.n = 0};
    for (int i = 0; i < s.n; i++)
        if (strncmp(s.list[i], "model.", 6) != 0)
            set(&with, "%s", s.list[i]);
    set(&with, "model.path=%s", path);
    set(&with, "stage.advantage=%s", advantage);
    set(&with, "train.max_steps=1");
    OK(train_once(&with, NULL, NULL));
}

/* The first rollout has the critic's values of the folder; without a critic it is left out. */
Test(ppo_training, a_critic_of_the_folder_is_trained_further)
{
    settings s = {.n = 0};
    char path[256];
    configure_ppo(&s);
    set(&s, "stage.advantage=gae");
    set(&s, "stage.vf_coef=1");
    set(&s, "train.max_steps=60");
    OK(train_once(&s, NULL, NULL));
    snprintf(path, sizeof path, "%s", in(dir, "kept"));
    cr_assert_eq(rename(in(dir, "out/step-00000060"), path), 0);
    OK(lathe_dir_remove(in(dir, "out")));
    train_from(path, "gae");
    cr_expect_float_eq(figure(1, "val/mean"), -1.0, 0.15);
    OK(lathe_dir_remove(in(dir, "out")));
    train_from(path, "group");
    cr_expect(strstr(logged, "1 tensor is not part of this model: value.weight"), "%s", logged);
}

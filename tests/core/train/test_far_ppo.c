/* Policy optimization with a critic on a device with memory of its own: the outputs of an
 * evaluation get to the host, and the figures are those of the CPU. */
#include "support/far_case.h"
#include "train/rollout.h"

enum { STEPS = 6 }; /* two rollouts, the second of an updated policy and critic */

static char folder[] = "/tmp/lathe_far_ppo_XXXXXX";

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

TestSuite(far_ppo, .init = setup, .fini = teardown);

static void figures_on(int where, double out[STEPS][LATHE_MAX_STAGE_FIGURES])
{
    settings s = {.n = 0};
    set_where(&s, where);
    set(&s, "data.datasets=[{path = \"%s/prompts.jsonl\"}]", folder);
    set(&s, "data.cache_dir=%s/cache", folder);
    set(&s, "tokenizer.path=bytes");
    set_llama(&s, 1, 32, 2, 2, 64);
    set(&s, "data.seq_len=32");
    set(&s, "stage.name=ppo");
    set(&s, "stage.prompts=2");
    set(&s, "stage.group=2");
    set(&s, "stage.max_new_tokens=6");
    set(&s, "stage.epochs=2");
    set(&s, "stage.minibatches=2");
    set(&s, "stage.advantage=gae");
    set(&s, "stage.kl_coef=0.1");
    set(&s, "stage.kl_in_reward=true");
    set(&s, "stage.kl_target=0.01");
    set(&s, "reward.name=length");
    set(&s, "reward.rule=target");
    set(&s, "reward.tokens=3");
    set(&s, "optimizer.name=adamw");
    set(&s, "optimizer.lr=1e-2");
    set(&s, "train.precision=fp32");
    set(&s, "train.threads=1");
    set(&s, "train.micro_batch_size=3");
    set(&s, "train.max_steps=%d", STEPS);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    for (int i = 0; i < STEPS; i++) {
        lathe_rollout r = {.stop = NULL};
        OK(lathe_rollout_step(run, &r));
        cr_assert_eq(r.bad, 0);
        OK(lathe_step(run, NULL));
        memcpy(out[i], r.figures, sizeof r.figures);
    }
    lathe_run_close(run);
}

Test(far_ppo, a_critic_and_a_divergence_give_the_figures_of_the_cpu)
{
    double want[STEPS][LATHE_MAX_STAGE_FIGURES], got[STEPS][LATHE_MAX_STAGE_FIGURES];
    figures_on(ON_CPU, want);
    figures_on(ON_FAR, got);
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < LATHE_MAX_STAGE_FIGURES; k++)
            cr_expect(got[i][k] == want[i][k] || (isnan(got[i][k]) && isnan(want[i][k])),
                      "step %d, figure %d: %.9g, on the CPU %.9g", i + 1, k, got[i][k], want[i][k]);
    cr_expect(want[0][0] != want[4][0] || want[0][5] != want[4][5], "two rollouts are alike");
}

/* A teacher and a reward model on a device with memory of its own: the weights get there, and the
 * numbers are those of the CPU. */
#include "run/parts/reward_model.h"
#include "support/far_case.h"
#include "support/golden_folders.h"

enum { B = 2, T = 19, ROWS = 6, REWARD_T = 12 };

/* adapter: a folder; NULL: the model itself learns */
static double loss_on(int where, const char *teacher_precision, const char *adapter)
{
    settings s = {.n = 0};
    int32_t tokens[B * T], targets[B * T];
    lathe_forward_result f = {.size = sizeof f};
    set_where(&s, where);
    set(&s, "model.path=" MODELS "llama_tied");
    set(&s, "teacher.path=" MODELS "qwen2");
    set(&s, "teacher.precision=%s", teacher_precision);
    if (adapter)
        set(&s, "model.adapter=" LATHE_TEST_DATA "/golden/data/adapters/%s", adapter);
    set(&s, "stage.name=distill");
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.micro_batch_size=%d", B);
    set(&s, "train.precision=fp32");
    set(&s, "train.threads=1");
    set(&s, "train.max_steps=10");
    for (int i = 0; i < B * T; i++) {
        tokens[i] = 3 + (i * 37) % 120;
        targets[i] = i % T < 4 ? -1 : 3 + (i * 11) % 120;
    }
    const lathe_run_batch batch = {
        .size = sizeof batch, .n_rows = B, .row_tokens = T, .tokens = tokens, .targets = targets};
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    cr_expect_eq(run->machine.used.by[LATHE_MEM_MODELS], run->planned.by[LATHE_MEM_MODELS]);
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    OK(lathe_backward(run, NULL));
    lathe_run_close(run);
    return f.loss_sum;
}

Test(far_distill, a_teacher_gives_the_loss_of_the_cpu)
{
    static const char *const precisions[] = {"fp32", "bf16"};
    for (int i = 0; i < 2; i++) {
        const double want = loss_on(ON_CPU, precisions[i], NULL);
        cr_expect(isfinite(want) && want > 0.0);
        cr_expect_eq(loss_on(ON_FAR, precisions[i], NULL), want, "%s", precisions[i]);
    }
}

Test(far_distill, a_student_whose_head_is_adapted_has_the_loss_of_the_cpu)
{
    const double want = loss_on(ON_CPU, "fp32", "outer_apart");
    cr_expect(isfinite(want) && want > 0.0);
    cr_expect_eq(loss_on(ON_FAR, "fp32", "outer_apart"), want);
}

static void scores_on(int where, double *out)
{
    settings s = {.n = 0};
    int32_t tokens[ROWS][REWARD_T];
    lathe_scored sequences[ROWS];
    set_where(&s, where);
    set_llama(&s, 2, 48, 4, 2, 96);
    set(&s, "model.vocab_size=96"); /* that of the reward model */
    set(&s, "data.seq_len=32");
    set(&s, "train.micro_batch_size=8");
    set(&s, "train.precision=fp32");
    set(&s, "train.threads=1");
    set(&s, "train.max_steps=4");
    for (int r = 0; r < ROWS; r++) {
        for (int t = 0; t < REWARD_T; t++)
            tokens[r][t] = 3 + (r * 31 + t * 7) % 90;
        sequences[r] = (lathe_scored){tokens[r], 1 + (r * 5) % REWARD_T};
    }
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, s.list);
    OK(lathe__reward_plan(run, "model", "path", LATHE_TEST_DATA "/golden/data/reward/llama", 4,
                          REWARD_T));
    OK(lathe__reward_place(run));
    OK(lathe__reward_score(run, sequences, ROWS, out));
    lathe_run_close(run);
}

Test(far_distill, a_reward_model_gives_the_scores_of_the_cpu)
{
    double want[ROWS], got[ROWS];
    scores_on(ON_CPU, want);
    scores_on(ON_FAR, got);
    for (int r = 0; r < ROWS; r++)
        cr_expect_eq(got[r], want[r], "sequence %d: %.9g, on the CPU %.9g", r, got[r], want[r]);
}

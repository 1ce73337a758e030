/* The stage rm on a folder that transformers wrote: scores, TRL's loss and metrics, and the
 * gradient of every parameter. Goldens: tests/golden/reward.py. */
#include "support/golden_folders.h"
#include "support/run_case.h"

#define REWARD LATHE_TEST_DATA "/golden/data/reward/"

enum { P = 3, T = 12, N_METRICS = 5 };

typedef struct reward_case {
    lathe_run *run;
    lathe_safetensors *golden;
    int32_t targets[2 * P * T];
    float margins[2 * P]; /* both rows of a pair have its margin */
    lathe_batch_input input;
    lathe_run_batch batch;
} reward_case;

static void case_open(reward_case *c, const char *stage, const char *recompute)
{
    char mode[64];
    snprintf(mode, sizeof mode, "train.recompute=%s", recompute);
    const char *const settings[] = {"model.path=" REWARD "llama",
                                    "stage.name=rm",
                                    stage,
                                    mode,
                                    "data.seq_len=12",
                                    "train.micro_batch_size=3",
                                    "train.precision=fp32",
                                    "train.max_steps=10",
                                    NULL};
    OK(lathe_safetensors_open(REWARD "golden.safetensors", &c->golden));
    c->run = open_run(LATHE_OPEN_BATCHES, settings);
    for (int i = 0; i < 2 * P * T; i++)
        c->targets[i] = -1;
    c->batch = (lathe_run_batch){.size = (uint32_t)sizeof c->batch,
                                 .n_rows = 2 * P,
                                 .row_tokens = T,
                                 .tokens = lathe_safetensors_find(c->golden, "input_ids")->data,
                                 .targets = c->targets};
}

static void case_close(reward_case *c)
{
    lathe_run_close(c->run);
    lathe_safetensors_close(c->golden);
}

static const float *golden_tensor(const reward_case *c, const char *what, const char *variant,
                                  const char *name)
{
    char key[256];
    snprintf(key, sizeof key, "%s.%s%s%s", what, variant, name ? "." : "", name ? name : "");
    const lathe_st_tensor *t = lathe_safetensors_find(c->golden, key);
    cr_assert(t, "the golden lacks %s", key);
    return t->data;
}

/* Gives the margins of the golden to the batch. */
static void add_margins(reward_case *c)
{
    const float *margin = lathe_safetensors_find(c->golden, "margin")->data;
    for (int r = 0; r < 2 * P; r++)
        c->margins[r] = margin[r % P];
    c->input = (lathe_batch_input){"margin", c->margins};
    c->batch.inputs = &c->input;
    c->batch.n_inputs = 1;
}

/* TRL's loss is a mean over pairs, and so are its metrics. */
static void check_variant(const char *variant, const char *stage, const char *recompute)
{
    static const char *const names[N_METRICS] = {"accuracy", "margin", "mean_reward", "min_reward",
                                                 "max_reward"};
    reward_case c;
    float metrics[N_METRICS];
    lathe_forward_result f = {.size = sizeof f};
    case_open(&c, stage, recompute);
    if (strcmp(variant, "margins") == 0)
        add_margins(&c);
    OK(lathe_forward(c.run, &c.batch, LATHE_FORWARD_TRAIN, &f));
    const double want = (double)*golden_tensor(&c, "loss", variant, NULL);
    cr_expect_eq(f.count, (double)P);
    cr_expect_float_eq(f.loss_sum / P, want, 1e-5 * want, "%s: %.8f, TRL %.8f", variant,
                       f.loss_sum / P, want);
    OK(lathe_backward(c.run, NULL));
    cr_assert_eq(c.run->programs.train.stage.n_metrics, N_METRICS);
    for (int k = 0; k < N_METRICS; k++) {
        cr_expect_str_eq(c.run->programs.train.stage.metrics[k].name, names[k]);
        metrics[k] = (float)(c.run->sum.metric_sums[k] / P);
    }
    compare("metrics", metrics, golden_tensor(&c, "metrics", variant, NULL), N_METRICS, 1e-5);
    for (int32_t i = 0; i < c.run->params.n; i++) {
        const lathe_param *p = c.run->params.rows[i];
        const int64_t n = lathe_desc_count(&p->desc);
        const float *got = lathe_store_grad(&c.run->store, i);
        float *mean = malloc((size_t)n * sizeof *mean);
        for (int64_t k = 0; k < n; k++)
            mean[k] = got[k] / (float)P;
        compare(p->name, mean, golden_tensor(&c, "grad", variant, p->name), n, 1e-5);
        free(mean);
    }
    case_close(&c);
}

Test(reward_golden, loss_metrics_and_gradients_are_those_of_trl)
{
    check_variant("plain", "stage.center_rewards_coefficient=0.0", "none");
}

Test(reward_golden, loss_and_gradients_with_centring_are_those_of_trl)
{
    check_variant("centred", "stage.center_rewards_coefficient=0.05", "layer");
}

Test(reward_golden, loss_and_gradients_with_margins_are_those_of_trl)
{
    check_variant("margins", "stage.center_rewards_coefficient=0.0", "none");
}

/* The head over the vocabulary, and its bias where a family has one, are what a classifier lacks.
 */
Test(reward_golden, every_language_model_becomes_a_reward_model)
{
    golden_folders folders;
    golden_folders_find(&folders);
    for (int i = 0; i < folders.n; i++) {
        char path[300];
        lathe_run *run = NULL;
        snprintf(path, sizeof path, "model.path=" MODELS "%s", folders.names[i]);
        const char *const settings[] = {path, "stage.name=rm", "data.seq_len=12",
                                        "train.max_steps=1", NULL};
        if (strncmp(folders.names[i], "tower_", 6) == 0) /* no classifier beside other towers */
            continue;
        cr_expect_eq(open_run_status(LATHE_OPEN_BATCHES, settings, &run), LATHE_OK, "%s: %s", path,
                     lathe_error_message());
        lathe_run_close(run);
    }
}

/* Rows of differing length, with padding and with tokens that are the padding token: scores of a
 * reward model, and rewards in the stage rm, are those of transformers, in each kind of family.
 * Goldens: tests/golden/reward_padding.py. */
#include <jansson.h>

#include "run/parts/reward_model.h"
#include "support/golden_folders.h"
#include "support/small_run.h"

#define FOLDER LATHE_TEST_DATA "/golden/data/reward_padding/"

enum { MAX_ROWS = 8, T = 12, PAD = 2, N_METRICS = 5 };

/* Sums of 16 to 24 products in f32, in another order than torch's; measured: 1e-6. */
static const double tolerance = 1e-5;

static const char *const families[] = {"llama",   "qwen2", "qwen3", "gemma2",  "gemma3_text",
                                       "mistral", "phi3",  "gpt2",  "gpt_neox"};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

typedef struct rows {
    int32_t tokens[MAX_ROWS][T]; /* padded */
    int32_t length[MAX_ROWS], n;
    double scores[MAX_ROWS];
} rows;

static void read_rows(const char *family, rows *out)
{
    json_t *all = json_load_file(FOLDER "scores.json", 0, NULL), *row;
    const json_t *scores = json_object_get(all, family);
    size_t i;
    cr_assert(json_array_size(scores) > 0, "%s", family);
    out->n = 0;
    json_array_foreach(json_object_get(all, "rows"), i, row)
    {
        const int32_t n = (int32_t)json_array_size(row);
        cr_assert(i < MAX_ROWS && n <= T);
        for (int32_t t = 0; t < T; t++)
            out->tokens[i][t] =
                t < n ? (int32_t)json_integer_value(json_array_get(row, (size_t)t)) : PAD;
        out->length[i] = n;
        out->scores[i] = json_real_value(json_array_get(scores, i));
        out->n++;
    }
    json_decref(all);
}

static void expect_score(const char *family, const char *where, int32_t row, double got,
                         double want)
{
    cr_expect_float_eq(got, want, tolerance * fmax(1.0, fabs(want)),
                       "%s, %s, row %d: %.8f, transformers has %.8f", family, where, row, got,
                       want);
}

/* ---- beside a run ---- */

static void score_family(const char *family)
{
    static const char *const values[] = {"model.model_type=llama",
                                         "model.vocab_size=48",
                                         "model.hidden_size=32",
                                         "model.intermediate_size=64",
                                         "model.num_hidden_layers=1",
                                         "model.num_attention_heads=2",
                                         "model.max_position_embeddings=32",
                                         "data.seq_len=16",
                                         "train.precision=fp32",
                                         "train.max_steps=1",
                                         NULL};
    lathe_scored sequences[MAX_ROWS];
    double scores[MAX_ROWS];
    char path[256];
    rows all;
    read_rows(family, &all);
    for (int32_t i = 0; i < all.n; i++)
        sequences[i] = (lathe_scored){all.tokens[i], all.length[i]};
    (void)snprintf(path, sizeof path, FOLDER "%s", family);
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, values);
    OK(lathe__reward_plan(run, "model", "path", path, 3, T)); /* the last batch is not full */
    OK(lathe__reward_place(run));
    OK(lathe__reward_score(run, sequences, all.n, scores));
    for (int32_t i = 0; i < all.n; i++)
        expect_score(family, "scored", i, scores[i], all.scores[i]);
    lathe_run_close(run);
}

Test(reward_padding, scores_of_rows_of_differing_length_are_those_of_transformers)
{
    for (int i = 0; i < N_FAMILIES; i++)
        score_family(families[i]);
}

/* ---- the stage rm ---- */

/* The rewards of a pair: margin is their difference, mean_reward their mean. */
static void pair_rewards(lathe_run *run, const rows *all, const int32_t pair[2], int32_t n_tokens,
                         double out[2])
{
    int32_t tokens[2 * T], targets[2 * T];
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    for (int32_t k = 0; k < 2 * n_tokens; k++) {
        tokens[k] = all->tokens[pair[k / n_tokens]][k % n_tokens];
        targets[k] = -1;
    }
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = 2,
                                   .row_tokens = n_tokens,
                                   .tokens = tokens,
                                   .targets = targets};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_TRAIN, &f));
    double margin = (double)NAN, mean = (double)NAN;
    for (int k = 0; k < run->programs.train.stage.n_metrics; k++) {
        const char *name = run->programs.train.stage.metrics[k].name;
        if (strcmp(name, "margin") == 0)
            margin = run->sum.metric_sums[k];
        if (strcmp(name, "mean_reward") == 0)
            mean = run->sum.metric_sums[k];
    }
    OK(lathe_backward(run, NULL));
    OK(lathe_zero_grad(run));
    out[0] = mean + margin / 2;
    out[1] = mean - margin / 2;
}

static int32_t longer(const rows *all, const int32_t pair[2])
{
    return all->length[pair[0]] > all->length[pair[1]] ? all->length[pair[0]]
                                                       : all->length[pair[1]];
}

static void train_family(const char *family)
{
    char path[256];
    const char *const values[] = {path,
                                  "stage.name=rm",
                                  "data.seq_len=16",
                                  "train.micro_batch_size=1",
                                  "train.precision=fp32",
                                  "train.max_steps=1",
                                  NULL};
    rows all;
    read_rows(family, &all);
    (void)snprintf(path, sizeof path, "model.path=" FOLDER "%s", family);
    lathe_run *run = open_run(LATHE_OPEN_BATCHES, values);
    for (int32_t i = 0; i < all.n; i++) {
        const int32_t pair[2] = {i, (i + 3) % all.n};
        const int32_t widths[2] = {longer(&all, pair), T}; /* as short as can be, and wider */
        for (int w = 0; w < 2; w++) {
            double rewards[2];
            pair_rewards(run, &all, pair, widths[w], rewards);
            for (int k = 0; k < 2; k++)
                expect_score(family, "in the stage", pair[k], rewards[k], all.scores[pair[k]]);
        }
    }
    lathe_run_close(run);
}

Test(reward_padding, rewards_of_pairs_of_differing_length_are_those_of_transformers)
{
    for (int i = 0; i < N_FAMILIES; i++)
        train_family(families[i]);
}

/* sft: losses and gradients compared with TRL's, and the columns that it reads. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "lathe/stage.h"
#include "mock_graph.h"
#include "mock_plugin.h"

enum { N = 8 };

static lathe_val given; /* log-probabilities that the stage gets */
static double noise;    /* that the stage asked for */

static lathe_status logprobs(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    cr_expect_eq(model, LATHE_MODEL_POLICY);
    *out = given;
    return LATHE_OK;
}

static lathe_status embedding_noise(void *ctx, double magnitude)
{
    (void)ctx;
    noise = magnitude;
    return LATHE_OK;
}

static void *instance(const lathe_plugin *plugin, const char *type)
{
    lathe_value values[MOCK_MAX_FIELDS];
    void *self = NULL;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "loss_type")->s = type;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK, "%s",
                 mock_host_error());
    return self;
}

static void read_line(FILE *file, double *out)
{
    for (int i = 0; i < N; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

/* Places with log-probability 0 are not targets; their gradients are discarded. */
Test(sft, losses_and_gradients_are_those_of_trl)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/completions/losses.txt", "r");
    cr_assert_not_null(file);
    double logp[N], want, grad[N];
    char type[16];
    int n_types = 0;
    read_line(file, logp);
    for (; fscanf(file, "%15s %lf", type, &want) == 2; n_types++) {
        void *self = instance(plugin, type);
        lathe_graph *g = mock_create(LATHE_F32);
        given = mock_input(g, "logp", lathe_desc_1d(LATHE_F32, N), logp);
        const lathe_stage_build build = {.size = sizeof build,
                                         .n_rows = 2,
                                         .row_tokens = N / 2,
                                         .api = mock_api(),
                                         .graph = g,
                                         .logprobs = logprobs,
                                         .record_mask = LATHE_NONE};
        lathe_stage_loss loss = {.size = sizeof loss};
        read_line(file, grad);
        cr_assert_eq(stage->loss(self, &build, &loss), LATHE_OK, "%s", mock_error(g));
        mock_eval(g);
        cr_expect_float_eq(mock_data(g, loss.sum)[0], want, 1e-12, "%s", type);
        cr_expect_eq(loss.count_unit, LATHE_COUNT_TOKENS);
        cr_expect_eq(loss.n_metrics, 0);
        for (int i = 0; i < N; i++)
            if (logp[i] != 0.0)
                cr_expect_float_eq(mock_gradient(g, loss.sum, given, i, 1e-6), grad[i], 1e-8,
                                   "%s, place %d", type, i);
        mock_destroy(g);
        plugin->destroy(self);
    }
    cr_expect_eq(n_types, 2);
    (void)fclose(file);
}

/* 5 / sqrt(16 * 64): as in transformers, of a row's tokens and the width. */
Test(sft, neftune_asks_for_noise_by_the_tokens_of_a_row_and_the_width)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    const double logp[32] = {-1.0}, alphas[2] = {0.0, 5.0};
    for (int k = 0; k < 2; k++) {
        lathe_value values[MOCK_MAX_FIELDS];
        void *self = NULL;
        mock_defaults(plugin, values);
        mock_value(plugin, values, "neftune_noise_alpha")->f = alphas[k];
        cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK);
        lathe_graph *g = mock_create(LATHE_F32);
        given = mock_input(g, "logp", lathe_desc_1d(LATHE_F32, 32), logp);
        const lathe_stage_build build = {.size = sizeof build,
                                         .n_rows = 2,
                                         .row_tokens = 16,
                                         .api = mock_api(),
                                         .graph = g,
                                         .logprobs = logprobs,
                                         .record_mask = LATHE_NONE,
                                         .width = 64,
                                         .embedding_noise = embedding_noise};
        lathe_stage_loss loss = {.size = sizeof loss};
        noise = -1.0;
        cr_assert_eq(stage->loss(self, &build, &loss), LATHE_OK, "%s", mock_error(g));
        /* alpha 0: the stage asks for no noise */
        cr_expect_float_eq(noise, k == 0 ? -1.0 : 5.0 / 32.0, 1e-15);
        mock_destroy(g);
        plugin->destroy(self);
    }
}

Test(sft, reads_completions_and_needs_no_reference)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    cr_expect_eq(stage->rows, LATHE_ROWS_COMPLETIONS);
    cr_expect_eq(stage->needs, 0);
    cr_assert_eq(stage->n_columns, 2);
    cr_expect_str_eq(stage->columns[0].name, "prompt");
    cr_expect_eq(stage->columns[0].required, 0);
    cr_expect_str_eq(stage->columns[1].name, "completion");
    cr_expect_eq(stage->columns[1].required, 1);
}

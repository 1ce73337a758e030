/* HEAD_PICK and its derivative, worked by hand: with W = 0 all tokens are equally likely. */
#include "kernels/op_harness.h"

static const double *hand[3];

/* Copies what was worked by hand. */
static void by_hand(const op_case *c, double *const *in, double *const *want)
{
    (void)in;
    for (int32_t i = 0; i < c->n_out; i++)
        for (int64_t k = 0; c->out[i].dtype != LATHE_ABSENT && k < lathe_desc_count(&c->out[i]);
             k++)
            want[i][k] = hand[i][k];
}

static void give(op_case *c, int32_t i, lathe_desc d, const double *values)
{
    op_input(c, i, d, 0.0, 0.0);
    memcpy(c->value[i], values, (size_t)lathe_desc_count(&d) * sizeof *values);
}

static const double zeros[8];

#define LOG_3_4 (-0.28768207245178093) /* log(3/4) */

/* Four tokens. A token that is picked twice counts once in the rest; an id -1 picks nothing, and a
 * row of only -1 gives 0. */
Test(head_pick, gives_the_picked_tokens_and_all_others_together)
{
    const double x[3] = {1, 2, 3}, ids[6] = {1, 1, -1, 2, -1, -1}, log_4 = -1.3862943611198906;
    const double y[9] = {log_4, log_4, LOG_3_4, 0, log_4, LOG_3_4, 0, 0, 0};
    op_case c = {
        .op = LATHE_OP_HEAD_PICK, .attrs = {.alpha = 1.0}, .reference = by_hand, .slack = 0x1p-22};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 3, 1), x);
    give(&c, 1, lathe_desc_2d(LATHE_F32, 4, 1), zeros);
    give(&c, 2, lathe_desc_2d(LATHE_I32, 3, 2), ids);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 3, 3));
    hand[0] = y;
    op_check(&c);
}

/* Alone, two of the tokens are a choice of two, and one token has the probability 1. */
Test(head_pick, is_normalised_over_the_picked_tokens)
{
    const double x[2] = {1, 2}, ids[4] = {3, 0, 1, 1}, half = -0.69314718055994531;
    const double y[4] = {half, half, 0, 0};
    op_case c = {.op = LATHE_OP_HEAD_PICK,
                 .attrs = {.alpha = 1.0, .beta = 1.0},
                 .reference = by_hand,
                 .slack = 0x1p-22};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 2, 1), x);
    give(&c, 1, lathe_desc_2d(LATHE_F32, 4, 1), zeros);
    give(&c, 2, lathe_desc_2d(LATHE_I32, 2, 2), ids);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 2, 2));
    hand[0] = y;
    op_check(&c);
}

/* log(FLT_MIN), where nothing is left */
Test(head_pick, of_the_whole_vocabulary_leaves_the_lowest_number)
{
    const double x[1] = {1}, ids[2] = {1, 0}, half = -0.69314718055994531;
    const double y[3] = {half, half, -87.336544750553102};
    op_case c = {
        .op = LATHE_OP_HEAD_PICK, .attrs = {.alpha = 1.0}, .reference = by_hand, .slack = 0x1p-22};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 1, 1), x);
    give(&c, 1, lathe_desc_2d(LATHE_F32, 2, 1), zeros);
    give(&c, 2, lathe_desc_2d(LATHE_I32, 1, 2), ids);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 1, 3));
    hand[0] = y;
    op_check(&c);
}

/* dy = 1, 2 for token 1, picked twice, and 3 for the three others, of the probability 1/4 each:
 * dl[1] = 1 + 2 - 6/4, the others 3 (1/4)/(3/4) - 6/4. dW = dl x, x = 2; dx = dl W = 0. */
Test(head_pick_bwd, adds_the_gradients_of_a_token_that_is_picked_twice)
{
    const double x[1] = {2}, ids[2] = {1, 1}, dy[3] = {1, 2, 3}, log_4 = -1.3862943611198906;
    const double y[3] = {log_4, log_4, LOG_3_4}, dw[4] = {-1, 3, -1, -1};
    op_case c = {.op = LATHE_OP_HEAD_PICK_BWD,
                 .attrs = {.alpha = 1.0},
                 .reference = by_hand,
                 .slack = 0x1p-21};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 1, 1), x);
    give(&c, 1, lathe_desc_2d(LATHE_F32, 4, 1), zeros);
    give(&c, 2, lathe_desc_2d(LATHE_I32, 1, 2), ids);
    give(&c, 3, lathe_desc_2d(LATHE_F32, 1, 3), dy);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 1, 3));
    op_output(&c, 1, lathe_desc_2d(LATHE_F32, 1, 1));
    op_output(&c, 2, lathe_desc_2d(LATHE_F32, 4, 1));
    hand[0] = y;
    hand[1] = zeros;
    hand[2] = dw;
    op_check(&c);
}

/* Two tokens of the probabilities e^-87 and 0 are the rest, and a loss scale makes dy large: dy
 * over their probability is beyond f32, and the gradient is not. */
Test(head_pick_bwd, of_an_unlikely_rest_is_finite)
{
    const double x[1] = {1}, w[3] = {0, -87, -500}, ids[1] = {0}, dy[2] = {0, 4096};
    const double y[2] = {0, -87}, dw[3] = {-4096, 4096, 0}, dx[1] = {-87.0 * 4096};
    op_case c = {.op = LATHE_OP_HEAD_PICK_BWD,
                 .attrs = {.alpha = 1.0},
                 .reference = by_hand,
                 .slack = 0x1p-14};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 1, 1), x);
    give(&c, 1, lathe_desc_2d(LATHE_F32, 3, 1), w);
    give(&c, 2, lathe_desc_2d(LATHE_I32, 1, 1), ids);
    give(&c, 3, lathe_desc_2d(LATHE_F32, 1, 2), dy);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 1, 2));
    op_output(&c, 1, lathe_desc_2d(LATHE_F32, 1, 1));
    op_output(&c, 2, lathe_desc_2d(LATHE_F32, 3, 1));
    hand[0] = y;
    hand[1] = dx;
    hand[2] = dw;
    op_check(&c);
}

Test(head_pick, refuses_more_ids_than_there_are_tokens_and_another_shape)
{
    for (int wrong = 0; wrong < 3; wrong++) {
        op_case c = {.op = LATHE_OP_HEAD_PICK, .attrs = {.alpha = wrong == 2 ? 0.0 : 1.0}};
        const int64_t k = wrong == 0 ? 5 : 2;
        op_input(&c, 0, lathe_desc_2d(LATHE_F32, 2, 3), 0.0, 1.0);
        op_input(&c, 1, lathe_desc_2d(LATHE_F32, 4, 3), 0.0, 1.0);
        give(&c, 2, lathe_desc_2d(LATHE_I32, 2, k), (const double[10]){0});
        op_output(&c, 0, lathe_desc_2d(LATHE_F32, 2, wrong == 1 ? k : k + 1));
        cr_expect_neq(op_refusal(&c), LATHE_OK, "%d", wrong);
        op_free(&c);
    }
}

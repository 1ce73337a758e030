/* Next-token loss, minus the sum of log-probabilities, and one fault. */
#include "fault.h"
#include "fault_rolls.h"

#include "lathe/stage.h"

static double shared_sign = 1.0;

#define HAS_OUTPUTS                                                                                \
    (IS(too_many_outputs) || IS(negative_outputs) || IS(output_of_no_value) ||                     \
     IS(output_not_per_token) || IS(outputs_without_iterate))

static lathe_status sum_of(const lathe_stage_build *b, lathe_val x, double factor, lathe_val *out)
{
    const lathe_op_attrs scale = {.alpha = factor};
    LATHE_TRY(b->api->node(b->graph, LATHE_OP_SUM, NULL, &x, 1, out, 1, -1, "sum"));
    return b->api->node(b->graph, LATHE_OP_SCALE, &scale, out, 1, out, 1, -1, "loss");
}

static lathe_status slice(const lathe_stage_build *b, lathe_val x, int64_t from, int64_t n,
                          lathe_val *out)
{
    const lathe_op_attrs at = {.start = from, .count = n};
    return b->api->node(b->graph, LATHE_OP_SLICE, &at, &x, 1, out, 1, -1, "slice");
}

static double factor_of(const lathe_stage_build *b)
{
    if (IS(has_the_wrong_sign))
        return 1.0;
    if (IS(is_a_mean))
        return -1.0 / (double)(b->n_rows * b->row_tokens);
    if (IS(shares_its_sign)) {
        shared_sign *= 0.9;
        return -shared_sign;
    }
    return IS(is_infinite) ? -(double)INFINITY : IS(is_zero) ? 0.0 : -1.0;
}

static lathe_status add_metrics(lathe_stage_loss *out, lathe_val x)
{
    const int32_t n = IS(too_many_metrics) ? 99 : IS(seventeen_metrics) ? 17 : 1;
    for (int32_t i = 0; i < n && i < (IS(writes_past_the_loss) ? 20 : LATHE_MAX_STAGE_METRICS); i++)
        out->metrics[i] = (lathe_stage_metric){.name = "logp", .sum = x};
    if (IS(writes_past_the_loss)) {
        volatile lathe_stage_metric *m = out->metrics;
        for (int i = 16; i < 18; i++)
            m[i].sum = x;
    }
    out->n_metrics = IS(negative_metrics) ? -1 : n;
    if (IS(metric_without_name))
        out->metrics[0].name = NULL;
    if (IS(metric_of_no_value))
        out->metrics[0].sum = 100000;
    if (IS(same_metric_twice)) {
        out->metrics[1] = out->metrics[0];
        out->n_metrics = 2;
    }
    return LATHE_OK;
}

static lathe_status loss(void *self, const lathe_stage_build *b, lathe_stage_loss *out)
{
    const instance *x = self;
    lathe_val logp, total;
    if (!ROLLS) /* those misbehave in iterate() */
        misbehave(x->host);
    if (IS(fails_without_a_message))
        return LATHE_E_ARG;
    if (IS(gives_no_loss))
        return LATHE_OK;
    LATHE_TRY(b->logprobs(b->ctx, IS(asks_for_model_nine) ? 9 : LATHE_MODEL_POLICY, &logp));
    if (IS(asks_for_the_reference))
        LATHE_TRY(b->logprobs(b->ctx, LATHE_MODEL_REFERENCE, &logp));
    if (IS(asks_for_the_teacher))
        LATHE_TRY(b->divergence(b->ctx, LATHE_MODEL_TEACHER, 0.0, 1.0, &logp));
    if (IS(stored_asks_for_the_teacher) && b->n_stored > 0)
        LATHE_TRY(b->divergence(b->ctx, LATHE_MODEL_TEACHER, 0.0, 1.0, &total));
    if (IS(asks_for_a_head_it_lacks) || IS(asks_for_a_head_of_other_settings))
        LATHE_TRY(b->head(b->ctx, 0, &logp));
    if (IS(is_no_scalar)) {
        out->sum = logp;
        return LATHE_OK;
    }
    if (IS(cuts_the_derivative))
        LATHE_TRY(b->api->detach(b->graph, logp, &logp));
    if (IS(leaves_out_the_last_row))
        LATHE_TRY(slice(b, logp, 0, (b->n_rows - 1) * b->row_tokens, &logp));
    if (IS(leaves_out_the_first_token))
        LATHE_TRY(slice(b, logp, 1, b->n_rows * b->row_tokens - 1, &logp));
    LATHE_TRY(sum_of(b, logp, factor_of(b), &total));
    out->sum = total;
    out->count_unit = IS(count_unit_unknown) ? 9
                      : IS(counts_pairs)     ? LATHE_COUNT_PAIRS
                                             : LATHE_COUNT_TOKENS;
    if (IS(changes_the_size))
        out->size = 3;
    out->n_outputs = IS(too_many_outputs)   ? LATHE_MAX_STAGE_OUTPUTS + 1
                     : IS(negative_outputs) ? -1
                                            : HAS_OUTPUTS;
    out->outputs[0] = IS(output_of_no_value) ? 100000 : IS(output_not_per_token) ? total : logp;
    return add_metrics(out, total);
}

static const lathe_column columns[] = {
    {IS(column_without_name) ? NULL
     : ROLLS                 ? "prompt"
                             : "text",
     IS(required_unknown)   ? 7
     : IS(requires_nothing) ? 0
                            : 1,
     0, "text to train on"},
    {IS(same_column_twice) ? "text" : "source", 0, 0, "where it comes from"},
};

#define HAS_INPUTS                                                                                 \
    (IS(too_many_inputs) || IS(input_without_name) || IS(input_per_unknown) ||                     \
     IS(input_source_unknown) || IS(input_row_of_packed) || IS(same_input_twice) ||                \
     IS(input_of_i8) || IS(column_of_three) || IS(null_inputs))
static const lathe_stage_input inputs[] = {
    {.name = IS(input_without_name) ? NULL : "advantages",
     .per = IS(input_per_unknown) ? 7 : LATHE_PER_TOKEN,
     .source = IS(input_source_unknown) ? 7
               : IS(column_of_three)    ? LATHE_INPUT_COLUMN
                                        : LATHE_INPUT_CALLER,
     .doc = "advantage of each target"},
    {.name = IS(same_input_twice) ? "advantages" : "rewards",
     .per = LATHE_PER_ROW,
     .source = IS(input_row_of_packed) ? LATHE_INPUT_COLUMN : LATHE_INPUT_CALLER,
     .doc = "reward of each row"},
};

#define HAS_STORED                                                                                 \
    (IS(stored_in_packed_rows) || IS(stored_without_values) || IS(stored_of_four) ||               \
     IS(stored_asks_for_the_teacher))
static const lathe_stage_input stored[] = {
    {.name = "tokens",
     .per = LATHE_PER_TOKEN,
     .source = LATHE_INPUT_STORED,
     .doc = "tokens of the teacher"},
    {.name = "values",
     .per = LATHE_PER_TOKEN,
     .source = LATHE_INPUT_STORED,
     .doc = "their log-probabilities"},
};
static const lathe_input_shape shapes[] = {
    {.dtype = HAS_STORED        ? LATHE_I32
              : IS(input_of_i8) ? LATHE_I8
                                : LATHE_F32,
     .count = IS(stored_of_four)    ? 4
              : IS(column_of_three) ? 3
                                    : 0},
    {.dtype = IS(stored_without_values) ? LATHE_I32 : LATHE_F32, .count = 0},
};

#define HAS_HEADS                                                                                  \
    (IS(head_without_name) || IS(head_of_no_outputs) || IS(same_head_twice) ||                     \
     IS(too_many_heads) || IS(null_heads) || IS(asks_for_a_head_of_other_settings))
static const lathe_stage_head heads[] = {
    {.name = IS(head_without_name) ? "Value of a token" : "value",
     .n_outputs = IS(head_of_no_outputs) ? 0 : 1,
     .doc = "value of each token"},
    {.name = IS(same_head_twice) ? "value" : "baseline", .n_outputs = 1, .doc = "another one"},
};

#define HAS_FIGURES                                                                                \
    (IS(figure_without_name) || IS(same_figure_twice) || IS(too_many_figures) || IS(null_figures))
static const lathe_stage_figure figures[] = {
    {IS(figure_without_name) ? "" : "reward", "mean reward"},
    {IS(same_figure_twice) ? "reward" : "length", "mean length"},
};

#define ITERATES (HAS_OUTPUTS && !IS(outputs_without_iterate))

static lathe_status iterate(void *self, const struct lathe_run_api *api, void *run, void *state)
{
    (void)self, (void)api, (void)run, (void)state;
    return LATHE_OK;
}

static lathe_status state_bytes(void *self, int32_t n_rows, int64_t row_tokens, int64_t *out)
{
    (void)self, (void)n_rows, (void)row_tokens;
    *out = 64;
    return LATHE_OK;
}

static uint32_t heads_of(void *self)
{
    (void)self;
    return 0;
}

static uint32_t needs_of(void *self)
{
    (void)self;
    return LATHE_NEEDS_REFERENCE;
}

static const lathe_stage_v1 table = {
    .size = sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = IS(null_columns) ? NULL : columns,
    .n_columns = IS(no_columns) ? 0 : 2,
    .rows = IS(rows_unknown)                           ? 9
            : ROLLS                                    ? LATHE_ROWS_PROMPTS
            : HAS_STORED && !IS(stored_in_packed_rows) ? LATHE_ROWS_COMPLETIONS
                                                       : LATHE_ROWS_PACKED,
    .needs = IS(needs_unknown) ? 0x80
             : ROLLS           ? (IS(rolls_without_a_need) ? 0 : LATHE_NEEDS_REWARD)
             : HAS_STORED      ? LATHE_NEEDS_TEACHER
                               : 0,
    .loss = IS(null_loss) ? NULL : loss,
    .inputs = ROLLS                            ? roll_inputs
              : HAS_STORED                     ? stored
              : HAS_INPUTS && !IS(null_inputs) ? inputs
                                               : NULL,
    .n_inputs = IS(too_many_inputs)                 ? LATHE_MAX_STAGE_INPUTS + 1
                : HAS_INPUTS || HAS_STORED || ROLLS ? 2
                                                    : 0,
    .input_shapes = HAS_STORED || IS(input_of_i8) || IS(column_of_three) ? shapes : NULL,
    .heads = HAS_HEADS && !IS(null_heads) ? heads : NULL,
    .n_heads = IS(too_many_heads) ? LATHE_MAX_STAGE_HEADS + 1
               : HAS_HEADS        ? 2
                                  : 0,
    .heads_of = IS(heads_of_nothing) || IS(asks_for_a_head_of_other_settings) ? heads_of : NULL,
    .needs_of = IS(needs_more_than_its_table) ? needs_of : NULL,
    .iterate = ROLLS                                   ? roll_iterate
               : IS(iterate_without_state) || ITERATES ? iterate
                                                       : NULL,
    .state_bytes = ROLLS                                   ? roll_state_bytes
                   : IS(state_without_iterate) || ITERATES ? state_bytes
                                                           : NULL,
    .figures = ROLLS                              ? roll_figures
               : HAS_FIGURES && !IS(null_figures) ? figures
                                                  : NULL,
    .n_figures = IS(too_many_figures) ? LATHE_MAX_STAGE_FIGURES + 1
                 : ROLLS              ? 1
                 : HAS_FIGURES        ? 2
                                      : 0,
    .headline = IS(headline_of_nothing) ? "accuracy" : NULL,
};

FAULTY_PLUGIN(LATHE_KIND_STAGE, LATHE_STAGE_REVISION, &table);

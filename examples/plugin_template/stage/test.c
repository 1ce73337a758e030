/* @NAME@: its nodes, computed by a graph that knows two ops. Run with the path of the .so. */
#include <lathe/stage.h>
#include <lathe/kit/testing.h>

static const double logp[4] = {-1.5, -0.25, 0.0, -2.0};
static double values[8]; /* by value id; 0 stands for logp */
static lathe_val n_values = 1;

static lathe_status compute(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs,
                            const lathe_val *in, int32_t n_in, lathe_val *out, int32_t n_out,
                            int32_t inplace_in, const char *label)
{
    (void)g, (void)inplace_in, (void)label;
    LATHE_CHECK(n_in == 1 && n_out == 1 && n_values < 8);
    *out = n_values++;
    values[*out] = 0.0;
    if (op == LATHE_OP_SUM && in[0] == 0)
        for (int i = 0; i < 4; i++)
            values[*out] += logp[i];
    else if (op == LATHE_OP_SCALE)
        values[*out] = attrs->alpha * values[in[0]] + attrs->beta;
    else
        return LATHE_E_UNSUPPORTED;
    return LATHE_OK;
}

static lathe_status logprobs(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    *out = 0;
    return model == LATHE_MODEL_POLICY ? LATHE_OK : LATHE_E_ARG;
}

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_stage_v1 *const table = plugin->table;
    const lathe_graph_api api = {.size = (uint32_t)sizeof api, .node = compute};
    const lathe_stage_build build = {.size = (uint32_t)sizeof build,
                                     .n_rows = 1,
                                     .row_tokens = 4,
                                     .api = &api,
                                     .logprobs = logprobs,
                                     .record_mask = LATHE_NONE};
    lathe_stage_loss out = {.size = (uint32_t)sizeof out};
    LATHE_CHECK(table->loss(NULL, &build, &out) == LATHE_OK);
    LATHE_CHECK(values[out.sum] == 3.75);
    LATHE_CHECK(out.count_unit == LATHE_COUNT_TOKENS);
    LATHE_CHECK(table->n_columns == 1 && strcmp(table->columns[0].name, "text") == 0);
    return lathe_test_failures != 0;
}

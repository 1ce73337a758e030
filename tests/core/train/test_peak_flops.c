/* The product rate on which shares of the peak are based, and the work counted for a step. */
#include "support/small_run.h"

#include "graph/ir/flops.h"
#include "graph/passes/plan.h"
#include "model/family/model_size.h"
#include "run/plan/fit.h"
#include "train/train.h"

/* If the plan leaves no memory, nothing is measured, and the run continues. */
Test(peak_flops, are_measured_in_what_the_plan_leaves)
{
    char dir[] = "/tmp/lathe-peak-XXXXXX";
    settings s = {.n = 0};
    lathe_fit fit;
    double rate = 0.0;
    make_folder(dir, 4096);
    set_llama(&s, 1, 32, 2, 2, 64);
    set_data(&s, dir);
    set(&s, "data.seq_len=32");
    set(&s, "train.max_steps=2");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(lathe_peak_flops(run, &rate));
    cr_expect(rate > 1e6 && rate < 1e16, "%g", rate);
    lathe_fit_check(run, &fit);
    run->set.memory_limit = fit.need;
    OK(lathe_peak_flops(run, &rate));
    cr_expect_eq(rate, 0.0);
    lathe_run_close(run);
    run = open_run(LATHE_OPEN_PLAN, s.list); /* a plan has no memory yet, however much it needs */
    run->set.memory_limit = fit.need;
    OK(lathe_peak_flops(run, &rate));
    cr_expect_gt(rate, 1e6);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* Rates that a list gives one after the other. */
typedef struct rate_list {
    double rates[16];
    int32_t n;
} rate_list;

static lathe_status next_rate(void *arg, double *out)
{
    rate_list *list = arg;
    *out = list->rates[list->n++];
    return LATHE_OK;
}

Test(peak_flops, of_several_measurements_the_highest_is_taken)
{
    rate_list free_device = {.rates = {130, 133, 131, 999}};
    rate_list busy_first = {.rates = {0.5, 20, 134, 100, 133, 999}};
    rate_list busy = {.rates = {1, 2, 3, 4, 5, 6, 7, 8, 999}};
    rate_list none = {.rates = {0}};
    lathe_rate_range range;
    OK(lathe_rate_measure(next_rate, &free_device, &range));
    cr_expect(range.n == 3 && range.lowest == 130 && range.highest == 133);
    OK(lathe_rate_measure(next_rate, &busy_first, &range));
    cr_expect(range.n == 5 && range.lowest == 0.5 && range.highest == 134);
    OK(lathe_rate_measure(next_rate, &busy, &range));
    cr_expect(range.n == 8 && range.lowest == 1 && range.highest == 8);
    OK(lathe_rate_measure(next_rate, &none, &range));
    cr_expect(range.highest == 0);
}

Test(peak_flops, causal_and_windowed_attention_count_the_keys_that_are_computed)
{
    static const int64_t lengths[] = {1, 2, 7, 33}, windows[] = {0, 1, 3, 7, 40};
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 5; b++) {
            double want = 0.0;
            for (int64_t q = 0; q < lengths[a]; q++)
                for (int64_t k = 0; k <= q; k++)
                    want += windows[b] == 0 || q - k < windows[b];
            cr_expect_eq(lathe_attention_pairs(lengths[a], windows[b], 1), want,
                         "T %lld window %lld", (long long)lengths[a], (long long)windows[b]);
        }
    cr_expect_eq(lathe_attention_pairs(7, 0, 0), 49.0);
}

/* For a fully trained model, the graph and the formula count the same. */
Test(peak_flops, the_graph_of_a_step_and_the_formula_agree)
{
    settings s = {.n = 0};
    set_llama(&s, 2, 32, 4, 2, 64);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=24");
    set(&s, "train.micro_batch_size=3");
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    const double graph = lathe_graph_flops(lathe_exec_graph(run->programs.train.exec), 0);
    const double formula = 3 * 24 * lathe_model_flops_per_token(&run->model, &run->params, 24);
    /* the formula counts norm weights as products: 2 layers x 2 + 1 norms of 32 */
    cr_expect_float_eq(graph, formula, 6.0 * 5 * 32 * 3 * 24 + 1.0, "%.0f, %.0f", graph, formula);
    lathe_run_close(run);
}

/* Long rows: attention's share was once counted twice, so that 137 % of the peak was shown. */
Test(peak_flops, no_step_has_more_than_the_peak)
{
    char dir[] = "/tmp/lathe-peak-XXXXXX", path[256], line[4096];
    settings s = {.n = 0};
    lathe_train_result result = {.loss = 0.0};
    char said[4096] = "";
    int n_lines = 0;
    make_folder(dir, 40000);
    set_llama(&s, 1, 64, 2, 2, 64);
    set_data(&s, dir);
    set(&s, "model.max_position_embeddings=4096");
    set(&s, "data.seq_len=4096");
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=3");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    OK(train_said(run, said, sizeof said, &result));
    lathe_run_close(run);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    FILE *f = fopen(path, "r");
    cr_assert(f);
    for (; fgets(line, sizeof line, f); n_lines++) {
        const char *at = strstr(line, "\"share_of_peak\": ");
        cr_assert(at, "%s", line);
        const double share = strtod(at + strlen("\"share_of_peak\": "), NULL);
        cr_expect(share > 0.0 && share <= 1.0, "%g of the peak", share);
    }
    fclose(f);
    cr_expect_eq(n_lines, 3);
    OK(lathe_dir_remove(dir));
}

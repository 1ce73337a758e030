/* Whole optimizer steps of the GPT-2 124M shape on random tokens: tokens/s, model FLOP/s, and their
 * share of oneDNN's rate on the same shapes, measured between the steps.
 *
 * Usage: bench_step [bf16|fp32] [rows] [row_tokens] [steps] [profile] [section.key=value ...]
 * Prints one "key value" per line; with `profile`, first the seconds per kind of node.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "gpt2_run.h"
#include "graph/ir/op_info.h"
#include "model/family/model_size.h"
#include "product_rate.h"

enum { C = 768, V = 50257, LAYERS = 12, HEAD_ROWS = 1024, MAX_STEPS = 64, N_PRODUCTS = 15 };

static int64_t status_kib(const char *key)
{
    char line[256];
    long long value = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            (void)sscanf(line + strlen(key), ": %lld", &value);
    if (f)
        (void)fclose(f);
    return value;
}

static double one_step(lathe_run *run, const lathe_run_batch *batch, double *loss,
                       double *out_update)
{
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    lathe_step_result s = {.size = (uint32_t)sizeof s};
    const double begun = lathe_now();
    if (lathe_forward(run, batch, LATHE_FORWARD_TRAIN, &f) != LATHE_OK ||
        lathe_backward(run, NULL) != LATHE_OK)
        bench_die("step");
    const double before = lathe_now();
    if (lathe_step(run, &s) != LATHE_OK)
        bench_die("step");
    const double now = lathe_now();
    *loss = s.loss;
    *out_update = now - before;
    return now - begun;
}

/* Lists the products of a step: y, dx, dw of the four linear layers and of the head's chunks. */
static void list_products(product *p, int64_t n)
{
    static const char *const names[5] = {"qkv", "proj", "fc", "fc proj", "head"};
    const int64_t in[5] = {C, C, C, 4 * C, C}, out[5] = {3 * C, C, 4 * C, C, V};
    for (int i = 0; i < 5; i++) {
        const int64_t rows = i == 4 && n > HEAD_ROWS ? HEAD_ROWS : n;
        const int32_t count = i == 4 ? (int32_t)(n / rows) : LAYERS;
        p[3 * i] = (product){
            .what = names[i], .m = rows, .n = out[i], .k = in[i], .trans_b = 1, .count = count};
        p[3 * i + 1] =
            (product){.what = names[i], .m = rows, .n = in[i], .k = out[i], .count = count};
        p[3 * i + 2] = (product){.what = names[i],
                                 .m = out[i],
                                 .n = in[i],
                                 .k = rows,
                                 .trans_a = 1,
                                 .f32_out = 1,
                                 .count = count};
    }
}

static void print_profile(lathe_run *run, double step_seconds, int steps)
{
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    const double *seconds = lathe_exec_profile_seconds(run->programs.train.exec);
    double by_op[LATHE_OP_NUMBERS] = {0}, graph = 0.0;
    int n_op[LATHE_OP_NUMBERS] = {0};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        by_op[g->nodes[i].op] += seconds[i] / steps;
        n_op[g->nodes[i].op]++;
        graph += seconds[i] / steps;
    }
    for (;;) {
        int max = 0;
        for (int op = 1; op < LATHE_OP_NUMBERS; op++)
            max = by_op[op] > by_op[max] ? op : max;
        if (by_op[max] <= 0.0)
            break;
        (void)printf("# %-18s %4d nodes %9.2f ms %5.1f %%\n", lathe_op_info_get(max)->name,
                     n_op[max], 1e3 * by_op[max], 100.0 * by_op[max] / step_seconds);
        by_op[max] = 0.0;
    }
    (void)printf("# %-18s            %9.2f ms %5.1f %%\n", "optimizer and rest",
                 1e3 * (step_seconds - graph), 100.0 * (1.0 - graph / step_seconds));
}

static void print_products(const product *p)
{
    static const char *const kinds[3] = {"y", "dx", "dw"};
    for (int i = 0; i < N_PRODUCTS; i++)
        (void)printf("# oneDNN %-8s %-3s %6.2f ms x%-2d %7.1f GFLOP/s\n", p[i].what, kinds[i % 3],
                     1e3 * p[i].seconds, p[i].count,
                     2e-9 * (double)p[i].m * (double)p[i].n * (double)p[i].k / p[i].seconds);
}

static void print_figures(lathe_run *run, int64_t peak_kib)
{
    (void)printf("threads %d\n", lathe_parallel_threads());
    for (int32_t c = 0; c < LATHE_N_MEM; c++)
        (void)printf("planned_mib.%s %.1f\n", lathe_mem_name(c),
                     (double)run->machine.peak.by[c] / 1048576.0);
    (void)printf("planned_mib %.1f\npeak_mib %.1f\n",
                 (double)lathe_mem_total(&run->machine.peak) / 1048576.0,
                 (double)peak_kib / 1024.0);
}

/* Alternates steps and products, so that both see the same state of the machine. */
static void measure(lathe_run *run, const lathe_run_batch *batch, product *products, int steps,
                    int profile)
{
    const double n = (double)batch->n_rows * batch->row_tokens;
    const double flops =
        n * lathe_model_flops_per_token(&run->model, &run->params, batch->row_tokens);
    double loss, seconds[MAX_STEPS], rates[MAX_STEPS], shares[MAX_STEPS], total = 0.0;
    double updates[MAX_STEPS];
    (void)product_rate_measure(products, N_PRODUCTS);
    for (int i = 0; i < steps; i++) {
        seconds[i] = one_step(run, batch, &loss, &updates[i]);
        rates[i] = product_rate_measure(products, N_PRODUCTS);
        shares[i] = flops / seconds[i] / rates[i];
        total += seconds[i];
    }
    if (profile) {
        print_products(products);
        print_profile(run, total / steps, steps);
    }
    const double s = bench_median(seconds, steps);
    (void)printf("loss %.4f\nstep_ms %.1f\ntokens_per_s %.1f\nmodel_gflops %.1f\n", loss, 1e3 * s,
                 n / s, 1e-9 * flops / s);
    (void)printf("update_ms %.1f\n", 1e3 * bench_median(updates, steps));
    (void)printf("product_gflops %.1f\nshare %.3f\n", 1e-9 * bench_median(rates, steps),
                 bench_median(shares, steps));
}

int main(int argc, char **argv)
{
    const char *precision = argc > 1 ? argv[1] : "bf16";
    const int rows = argc > 2 ? atoi(argv[2]) : 4, row_tokens = argc > 3 ? atoi(argv[3]) : 1024;
    const int steps = argc > 4 ? atoi(argv[4]) : 5;
    const int profile = argc > 5 && strcmp(argv[5], "profile") == 0;
    const int64_t n = (int64_t)rows * row_tokens;
    if (n < 1 || steps < 1 || steps > MAX_STEPS)
        return 2;
    lathe_run *run = gpt2_run_open(precision, rows, row_tokens, argc > 5 ? argc - 5 : 0, argv + 5);
    const lathe_run_batch batch = gpt2_batch(rows, row_tokens);
    double loss, update;
    (void)one_step(run, &batch, &loss, &update);
    print_figures(run, status_kib("VmHWM")); /* before the products allocate memory */
    (void)printf("first_loss %.4f\n", loss);
    if (profile && lathe_exec_profile(run->programs.train.exec) != LATHE_OK)
        bench_die("profile");
    product products[N_PRODUCTS];
    list_products(products, n);
    /* oneDNN 2.6 has no bf16 product on some processors; the limit is then that of fp32 */
    int in_f32 = strcmp(precision, "fp32") == 0;
    if (!in_f32 && product_rate_open(products, N_PRODUCTS, dnnl_bf16) != 0)
        in_f32 = 1;
    const int failed = in_f32 ? product_rate_open(products, N_PRODUCTS, dnnl_f32) : 0;
    if (failed) {
        (void)fprintf(stderr, "bench_step: oneDNN refuses its products: code %d\n", failed);
        return 1;
    }
    (void)printf("product_type %s\n", in_f32 ? "f32" : "bf16");
    measure(run, &batch, products, steps, profile);
    lathe_run_close(run);
    return 0;
}

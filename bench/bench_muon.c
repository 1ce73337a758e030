/* Muon on the GPT-2 124M shape: the share of a step that its Newton-Schulz iterations take, and
 * their rate compared with oneDNN's plain products of the same shapes, measured between the steps.
 *
 *     bench_muon [bf16|fp32] [rows] [row_tokens] [micro-batches] [steps] [section.key=value ...]
 *
 * Default: bf16 4 1024 4 3, that is 16k tokens per step. The iterations are the nodes of the
 * update's graph from the normalisation to the last mixture; their operations are those of the
 * three products of an iteration, 2mnk each. Prints one "key value" per line; lines with # list the
 * shapes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "gpt2_run.h"
#include "optim/update.h"
#include "product_rate.h"

enum { MAX_PRODUCTS = 64, MAX_STEPS = 16 };

/* The iterations in the update's graph. */
typedef struct iterations {
    const lathe_graph *graph;
    const double *seconds; /* [n_nodes] so far */
    product products[MAX_PRODUCTS];
    double product_seconds[MAX_PRODUCTS]; /* sums of our times */
    int n_products;
    int32_t dtype;
    double operations;
} iterations;

static int is_iteration(const lathe_ir_node *node)
{
    static const char *const labels[] = {"muon.normalized", "muon.gram",    "muon.gram_squared",
                                         "muon.polynomial", "muon.applied", "muon.iterate"};
    for (size_t i = 0; node->label != NULL && i < sizeof labels / sizeof *labels; i++)
        if (strcmp(node->label, labels[i]) == 0)
            return 1;
    return 0;
}

/* Finds the product of a node in the list; adds it if its shape is new. Returns its index. */
static int find_product(iterations *it, const lathe_ir_node *node)
{
    const lathe_desc *const a = &it->graph->values[node->in[0]].desc;
    const lathe_desc *const c = &it->graph->values[node->out[0]].desc;
    const product p = {.what = node->label,
                       .m = c->dims[0],
                       .n = c->dims[1],
                       .k = a->dims[node->attrs.trans_a ? 0 : 1],
                       .trans_a = node->attrs.trans_a,
                       .trans_b = node->attrs.trans_b};
    it->dtype = a->dtype;
    for (int i = 0; i < it->n_products; i++) {
        const product *const q = &it->products[i];
        if (q->m == p.m && q->n == p.n && q->k == p.k && q->trans_a == p.trans_a &&
            q->trans_b == p.trans_b && strcmp(q->what, p.what) == 0)
            return i;
    }
    if (it->n_products == MAX_PRODUCTS)
        bench_die("too many shapes of products");
    it->products[it->n_products] = p;
    return it->n_products++;
}

static void iterations_find(iterations *it, lathe_run *run)
{
    lathe_exec *const exec = lathe_update_matrix(run->opt.update);
    memset(it, 0, sizeof *it);
    if (exec == NULL || lathe_exec_profile(exec) != LATHE_OK)
        bench_die("no Newton-Schulz iterations to profile");
    it->graph = lathe_exec_graph(exec);
    it->seconds = lathe_exec_profile_seconds(exec);
    for (int32_t i = 0; i < it->graph->n_nodes; i++) {
        const lathe_ir_node *const node = &it->graph->nodes[i];
        if (!is_iteration(node) || node->op != LATHE_OP_MATMUL)
            continue;
        product *const p = &it->products[find_product(it, node)];
        p->count++;
        it->operations += 2.0 * (double)p->m * (double)p->n * (double)p->k;
    }
}

/* Seconds of all iterations since the profile began. */
static double iterations_seconds(const iterations *it)
{
    double sum = 0.0;
    for (int32_t i = 0; i < it->graph->n_nodes; i++)
        sum += is_iteration(&it->graph->nodes[i]) ? it->seconds[i] : 0.0;
    return sum;
}

static double one_step(lathe_run *run, const lathe_run_batch *batch, int micro_batches)
{
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    lathe_step_result s = {.size = (uint32_t)sizeof s};
    const double begun = lathe_now();
    for (int i = 0; i < micro_batches; i++)
        if (lathe_forward(run, batch, LATHE_FORWARD_TRAIN, &f) != LATHE_OK ||
            lathe_backward(run, NULL) != LATHE_OK)
            bench_die("step");
    if (lathe_step(run, &s) != LATHE_OK)
        bench_die("step");
    return lathe_now() - begun;
}

/* Opens plain products in the type of the iterations, or in f32 if oneDNN does not have that type
 * here. */
static const char *open_products(iterations *it)
{
    if (it->dtype == LATHE_BF16 &&
        product_rate_open(it->products, it->n_products, dnnl_bf16) == dnnl_success)
        return "bf16";
    for (int i = 0; i < it->n_products; i++)
        it->products[i].f32_out = 0;
    if (product_rate_open(it->products, it->n_products, dnnl_f32) != dnnl_success)
        bench_die("oneDNN has no product of the iterations' shapes");
    return "f32";
}

static void print_shapes(iterations *it, int steps)
{
    for (int32_t i = 0; i < it->graph->n_nodes; i++) {
        const lathe_ir_node *const node = &it->graph->nodes[i];
        if (is_iteration(node) && node->op == LATHE_OP_MATMUL)
            it->product_seconds[find_product(it, node)] += it->seconds[i] / steps;
    }
    for (int i = 0; i < it->n_products; i++) {
        const product *const p = &it->products[i];
        const double work = 2e-9 * (double)p->m * (double)p->n * (double)p->k;
        (void)printf("# %-18s %4d x %4d x %4d, %3d of them: %7.1f GFLOP/s, oneDNN %7.1f\n", p->what,
                     (int)p->m, (int)p->n, (int)p->k, p->count,
                     work * p->count / it->product_seconds[i], work / p->seconds);
    }
}

int main(int argc, char **argv)
{
    const char *const precision = argc > 1 ? argv[1] : "bf16";
    const int rows = argc > 2 ? atoi(argv[2]) : 4, row_tokens = argc > 3 ? atoi(argv[3]) : 1024;
    const int micro = argc > 4 ? atoi(argv[4]) : 4, steps = argc > 5 ? atoi(argv[5]) : 3;
    char name[] = "optimizer.name=muon", *more[32] = {name};
    int n_more = 1;
    if (rows < 1 || row_tokens < 1 || micro < 1 || steps < 1 || steps > MAX_STEPS)
        return 2;
    for (int i = 6; i < argc && n_more < 16; i++)
        more[n_more++] = argv[i];
    lathe_run *const run = gpt2_run_open(precision, rows, row_tokens, n_more, more);
    const lathe_run_batch batch = gpt2_batch(rows, row_tokens);
    static iterations it;
    double step_s[MAX_STEPS], ns_s[MAX_STEPS], share[MAX_STEPS], rate[MAX_STEPS];
    double ratio[MAX_STEPS];
    (void)one_step(run, &batch, 1);
    iterations_find(&it, run);
    const char *const type = open_products(&it);
    (void)product_rate_measure(it.products, it.n_products);
    for (int i = 0; i < steps; i++) {
        const double before = iterations_seconds(&it);
        step_s[i] = one_step(run, &batch, micro);
        ns_s[i] = iterations_seconds(&it) - before;
        rate[i] = product_rate_measure(it.products, it.n_products);
        share[i] = ns_s[i] / step_s[i];
        ratio[i] = it.operations / ns_s[i] / rate[i];
    }
    print_shapes(&it, steps);
    (void)printf("tokens %d\nproduct_type %s\nstep_ms %.1f\n", rows * row_tokens * micro, type,
                 1e3 * bench_median(step_s, steps));
    (void)printf("iterations_ms %.1f\niterations_share %.4f\n", 1e3 * bench_median(ns_s, steps),
                 bench_median(share, steps));
    (void)printf("iterations_gflops %.1f\nproduct_gflops %.1f\nrate_share %.3f\n",
                 1e-9 * it.operations / bench_median(ns_s, steps), 1e-9 * bench_median(rate, steps),
                 bench_median(ratio, steps));
    lathe_run_close(run);
    return 0;
}

/* The memory plan: blocks that live at the same time never overlap, in random and real graphs, and
 * the peak is near the minimum that the lifetimes allow. */
#include "random_graph.h"
#include "run/open/opening.h"
#include "run/state/run_state.h"
#include "support/open_options.h"

/* A value's memory or a node's scratch, computed by the test independently. */
typedef struct life {
    int64_t offset, bytes;
    int32_t first, last; /* first and last node, inclusive */
    int32_t value, node; /* one of them -1 */
} life;

static int64_t rounded(int64_t bytes)
{
    return (bytes + LATHE_PLAN_ALIGN - 1) / LATHE_PLAN_ALIGN * LATHE_PLAN_ALIGN;
}

static void extend(life *l, int32_t node)
{
    l->first = l->first < 0 || node < l->first ? node : l->first;
    l->last = node > l->last ? node : l->last;
}

/* Computes lives[]: for every value from the node that writes it to its last reader, whether memory
 * is shared or not. */
static int32_t lives_of(const lathe_graph *g, const lathe_plan *plan, const int64_t *scratch,
                        life *lives)
{
    for (lathe_val v = 0; v < g->n_values; v++)
        lives[v] = (life){plan->offset[v], lathe_desc_bytes(&g->values[v].desc), -1, -1, v, -1};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        for (int32_t k = 0; k < n->n_in; k++)
            if (n->in[k] != LATHE_NONE)
                extend(&lives[n->in[k]], i);
        for (int32_t k = 0; k < n->n_out; k++) {
            if (n->acc[k] != LATHE_NONE)
                extend(&lives[n->acc[k]], i);
            if (n->out[k] == LATHE_NONE)
                continue;
            extend(&lives[n->out[k]], i);
            if (g->values[n->out[k]].is_output)
                extend(&lives[n->out[k]], g->n_nodes);
        }
    }
    int32_t n = 0;
    for (lathe_val v = 0; v < g->n_values; v++)
        if (!lathe_graph_is_persistent(g, v) && lives[v].last >= 0)
            lives[n++] = lives[v];
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (scratch[i] > 0)
            lives[n++] = (life){plan->scratch_offset[i], scratch[i], i, i, -1, i};
    return n;
}

/* Whether a gives its memory to b at the node that is the last reader of a and writes b. */
static int hands_over(const lathe_graph *g, const life *a, const life *b)
{
    return a->value >= 0 && b->value >= 0 && a->last == b->first &&
           lathe_graph_root(g, a->value) == lathe_graph_root(g, b->value);
}

static void expect_apart(const lathe_graph *g, const life *a, const life *b, const char *what)
{
    if (a->last < b->first || b->last < a->first || hands_over(g, a, b) || hands_over(g, b, a))
        return;
    cr_expect(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset,
              "%s: value %d / scratch %d at %lld+%lld (nodes %d-%d) meets value %d / scratch %d at "
              "%lld+%lld (nodes %d-%d)",
              what, a->value, a->node, (long long)a->offset, (long long)a->bytes, a->first, a->last,
              b->value, b->node, (long long)b->offset, (long long)b->bytes, b->first, b->last);
}

/* The largest number of bytes alive at any node, the minimum for every plan. Values that share
 * memory count once. */
static int64_t least_bytes(const lathe_graph *g, const life *lives, int32_t n)
{
    char *counted = malloc((size_t)g->n_values + 1);
    int64_t least = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        int64_t sum = 0;
        memset(counted, 0, (size_t)g->n_values + 1);
        for (int32_t k = 0; k < n; k++) {
            if (lives[k].first > i || lives[k].last < i)
                continue;
            if (lives[k].value >= 0) {
                char *seen = &counted[lathe_graph_root(g, lives[k].value)];
                if (*seen)
                    continue;
                *seen = 1;
            }
            sum += rounded(lives[k].bytes);
        }
        least = sum > least ? sum : least;
    }
    free(counted);
    return least;
}

/* Plans g with uneven scratch, checks the invariants, and returns peak / minimum. */
static double check_plan(const lathe_graph *g, int64_t scratch_unit, const char *what)
{
    int64_t *scratch = calloc((size_t)g->n_nodes + 1, sizeof *scratch);
    life *lives = calloc((size_t)(g->n_values + g->n_nodes) + 1, sizeof *lives);
    lathe_plan *plan;
    for (int32_t i = 0; i < g->n_nodes; i++)
        scratch[i] = i % 3 ? scratch_unit * (1 + i % 5) - 7 : 0;
    OK(lathe_plan_create(g, scratch, &plan));
    cr_assert_eq(plan->n_values, g->n_values);
    cr_assert_eq(plan->n_nodes, g->n_nodes);
    const int32_t n = lives_of(g, plan, scratch, lives);
    for (int32_t a = 0; a < n; a++) {
        cr_expect(lives[a].offset >= 0 && lives[a].offset % LATHE_PLAN_ALIGN == 0, "%s", what);
        cr_expect_leq(lives[a].offset + lives[a].bytes, plan->arena_bytes, "%s", what);
        for (int32_t b = 0; b < a; b++)
            expect_apart(g, &lives[a], &lives[b], what);
    }
    for (lathe_val v = 0; v < g->n_values; v++)
        if (lathe_graph_is_persistent(g, v))
            cr_expect_eq(plan->offset[v], -1, "%s: value %d is not the arena's", what, v);
    const int64_t least = least_bytes(g, lives, n);
    cr_expect_geq(plan->arena_bytes, least, "%s: %lld bytes cannot hold %lld", what,
                  (long long)plan->arena_bytes, (long long)least);
    const double ratio = (double)plan->arena_bytes / (double)least;
    lathe_plan_destroy(plan);
    free(scratch);
    free(lives);
    return ratio;
}

Test(plan, blocks_of_random_graphs_never_meet)
{
    double worst = 0.0, sum = 0.0;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        fixture f;
        char what[32];
        (void)snprintf(what, sizeof what, "seed %d", (int)seed);
        fixture_open(&f, LATHE_F32);
        OK(fixture_derive(&f, random_graph(&f, seed, (int32_t)(seed % 2))));
        fixture_passes(&f, FIXTURE_DEAD, (int32_t)(seed % 4));
        const double ratio = check_plan(f.g, 64, what);
        worst = fmax(worst, ratio);
        sum += ratio;
        fixture_close(&f);
    }
    cr_expect_leq(worst, 1.25, "peak over least: worst %g, mean %g", worst, sum / 80.0);
}

static void real_graph(const char *stage, const char *recompute, const char *precision)
{
    char mode[64], how[64], dtype[64];
    lathe_run *run = NULL;
    (void)snprintf(how, sizeof how, "%s", stage);
    (void)snprintf(mode, sizeof mode, "%s", recompute);
    (void)snprintf(dtype, sizeof dtype, "\"%s\"", precision);
    const lathe_override settings[] = {
        {"model.path", LATHE_TEST_DATA "/golden/data/models/llama_tied"},
        {"stage.name", how},
        {"train.recompute", mode},
        {"train.precision", dtype},
        {"data.seq_len", "23"},
        {"train.micro_batch_size", "2"},
        {"train.max_steps", "10"}};
    OK(open_options(NULL, settings, 7, LATHE_OPEN_BATCHES, &run));
    const lathe_graph *g = lathe_exec_graph(run->programs.train.exec);
    cr_assert_gt(g->n_nodes, 50);
    const double plain = check_plan(g, 0, recompute), full = check_plan(g, 512, recompute);
    cr_expect_leq(plain, 1.25, "%s %s: peak over least is %g", stage, recompute, plain);
    cr_expect_leq(full, 1.25, "%s %s with scratch: peak over least is %g", stage, recompute, full);
    lathe_run_close(run);
}

Test(plan, blocks_of_training_never_meet)
{
    real_graph("pretrain", "none", "fp32");
    real_graph("pretrain", "layer", "bf16");
    real_graph("dpo", "attention", "bf16");
    real_graph("dpo", "mlp", "fp32");
}

/* By hand: a (64 bytes) lives at nodes 0-1, b at 1-2, c at 2-3, so c can use a's memory. */
Test(plan, memory_is_used_again_when_a_value_has_died)
{
    fixture f;
    lathe_val v[4];
    lathe_plan *plan;
    fixture_open(&f, LATHE_F32);
    v[0] = fixture_const(&f, lathe_desc_1d(LATHE_F32, 16));
    for (int i = 1; i < 4; i++)
        v[i] = fixture_unary(&f, LATHE_OP_GELU_TANH, v[i - 1]);
    lathe_graph_output(f.g, v[3]);
    const int64_t scratch[3] = {0, 1, 0};
    OK(lathe_plan_create(f.g, scratch, &plan));
    cr_expect_eq(plan->offset[v[0]], -1);
    cr_expect_eq(plan->offset[v[1]], plan->offset[v[3]]);
    cr_expect_neq(plan->offset[v[1]], plan->offset[v[2]]);
    cr_expect_eq(plan->activation_bytes, 128);
    cr_expect_eq(plan->arena_bytes, 192, "a byte of scratch takes a line of its own");
    cr_expect_eq(plan->input_bytes, 64);
    lathe_plan_destroy(plan);
    fixture_close(&f);
}

Test(plan, an_empty_graph_needs_nothing)
{
    fixture f;
    lathe_plan *plan;
    fixture_open(&f, LATHE_F32);
    OK(lathe_plan_create(f.g, NULL, &plan));
    cr_expect_eq(plan->arena_bytes, 0);
    cr_expect_eq(plan->input_bytes, 0);
    lathe_plan_destroy(plan);
    lathe_plan_destroy(NULL);
    fixture_close(&f);
}

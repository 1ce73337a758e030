/* Forward values kept in host memory: which values, when, and that no node uses memory while it is
 * being copied. */
#include "graph/ir/op_info.h"
#include "support/graph_fixture.h"

enum { ROWS = 16, WIDTH = 16 };

/* Layers of a norm, whose statistics are small, and an MLP. */
static lathe_val network(fixture *f, int layers)
{
    const lathe_op_attrs norm = {.eps = 1e-5f};
    lathe_val x = fixture_unary(f, LATHE_OP_COPY, fixture_matrix(f, "x", ROWS, WIDTH));
    for (int layer = 0; layer < layers; layer++) {
        char name[32];
        (void)snprintf(name, sizeof name, "gain%d", layer);
        const lathe_val gain = fixture_vector(f, name, WIDTH);
        (void)snprintf(name, sizeof name, "up%d", layer);
        const lathe_val up = fixture_matrix(f, name, 4 * WIDTH, WIDTH);
        (void)snprintf(name, sizeof name, "down%d", layer);
        const lathe_val down = fixture_matrix(f, name, WIDTH, 4 * WIDTH);
        lathe_graph_set_layer(f->g, layer, LATHE_BLOCK_MLP);
        lathe_val h = fixture_node(f, LATHE_OP_RMSNORM, &norm, x, gain, LATHE_NONE);
        h = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_linear(f, h, up, LATHE_NONE));
        x = fixture_binary(f, LATHE_OP_ADD, x, fixture_linear(f, h, down, LATHE_NONE));
    }
    lathe_graph_set_layer(f->g, -1, LATHE_BLOCK_NONE);
    return fixture_loss(f, x);
}

static int32_t forward_end(const lathe_graph *g)
{
    int32_t end = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].phase == LATHE_PHASE_FORWARD)
            end = i + 1;
    return end;
}

/* Adds the derivative and moves the forward's values to host memory. */
static int32_t open_network(fixture *f, int layers, int32_t recompute)
{
    int32_t n = -1;
    fixture_open(f, LATHE_F32);
    OK(fixture_derive(f, network(f, layers)));
    OK(lathe_pass_recompute(f->g, recompute));
    OK(lathe_pass_dead(f->g));
    OK(lathe_pass_offload(f->g, forward_end(f->g), &n));
    OK(lathe_pass_inplace(f->g));
    return n;
}

static int32_t find(const lathe_graph *g, int32_t op, int32_t from)
{
    while (from < g->n_nodes && g->nodes[from].op != op)
        from++;
    return from;
}

static int32_t maker(const lathe_graph *g, lathe_val v)
{
    for (int32_t i = 0; i < g->n_nodes; i++)
        for (int32_t k = 0; k < g->nodes[i].n_out; k++)
            if (g->nodes[i].out[k] == v)
                return i;
    return -1;
}

static int32_t reader(const lathe_graph *g, int32_t op, lathe_val v)
{
    for (int32_t i = find(g, op, 0); i < g->n_nodes; i = find(g, op, i + 1))
        if (g->nodes[i].in[0] == v)
            return i;
    return g->n_nodes;
}

/* Whether two planned values overlap in memory. */
static int meet(const lathe_graph *g, const lathe_plan *plan, lathe_val a, lathe_val b)
{
    if (a == LATHE_NONE || b == LATHE_NONE || plan->offset[a] < 0 || plan->offset[b] < 0 ||
        g->values[a].on_host != g->values[b].on_host)
        return 0;
    return plan->offset[a] < plan->offset[b] + lathe_desc_bytes(&g->values[b].desc) &&
           plan->offset[b] < plan->offset[a] + lathe_desc_bytes(&g->values[a].desc);
}

/* Checks that no node writes to the memory of v from `from` to `to`; with `reads`, that none reads
 * it either. */
static void expect_untouched(const lathe_graph *g, const lathe_plan *plan, lathe_val v,
                             int32_t from, int32_t to, int reads)
{
    for (int32_t i = from + 1; i < to; i++) {
        for (int32_t k = 0; k < g->nodes[i].n_out; k++)
            cr_assert_not(meet(g, plan, v, g->nodes[i].out[k]), "node %d writes it", i);
        for (int32_t k = 0; k < g->nodes[i].n_in && reads; k++)
            cr_assert_not(meet(g, plan, v, g->nodes[i].in[k]), "node %d reads it", i);
    }
}

/* Checks the order of a value's copies and waits. */
static void check_trip(const lathe_graph *g, const lathe_plan *plan, int32_t copy_out)
{
    const lathe_val v = g->nodes[copy_out].in[0], on_host_copy = g->nodes[copy_out].out[0];
    const int32_t wait_out = reader(g, LATHE_OP_WAIT_OUT, on_host_copy);
    cr_assert(wait_out < g->n_nodes && g->nodes[wait_out].in[1] == v);
    const int32_t copy_in = reader(g, LATHE_OP_COPY_IN, g->nodes[wait_out].out[0]);
    cr_assert_lt(copy_in, g->n_nodes);
    const int32_t wait_in = reader(g, LATHE_OP_WAIT_IN, g->nodes[copy_in].out[0]);
    cr_assert_lt(wait_in, g->n_nodes);
    cr_assert(maker(g, v) < copy_out && copy_out < wait_out && wait_out < copy_in &&
              copy_in < wait_in);
    cr_assert(g->values[on_host_copy].on_host && !g->values[g->nodes[copy_in].out[0]].on_host);
    expect_untouched(g, plan, v, copy_out, wait_out, 0);
    expect_untouched(g, plan, g->nodes[copy_in].out[0], copy_in, wait_in, 1);
    for (int32_t i = copy_out + 1; i < wait_in; i++)
        if (i != wait_out)
            cr_assert_not(meet(g, plan, on_host_copy, g->nodes[i].out[0]), "node %d has its slot",
                          i);
    /* after wait_out, only the host copy is read, not v */
    for (int32_t i = wait_out + 1; i < g->n_nodes; i++)
        for (int32_t k = 0; k < g->nodes[i].n_in; k++)
            cr_assert(g->nodes[i].phase == LATHE_PHASE_FORWARD || g->nodes[i].in[k] != v);
}

Test(offload_values, go_and_come_back_in_an_order_that_their_copies_need)
{
    for (int32_t mode = LATHE_RECOMPUTE_NONE; mode <= LATHE_RECOMPUTE_POINTWISE; mode++)
        for (int layers = 1; layers <= 8; layers++) {
            fixture f;
            lathe_plan *plan = NULL;
            int n_trips = 0;
            const int32_t n = open_network(&f, layers, mode);
            OK(lathe_plan_create(f.g, NULL, &plan));
            for (int32_t i = find(f.g, LATHE_OP_COPY_OUT, 0); i < f.g->n_nodes;
                 i = find(f.g, LATHE_OP_COPY_OUT, i + 1), n_trips++)
                check_trip(f.g, plan, i);
            cr_assert_eq(n_trips, n, "mode %d, %d layers", mode, layers);
            cr_assert_eq(n > 0, layers > 1, "mode %d, %d layers: %d values", mode, layers, n);
            cr_assert_eq(plan->host_bytes > 0, n > 0);
            lathe_plan_destroy(plan);
            fixture_close(&f);
        }
}

/* Each further layer adds its stored values to host memory, and only its statistics to device
 * memory. */
Test(offload_values, the_device_holds_those_of_a_few_layers)
{
    int64_t device[2], host[2];
    for (int deep = 0; deep < 2; deep++) {
        fixture f;
        lathe_plan *plan = NULL;
        (void)open_network(&f, deep ? 12 : 6, LATHE_RECOMPUTE_NONE);
        OK(lathe_plan_create(f.g, NULL, &plan));
        device[deep] = plan->activation_bytes;
        host[deep] = plan->host_bytes;
        lathe_plan_destroy(plan);
        fixture_close(&f);
    }
    const int64_t statistics = 6 * ROWS * (int64_t)sizeof(float);
    cr_expect_leq(device[1] - device[0], statistics);
    /* x, the norm's result, and the MLP's inner values before and after gelu */
    cr_expect_eq(host[1] - host[0], 6 * (1 + 1 + 4 + 4) * ROWS * WIDTH * (int64_t)sizeof(float));
}

Test(offload_values, statistics_and_results_stay)
{
    fixture f;
    int32_t n = -1;
    fixture_open(&f, LATHE_F32);
    const lathe_val loss = network(&f, 6);
    lathe_val kept = LATHE_NONE;
    for (int32_t i = 0; i < f.g->n_nodes && kept == LATHE_NONE; i++)
        if (f.g->nodes[i].op == LATHE_OP_GELU_TANH)
            kept = f.g->nodes[i].out[0];
    OK(fixture_derive(&f, loss));
    lathe_graph_output(f.g, kept);
    OK(lathe_pass_offload(f.g, forward_end(f.g), &n));
    cr_assert_gt(n, 0);
    for (int32_t i = find(f.g, LATHE_OP_COPY_OUT, 0); i < f.g->n_nodes;
         i = find(f.g, LATHE_OP_COPY_OUT, i + 1)) {
        cr_expect_neq(f.g->nodes[i].in[0], kept);
        cr_expect_eq(f.g->values[f.g->nodes[i].in[0]].desc.rank, 2);
    }
    fixture_close(&f);
}

Test(offload_values, a_graph_of_one_range_stays_as_it_is)
{
    fixture f;
    int32_t n = -1;
    fixture_open(&f, LATHE_F32);
    OK(fixture_derive(&f, network(&f, 6)));
    const int32_t before = f.g->n_nodes, ends[] = {0, before, before + 1};
    for (int i = 0; i < 3; i++) {
        OK(lathe_pass_offload(f.g, ends[i], &n));
        cr_expect(n == 0 && f.g->n_nodes == before);
    }
    fixture_close(&f);
}

/* Only the pass creates these ops; a plugin that asks for one is refused. */
Test(offload_values, no_plugin_makes_them)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val x = fixture_matrix(&f, "x", ROWS, WIDTH), in[2] = {x, x};
    for (int32_t op = LATHE_OP_COPY_OUT; op < LATHE_N_CORE_OPS; op++) {
        lathe_val out;
        cr_expect_eq(lathe_graph_api_get()->node(f.g, op, NULL, in, 1, &out, 1, -1, "case"),
                     LATHE_E_ARG);
    }
    fixture_close(&f);
}

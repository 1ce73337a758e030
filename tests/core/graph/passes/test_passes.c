/* The passes: each works where allowed, does nothing elsewhere, and changes no result. */
#include "random_graph.h"

static int count_op(const lathe_graph *g, int32_t op)
{
    int n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == op;
    return n;
}

static int count_phase(const lathe_graph *g, int32_t phase)
{
    int n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].phase == phase;
    return n;
}

/* Checks that the loss and all gradients of two placed graphs over the same parameters have the
 * same bits. */
static void expect_same_bits(fixture *a, fixture *b, const char *what)
{
    const double loss_a = fixture_run(a, 0), loss_b = fixture_run(b, 0);
    cr_expect_eq(loss_a, loss_b, "%s: losses %.9g and %.9g", what, loss_a, loss_b);
    cr_assert_eq(a->params.n, b->params.n);
    for (int32_t p = 0; p < a->params.n; p++)
        cr_expect_eq(memcmp(lathe_store_grad(&a->store, p), lathe_store_grad(&b->store, p),
                            (size_t)lathe_desc_bytes(&a->params.rows[p]->desc)),
                     0, "%s: gradient of %s differs", what, a->params.rows[p]->name);
}

/* ---- merge_head ---- */

static lathe_val head(fixture *f, lathe_val x)
{
    static const int32_t targets[] = {1, -1, 5, 0};
    return fixture_node(f, LATHE_OP_HEAD_LOGPROB, NULL, x, fixture_matrix(f, "w", 6, 3),
                        fixture_ids(f, targets, 4));
}

static lathe_val cross_entropy(fixture *f)
{
    const lathe_val x = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_matrix(f, "x", 4, 3));
    return fixture_unary(f, LATHE_OP_SUM, head(f, x));
}

Test(merge_head, one_node_serves_both_ways_when_dlogp_is_constant)
{
    fixture plain, merged;
    fixture_open(&plain, LATHE_F32);
    fixture_finish(&plain, cross_entropy(&plain));
    fixture_open(&merged, LATHE_F32);
    OK(fixture_derive(&merged, cross_entropy(&merged)));
    fixture_passes(&merged, FIXTURE_MERGE | FIXTURE_DEAD, LATHE_RECOMPUTE_NONE);
    cr_expect_eq(count_op(merged.g, LATHE_OP_HEAD_LOGPROB), 0);
    cr_expect_eq(count_op(merged.g, LATHE_OP_HEAD_LOGPROB_BWD), 1);
    fixture_place(&merged);
    expect_same_bits(&plain, &merged, "merged head");
    fixture_close(&plain);
    fixture_close(&merged);
}

Test(merge_head, the_logprobs_stay_readable)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val logp = head(&f, fixture_matrix(&f, "x", 4, 3));
    lathe_graph_output(f.g, logp);
    OK(fixture_derive(&f, fixture_unary(&f, LATHE_OP_SUM, logp)));
    OK(lathe_pass_merge_head(f.g));
    int outputs = 0;
    for (int32_t i = 0; i < f.g->n_nodes; i++)
        if (f.g->nodes[i].op == LATHE_OP_HEAD_LOGPROB_BWD)
            outputs += f.g->values[f.g->nodes[i].out[0]].is_output;
    cr_expect_eq(outputs, 1);
    cr_expect_eq(f.g->values[logp].is_output, 0);
    fixture_close(&f);
}

/* A loss that is not linear in the log-probabilities, as preference losses: dlogp depends on
 * them. */
static lathe_val preference(fixture *f)
{
    const lathe_val x = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_matrix(f, "x", 4, 3));
    return fixture_unary(f, LATHE_OP_SUM, fixture_unary(f, LATHE_OP_LOGSIGMOID, head(f, x)));
}

Test(merge_head, both_nodes_stay_when_dlogp_depends_on_logp)
{
    fixture plain, passed;
    fixture_open(&plain, LATHE_F32);
    fixture_finish(&plain, preference(&plain));
    fixture_open(&passed, LATHE_F32);
    OK(fixture_derive(&passed, preference(&passed)));
    fixture_passes(&passed, FIXTURE_MERGE | FIXTURE_DEAD, LATHE_RECOMPUTE_NONE);
    cr_expect_eq(count_op(passed.g, LATHE_OP_HEAD_LOGPROB), 1);
    cr_expect_eq(count_op(passed.g, LATHE_OP_HEAD_LOGPROB_BWD), 1);
    fixture_place(&passed);
    expect_same_bits(&plain, &passed, "preference loss");
    fixture_check(&passed);
    fixture_close(&plain);
    fixture_close(&passed);
}

/* ---- recompute ---- */

enum { LAYERS = 5, ROWS = 16, WIDTH = 16 };

/* Layers of attention and MLP, wide enough that activations dominate the memory. */
static lathe_val network(fixture *f)
{
    const lathe_op_attrs norm = {.eps = 1e-5f};
    const lathe_op_attrs heads = {.n_heads = 2,
                                  .n_kv_heads = 2,
                                  .head_dim = WIDTH / 2,
                                  .causal = 1,
                                  .fused_qkv = 1,
                                  .batch = 2,
                                  .scale = 0.35f};
    lathe_val x = fixture_unary(f, LATHE_OP_COPY, fixture_matrix(f, "x", ROWS, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++) {
        char name[32];
        lathe_val out[2];
        (void)snprintf(name, sizeof name, "qkv%d", layer);
        const lathe_val qkv = fixture_matrix(f, name, 3 * WIDTH, WIDTH);
        (void)snprintf(name, sizeof name, "gain%d", layer);
        const lathe_val gain = fixture_vector(f, name, WIDTH);
        (void)snprintf(name, sizeof name, "up%d", layer);
        const lathe_val up = fixture_matrix(f, name, 4 * WIDTH, WIDTH);
        (void)snprintf(name, sizeof name, "down%d", layer);
        const lathe_val down = fixture_matrix(f, name, WIDTH, 4 * WIDTH);
        lathe_graph_set_layer(f->g, layer, LATHE_BLOCK_ATTENTION);
        lathe_val h = fixture_node(f, LATHE_OP_RMSNORM, &norm, x, gain, LATHE_NONE);
        const lathe_val in[5] = {fixture_linear(f, h, qkv, LATHE_NONE), LATHE_NONE, LATHE_NONE,
                                 LATHE_NONE, LATHE_NONE};
        OK(lathe_graph_node(f->g, LATHE_OP_ATTENTION, &heads, in, 5, out, 2, -1, "attention"));
        x = fixture_binary(f, LATHE_OP_ADD, x, out[0]);
        lathe_graph_set_layer(f->g, layer, LATHE_BLOCK_MLP);
        h = fixture_node(f, LATHE_OP_RMSNORM, &norm, x, gain, LATHE_NONE);
        h = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_linear(f, h, up, LATHE_NONE));
        x = fixture_binary(f, LATHE_OP_ADD, x, fixture_linear(f, h, down, LATHE_NONE));
    }
    lathe_graph_set_layer(f->g, -1, LATHE_BLOCK_NONE);
    return fixture_loss(f, x);
}

static void open_network(fixture *f, int32_t recompute)
{
    fixture_open(f, LATHE_F32);
    OK(fixture_derive(f, network(f)));
    fixture_passes(f, FIXTURE_MERGE | FIXTURE_DEAD, recompute);
    cr_expect_eq(count_phase(f->g, LATHE_PHASE_RECOMPUTE) > 0, recompute != LATHE_RECOMPUTE_NONE);
    fixture_place(f);
}

Test(recompute, every_mode_gives_the_same_bits_in_a_smaller_arena)
{
    fixture kept;
    open_network(&kept, LATHE_RECOMPUTE_NONE);
    const int64_t max = lathe_exec_plan(kept.exec)->activation_bytes;
    int64_t least = max;
    for (int32_t mode = LATHE_RECOMPUTE_LAYER; mode <= LATHE_RECOMPUTE_MLP; mode++) {
        fixture f;
        char what[32];
        (void)snprintf(what, sizeof what, "recompute mode %d", mode);
        open_network(&f, mode);
        expect_same_bits(&kept, &f, what);
        const int64_t bytes = lathe_exec_plan(f.exec)->activation_bytes;
        cr_expect_lt(bytes, max, "%s: %lld bytes of %lld", what, (long long)bytes, (long long)max);
        cr_expect(mode == LATHE_RECOMPUTE_LAYER || bytes > least,
                  "one block cannot beat the layer");
        least = mode == LATHE_RECOMPUTE_LAYER ? bytes : least;
        fixture_close(&f);
    }
    /* whole layers recomputed: 5 inputs and one layer's inner values, instead of 5 layers' inner
     * values */
    cr_expect_lt(least, max / 2);
    fixture_close(&kept);
}

Test(recompute, dropout_draws_the_same_mask_again)
{
    fixture kept, again;
    fixture *const both[2] = {&kept, &again};
    for (int i = 0; i < 2; i++) {
        lathe_val rng;
        fixture *f = both[i];
        fixture_open(f, LATHE_F32);
        const lathe_val x = fixture_matrix(f, "x", 5, 7);
        lathe_graph_set_layer(f->g, 0, LATHE_BLOCK_MLP);
        OK(lathe_graph_api_get()->rng(f->g, &rng));
        const lathe_op_attrs attrs = {.p = 0.5f,
                                      .rng_stream = lathe_graph_api_get()->rng_stream(f->g)};
        const lathe_val y = fixture_node(f, LATHE_OP_DROPOUT, &attrs, x, rng, LATHE_NONE);
        const lathe_val z = fixture_unary(f, LATHE_OP_GELU_TANH, y);
        lathe_graph_set_layer(f->g, -1, LATHE_BLOCK_NONE);
        OK(fixture_derive(f, fixture_loss(f, z)));
        fixture_passes(f, FIXTURE_DEAD, i ? LATHE_RECOMPUTE_LAYER : LATHE_RECOMPUTE_NONE);
        fixture_place(f);
    }
    expect_same_bits(&kept, &again, "dropout");
    fixture_check(&again);
    fixture_close(&kept);
    fixture_close(&again);
}

/* ---- detach ---- */

Test(detach, gradients_stop_at_detach)
{
    fixture f;
    lathe_val cut;
    fixture_open(&f, LATHE_F32);
    const lathe_val x = fixture_matrix(&f, "x", 3, 4);
    OK(lathe_graph_api_get()->detach(f.g, fixture_unary(&f, LATHE_OP_GELU_TANH, x), &cut));
    fixture_finish(&f, fixture_unary(&f, LATHE_OP_SUM, fixture_binary(&f, LATHE_OP_MUL, x, cut)));
    fixture_run(&f, 0);
    for (int i = 0; i < 12; i++) { /* d(x * c)/dx = c, not c + x c' */
        const double v = (double)lathe_store_master(&f.store, 0)[i];
        const double gelu = 0.5 * v * (1.0 + tanh(sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v)));
        cr_expect_float_eq((double)((const float *)lathe_store_grad(&f.store, 0))[i], gelu, 1e-6);
    }
    fixture_close(&f);
}

/* ---- inplace ---- */

/* y = 2x in the memory of x; the loss reads y and, with reads_old, also x. */
static lathe_val taken_over(fixture *f, int32_t inplace, int32_t reads_old)
{
    const lathe_op_attrs twice = {.alpha = 2.0};
    const lathe_val x = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_matrix(f, "x", 3, 4));
    lathe_val y;
    OK(lathe_graph_node(f->g, LATHE_OP_SCALE, &twice, &x, 1, &y, 1, inplace ? 0 : -1, "twice"));
    return fixture_loss(f, reads_old ? fixture_binary(f, LATHE_OP_MUL, x, y) : y);
}

Test(inplace, a_copy_is_made_where_the_old_value_is_still_read)
{
    for (int32_t reads_old = 0; reads_old < 2; reads_old++) {
        fixture apart, shared;
        fixture_open(&apart, LATHE_F32);
        fixture_finish(&apart, taken_over(&apart, 0, reads_old));
        fixture_open(&shared, LATHE_F32);
        OK(fixture_derive(&shared, taken_over(&shared, 1, reads_old)));
        const int before = count_op(shared.g, LATHE_OP_COPY);
        fixture_passes(&shared, FIXTURE_DEAD, LATHE_RECOMPUTE_NONE);
        cr_expect_eq(count_op(shared.g, LATHE_OP_COPY) - before, reads_old);
        fixture_place(&shared);
        expect_same_bits(&apart, &shared, "in place");
        fixture_check(&shared);
        fixture_close(&apart);
        fixture_close(&shared);
    }
}

/* Both inputs of an addition have the same value as their gradient so far; adding to one must not
 * change the other. */
Test(inplace, a_gradient_shared_by_two_values_is_copied_before_it_is_added_to)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val a = fixture_unary(&f, LATHE_OP_GELU_TANH, fixture_matrix(&f, "a", 3, 4));
    const lathe_val b = fixture_unary(&f, LATHE_OP_GELU_TANH, fixture_matrix(&f, "b", 3, 4));
    const lathe_val more = fixture_linear(&f, a, fixture_matrix(&f, "w", 4, 4), LATHE_NONE);
    const lathe_val sum = fixture_binary(&f, LATHE_OP_ADD, a, b);
    OK(fixture_derive(&f, fixture_loss(&f, fixture_binary(&f, LATHE_OP_ADD, more, sum))));
    cr_assert_eq(count_op(f.g, LATHE_OP_COPY), 0);
    fixture_passes(&f, FIXTURE_DEAD, LATHE_RECOMPUTE_NONE);
    cr_expect_gt(count_op(f.g, LATHE_OP_COPY), 0);
    fixture_place(&f);
    fixture_check(&f);
    fixture_close(&f);
}

/* scale_by reads one element of its second input for all elements, so the output must not use its
 * memory. */
Test(inplace, a_factor_inside_the_scaled_tensor_survives)
{
    const lathe_op_attrs second = {.start = 1};
    for (int32_t asked = 0; asked < 2; asked++) {
        fixture f;
        fixture_open(&f, LATHE_F32);
        const lathe_val c = fixture_const(&f, lathe_desc_1d(LATHE_F32, 6));
        const lathe_val x = fixture_unary(&f, LATHE_OP_COPY, c);
        const lathe_val in[2] = {x, x};
        lathe_val y;
        OK(lathe_graph_node(f.g, LATHE_OP_SCALE_BY, &second, in, 2, &y, 1, asked - 1, "own"));
        lathe_graph_output(f.g, y);
        OK(lathe_pass_inplace(f.g));
        cr_expect_neq(lathe_graph_root(f.g, y), lathe_graph_root(f.g, x));
        f.loss = y;
        fixture_place(&f);
        fixture_run(&f, 0);
        const float *got = lathe_exec_data(f.exec, y), *from = lathe_exec_data(f.exec, c);
        for (int i = 0; i < 6; i++)
            cr_expect_eq(got[i], from[i] * from[1]);
        fixture_close(&f);
    }
}

/* ---- dead ---- */

Test(dead, what_nobody_reads_is_removed)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val x = fixture_matrix(&f, "x", 3, 4);
    lathe_val unread = x;
    for (int i = 0; i < 3; i++)
        unread = fixture_unary(&f, LATHE_OP_GELU_TANH, unread);
    const lathe_val loss = fixture_loss(&f, fixture_unary(&f, LATHE_OP_COPY, x));
    lathe_graph_output(f.g, loss);
    OK(lathe_pass_dead(f.g));
    cr_assert_eq(f.g->n_nodes, 3);
    cr_expect_eq(f.g->nodes[0].op, LATHE_OP_COPY);
    cr_expect_eq(f.g->nodes[1].op, LATHE_OP_MUL);
    cr_expect_eq(f.g->nodes[2].op, LATHE_OP_SUM);
    for (int32_t i = 0; i < 3; i++)
        cr_expect_eq(f.g->values[f.g->nodes[i].out[0]].node, i);
    fixture_close(&f);
}

Test(dead, a_graph_without_outputs_becomes_empty)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    (void)fixture_loss(&f, fixture_matrix(&f, "x", 3, 4));
    OK(lathe_pass_dead(f.g));
    cr_expect_eq(f.g->n_nodes, 0);
    OK(lathe_pass_inplace(f.g));
    fixture_close(&f);
}

/* ---- all of them, over random graphs ---- */

Test(passes, random_graphs_give_the_same_bits_with_all_of_them)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        fixture plain, passed;
        char what[32];
        (void)snprintf(what, sizeof what, "seed %d", (int)seed);
        fixture_open(&plain, LATHE_F32);
        OK(fixture_derive(&plain, random_graph(&plain, seed, 0)));
        fixture_passes(&plain, 0, LATHE_RECOMPUTE_NONE);
        fixture_place(&plain);
        fixture_open(&passed, LATHE_F32);
        OK(fixture_derive(&passed, random_graph(&passed, seed, 1)));
        fixture_passes(&passed, FIXTURE_MERGE | FIXTURE_DEAD, (int32_t)(seed % 4));
        fixture_place(&passed);
        expect_same_bits(&plain, &passed, what);
        fixture_close(&plain);
        fixture_close(&passed);
    }
}

Test(passes, random_graphs_have_right_gradients)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        fixture f;
        fixture_open(&f, LATHE_F32);
        OK(fixture_derive(&f, random_graph(&f, seed, 1)));
        fixture_passes(&f, FIXTURE_DEAD, (int32_t)(seed % 4));
        fixture_place(&f);
        fixture_compare(&f, 0);
        fixture_close(&f);
    }
}

/* Norms fused with the sums before them: no bit changes, no more memory is planned, and other nodes
 * stay separate. */
#include "fuse_case.h"

enum { LAYERS = 3, ROWS = 16, WIDTH = 24 };

/* Which variant of the network. */
enum {
    PLAIN = 0,
    BETWEEN = 1,  /* a node is between sum and norm */
    OTHER_SUM = 2 /* a product instead of a sum */
};

static lathe_val matrix(fixture *f, const char *name, int layer, int64_t rows, int64_t cols)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%s%d", name, layer);
    return cols > 0 ? fixture_matrix(f, text, rows, cols) : fixture_vector(f, text, rows);
}

static lathe_val norm_of(fixture *f, lathe_val x, int layer, int is_rms)
{
    const lathe_op_attrs attrs = {.eps = 1e-5f};
    const lathe_val gain = matrix(f, "gain", layer, WIDTH, 0);
    if (is_rms)
        return fixture_node(f, LATHE_OP_RMSNORM, &attrs, x, gain, LATHE_NONE);
    return fixture_node(f, LATHE_OP_LAYERNORM, &attrs, x, gain,
                        matrix(f, "shift", layer, WIDTH, 0));
}

/* Residual layers of a norm, a product and a sum each, and a final norm. */
static lathe_val network(fixture *f, int is_rms, int variant)
{
    lathe_val x = fixture_unary(f, LATHE_OP_COPY, matrix(f, "x", 0, ROWS, WIDTH));
    lathe_val y = norm_of(f, x, 0, is_rms);
    for (int layer = 1; layer <= LAYERS; layer++) {
        lathe_graph_set_layer(f->g, layer - 1, LATHE_BLOCK_MLP);
        const lathe_val w = matrix(f, "w", layer, WIDTH, WIDTH);
        const lathe_val out = fixture_linear(f, y, w, LATHE_NONE);
        x = fixture_binary(f, variant == OTHER_SUM ? LATHE_OP_MUL : LATHE_OP_ADD, out, x);
        const lathe_val other = variant == BETWEEN ? fixture_unary(f, LATHE_OP_COPY, x) : x;
        y = norm_of(f, x, layer, is_rms);
        if (variant == BETWEEN)
            y = fixture_binary(f, LATHE_OP_MUL, y, other);
    }
    lathe_graph_set_layer(f->g, -1, LATHE_BLOCK_NONE);
    return fixture_loss(f, y);
}

static void build(fixture *f, int32_t dtype, int is_rms, int variant, int32_t recompute,
                  lathe_offers_fn offers)
{
    fixture_open(f, dtype);
    OK(fixture_derive(f, network(f, is_rms, variant)));
    OK(lathe_pass_recompute(f->g, recompute));
    OK(lathe_pass_dead(f->g));
    if (offers)
        OK(lathe_pass_add_norm(f->g, offers, f));
    OK(lathe_pass_inplace(f->g));
}

static int joined(const fixture *f)
{
    return count_op(f->g, LATHE_OP_ADD_RMSNORM) + count_op(f->g, LATHE_OP_ADD_LAYERNORM);
}

Test(fuse_norm, no_bit_changes_and_no_byte_more_is_planned)
{
    static const int32_t dtypes[3] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int is_rms = 0; is_rms < 2; is_rms++)
        for (int32_t mode = LATHE_RECOMPUTE_NONE; mode <= LATHE_RECOMPUTE_POINTWISE; mode++) {
            const int32_t dtype = dtypes[mode % 3];
            fixture apart, joint;
            char what[64];
            (void)snprintf(what, sizeof what, "rms %d, dtype %d, recompute %d", is_rms, (int)dtype,
                           (int)mode);
            build(&apart, dtype, is_rms, PLAIN, mode, NULL);
            build(&joint, dtype, is_rms, PLAIN, mode, device_offers);
            cr_expect_eq(joined(&apart), 0);
            cr_expect_geq(joined(&joint), LAYERS, "%s: %d", what, joined(&joint));
            fixture_place(&apart);
            fixture_place(&joint);
            const lathe_plan *a = lathe_exec_plan(apart.exec), *j = lathe_exec_plan(joint.exec);
            cr_expect_leq(j->arena_bytes, a->arena_bytes, "%s: %lld of %lld", what,
                          (long long)j->arena_bytes, (long long)a->arena_bytes);
            expect_same_bits(&apart, &joint, what);
            fixture_close(&apart);
            fixture_close(&joint);
        }
}

Test(fuse_norm, leaves_what_is_not_a_sum_right_in_front)
{
    static const int left[][2] = {{PLAIN, LAYERS}, {BETWEEN, 0}, {OTHER_SUM, 0}};
    for (int k = 0; k < 3; k++) {
        fixture f;
        build(&f, LATHE_BF16, 1, left[k][0], LATHE_RECOMPUTE_NONE, offers_all);
        cr_expect_eq(joined(&f), left[k][1], "variant %d: %d", left[k][0], joined(&f));
        fixture_close(&f);
    }
}

Test(fuse_norm, does_nothing_where_the_device_offers_nothing)
{
    fixture f;
    build(&f, LATHE_F32, 1, PLAIN, LATHE_RECOMPUTE_NONE, offers_none);
    cr_expect_eq(joined(&f), 0);
    cr_expect_eq(count_op(f.g, LATHE_OP_RMSNORM), LAYERS + 1);
    fixture_close(&f);
}

/* Another program would have other bits than one built with enough memory. */
Test(fuse_norm, fails_when_the_device_has_no_memory_to_answer)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    OK(fixture_derive(&f, network(&f, 1, PLAIN)));
    cr_expect_eq(lathe_pass_add_norm(f.g, offers_without_memory, NULL), LATHE_E_NOMEM);
    cr_expect_eq(joined(&f), 0);
    fixture_close(&f);
}

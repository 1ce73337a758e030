/* Random graphs over a fixture: a chain of ops on [4, 6] values with random earlier inputs, layers
 * and blocks; the loss reads a few of them. Depends only on the seed. With `inplace`, the same
 * graph reuses memory at random, legally or not. */
#ifndef LATHE_TEST_RANDOM_GRAPH_H
#define LATHE_TEST_RANDOM_GRAPH_H

#include "support/graph_fixture.h"

enum { RANDOM_ROWS = 4, RANDOM_COLS = 6, RANDOM_NODES = 24 };

typedef struct random_source {
    uint64_t seed, at;
} random_source;

static inline int32_t random_below(random_source *r, int32_t n)
{
    return (int32_t)(lathe_rng_block(r->seed, 1, 77, r->at++).v[0] % (uint32_t)n);
}

static inline lathe_val random_op(fixture *f, random_source *r, lathe_val a, lathe_val b,
                                  int32_t inplace)
{
    static const int32_t ops[] = {LATHE_OP_ADD,       LATHE_OP_SUB,     LATHE_OP_MUL,
                                  LATHE_OP_SCALE,     LATHE_OP_LINCOMB, LATHE_OP_GELU_TANH,
                                  LATHE_OP_SWIGLU,    LATHE_OP_COPY,    LATHE_OP_LINEAR,
                                  LATHE_OP_TRANSPOSE, LATHE_OP_RMSNORM};
    const int32_t op = ops[random_below(r, (int32_t)(sizeof ops / sizeof ops[0]))];
    const int32_t wants = random_below(r, 2);
    const lathe_op_attrs attrs = {
        .alpha = 0.5, .beta = op == LATHE_OP_SCALE ? 0.25 : -0.5, .eps = 1e-3f};
    const int32_t can = op <= LATHE_OP_LINCOMB && op >= LATHE_OP_ADD;
    const int32_t n_in = op == LATHE_OP_ADD || op == LATHE_OP_SUB || op == LATHE_OP_MUL ||
                                 op == LATHE_OP_LINCOMB || op == LATHE_OP_SWIGLU
                             ? 2
                             : 1;
    lathe_val in[2] = {a, b}, out[2];
    char name[32];
    if (op == LATHE_OP_LINEAR || op == LATHE_OP_RMSNORM) {
        (void)snprintf(name, sizeof name, "p%d", f->params.n);
        in[1] = op == LATHE_OP_LINEAR ? fixture_matrix(f, name, RANDOM_COLS, RANDOM_COLS)
                                      : fixture_vector(f, name, RANDOM_COLS);
        OK(lathe_graph_node(f->g, op, &attrs, in, 2, out, op == LATHE_OP_LINEAR ? 1 : 2, -1, name));
        return out[0];
    }
    OK(lathe_graph_node(f->g, op, &attrs, in, n_in, out, 1, inplace && wants && can ? 0 : -1, "r"));
    if (op == LATHE_OP_TRANSPOSE) /* and back, so that later shapes fit */
        OK(lathe_graph_node(f->g, op, NULL, out, 1, out, 1, -1, "r"));
    return out[0];
}

/* Returns the loss. */
static inline lathe_val random_graph(fixture *f, uint64_t seed, int32_t inplace)
{
    random_source r = {seed, 0};
    lathe_val values[RANDOM_NODES + 2];
    int32_t n = 0;
    values[n++] = fixture_unary(f, LATHE_OP_COPY, fixture_matrix(f, "x", RANDOM_ROWS, RANDOM_COLS));
    values[n++] =
        fixture_unary(f, LATHE_OP_GELU_TANH, fixture_matrix(f, "y", RANDOM_ROWS, RANDOM_COLS));
    for (int32_t i = 0; i < RANDOM_NODES; i++) {
        const int32_t block = i % 6 < 3 ? LATHE_BLOCK_ATTENTION : LATHE_BLOCK_MLP;
        const int32_t near = n < 4 ? n : 4;
        lathe_graph_set_layer(f->g, i / 6, block);
        const lathe_val a = values[n - 1 - random_below(&r, near)];
        const lathe_val b = values[n - 1 - random_below(&r, n)];
        values[n++] = random_op(f, &r, a, b, inplace);
    }
    lathe_graph_set_layer(f->g, -1, LATHE_BLOCK_NONE);
    lathe_val y = values[n - 1];
    for (int32_t i = 0; i < 3; i++)
        y = fixture_binary(f, LATHE_OP_ADD, y, values[random_below(&r, n)]);
    return fixture_loss(f, y);
}

#endif

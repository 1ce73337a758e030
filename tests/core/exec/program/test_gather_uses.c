/* Gathers of divided weights in the programs of a run: what a node reads is in the window, whole,
 * and the window does not grow with the layers. */
#include "exec/program/gather_uses.h"
#include "exec/store/gathered.h"
#include "run/open/opening.h"
#include "run/plan/trial.h"
#include "support/small_run.h"

enum { N_RANKS = 4, UNIT = 64 };

static char dir[] = "/tmp/lathe_gather_uses_XXXXXX";

static void begin(void)
{
    make_folder(dir, 20000);
}

static void end(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(gather_uses, .init = begin, .fini = end);

/* Plans a training as rank 0 of four that divide the parameters. more: "key=value", ends with NULL
 */
static lathe_run *plan(int layers, const char *const *more)
{
    lathe_edits divided = {.n = 0};
    settings s = {.n = 0};
    lathe_run *out = NULL;
    set_llama(&s, layers, 64, 4, 2, 128);
    set_data(&s, dir);
    set(&s, "data.seq_len=32");
    set(&s, "data.validation_split=0.1");
    set(&s, "parallel.bucket_mb=0.05"); /* about a third of a layer in fp32 */
    set_all(&s, more);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    lathe_edits_text(&divided, LATHE_BY_TRIAL, "parallel.shard", "parameters");
    OK(lathe_run_open_as_rank(run, N_RANKS, &divided, &out));
    lathe_edits_fini(&divided);
    lathe_run_close(run);
    return out;
}

/* The window while a program runs: which gather each 64 bytes hold, and whether it is there. */
typedef struct window {
    const lathe_gather_uses *u;
    const lathe_store *store;
    int32_t *holds; /* [bytes / UNIT] gather + 1 */
    int32_t *state; /* [gathers] 0: not here, 1: under way, 2: here */
    int32_t n_reads, n_gathers;
} window;

static void fill(window *w, int32_t gather, int32_t state)
{
    const int64_t at = w->u->at[gather] / UNIT, n = w->store->gathers->list[gather].bytes / UNIT;
    cr_assert_geq(w->u->at[gather], 0);
    cr_assert_leq(UNIT * (at + n), w->u->bytes);
    for (int64_t i = at; i < at + n; i++) {
        const int32_t old = w->holds[i] - 1;
        cr_expect(old < 0 || old == gather || w->state[old] != 1,
                  "gather %d is written over while it is under way", old);
        if (old >= 0 && old != gather)
            w->state[old] = 0;
        w->holds[i] = gather + 1;
    }
    w->state[gather] = state;
    w->n_gathers++;
}

static void happen(window *w, const lathe_gather_event *e)
{
    if (e->what == LATHE_GATHER_WAIT) {
        cr_expect_eq(w->state[e->gather], 1, "gather %d is waited for, and was not started",
                     e->gather);
        w->state[e->gather] = 2;
    } else {
        fill(w, e->gather, e->what == LATHE_GATHER_START ? 1 : 2);
    }
}

/* Walks a program as the executor does. */
static void walk(window *w, const lathe_graph *g, int32_t border)
{
    int32_t next = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (; next < w->u->n_events && w->u->events[next].node == i; next++)
            happen(w, &w->u->events[next]);
        for (int32_t k = 0; k < g->nodes[i].n_in; k++) {
            const lathe_val v = g->nodes[i].in[k];
            const lathe_ir_value *root = v < 0 ? NULL : &g->values[lathe_graph_root(g, v)];
            if (!root || (root->kind != LATHE_VALUE_PARAM && root->kind != LATHE_VALUE_PLANE))
                continue;
            const int32_t tensor = root->kind == LATHE_VALUE_PLANE ? 1 + root->plane : 0;
            const int32_t gather = w->store->rows[root->param].gathered[tensor].gather;
            cr_expect(gather < 0 || w->state[gather] == 2, "node %d reads gather %d", i, gather);
            w->n_reads += gather >= 0;
        }
        if (i + 1 == border || i + 1 == g->n_nodes)
            for (int32_t k = 0; k < w->store->gathers->n; k++)
                cr_expect_neq(w->state[k], 1, "gather %d is under way after node %d", k, i);
    }
    cr_expect_eq(next, w->u->n_events);
}

/* Returns the number of gathers of a program. */
static int32_t check(const lathe_run *run, const lathe_program *p, int32_t border)
{
    lathe_gather_uses u;
    OK(lathe_gather_uses_init(&u, &run->store, lathe_exec_graph(p->exec), border));
    window w = {.u = &u, .store = &run->store};
    w.holds = calloc((size_t)(u.bytes / UNIT) + 1, sizeof *w.holds);
    w.state = calloc((size_t)run->store.gathers->n + 1, sizeof *w.state);
    cr_assert(w.holds && w.state);
    walk(&w, lathe_exec_graph(p->exec), border);
    cr_expect_geq(w.n_reads, run->store.gathers->n);
    cr_expect_leq(u.bytes, run->store.gathered_bytes);
    free(w.holds);
    free(w.state);
    lathe_gather_uses_fini(&u);
    return w.n_gathers;
}

/* Each gather once in the forward and once in the backward, except the embedding, which no backward
 * reads, and the head, whose backward is part of the loss. Tied weights are both. */
Test(gather_uses, hold_what_each_node_reads)
{
    static const char *const cases[][3] = {{NULL},
                                           {"train.recompute=layer", "train.precision=bf16", NULL},
                                           {"model.tie_word_embeddings=true", NULL},
                                           {"adapter.name=lora", NULL},
                                           {"adapter.name=qlora", "quant.name=nf4", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lathe_run *run = plan(5, cases[i]);
        const lathe_program *train = &run->programs.train, *eval = &run->programs.eval;
        const int32_t n = check(run, train, train->forward_end);
        cr_expect(i > 1 || n == 2 * run->store.gathers->n - 2, "case %zu: %d gathers of %d buckets",
                  i, n, run->store.gathers->n);
        check(run, eval, lathe_exec_graph(eval->exec)->n_nodes);
        lathe_run_close(run);
    }
}

/* Two layers at a time are gathered, whatever the number of layers, and 1/4 of all is held. */
Test(gather_uses, do_not_grow_with_the_layers)
{
    static const char *const none[] = {NULL};
    lathe_run *few = plan(4, none), *many = plan(16, none);
    const int64_t layer = 4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128);
    cr_expect_leq(many->store.gathered_bytes, few->store.gathered_bytes + layer / 3);
    cr_expect_leq(many->store.gathered_bytes, 2 * layer);
    const int64_t grown = many->store.master_bytes - few->store.master_bytes;
    cr_expect_float_eq((double)grown, 12.0 * (double)layer / N_RANKS, 0.05 * (double)grown);
    lathe_run_close(few);
    lathe_run_close(many);
}

/* Compares fused ops with separate ops: which devices offer them, and that all bits are equal. */
#ifndef LATHE_TEST_FUSE_CASE_H
#define LATHE_TEST_FUSE_CASE_H

#include "exec/program/node_kernel.h"
#include "support/graph_fixture.h"

__attribute__((unused)) static int count_op(const lathe_graph *g, int32_t op)
{
    int n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == op;
    return n;
}

__attribute__((unused)) static lathe_status device_offers(void *arg, const lathe_graph *g,
                                                          const lathe_ir_node *n, int32_t *out)
{
    const fixture *f = arg;
    lathe_kernel *kernel = NULL;
    int64_t scratch = 0;
    *out = lathe_node_kernel(&f->m, g, n, &kernel, &scratch) == LATHE_OK;
    if (*out)
        f->m.dev->kernel_destroy(f->device.self, kernel);
    return LATHE_OK;
}

__attribute__((unused)) static lathe_status offers_all(void *arg, const lathe_graph *g,
                                                       const lathe_ir_node *n, int32_t *out)
{
    (void)arg, (void)g, (void)n;
    *out = 1;
    return LATHE_OK;
}

__attribute__((unused)) static lathe_status offers_none(void *arg, const lathe_graph *g,
                                                        const lathe_ir_node *n, int32_t *out)
{
    (void)arg, (void)g, (void)n;
    *out = 0;
    return LATHE_OK;
}

__attribute__((unused)) static lathe_status
offers_without_memory(void *arg, const lathe_graph *g, const lathe_ir_node *n, int32_t *out)
{
    (void)arg, (void)g, (void)n, (void)out;
    return LATHE_E_NOMEM;
}

/* Not on a real GPU, which may use different algorithms for the rows of a product and for parts of
 * them. */
__attribute__((unused)) static int has_one_algorithm(const fixture *f)
{
    return strcmp(f->device.component->plugin->name, "cuda") != 0 ||
           strstr(f->device.component->path, "/tests/emulated/") != NULL;
}

/* Allowed difference: roundings of the compute dtype, relative to the largest; 0 if the bits must
 * agree. */
__attribute__((unused)) static double allowed(const fixture *f, double largest)
{
    const int32_t dtype = f->params.compute_dtype;
    const double unit = dtype == LATHE_BF16 ? 0x1p-8 : dtype == LATHE_F16 ? 0x1p-11 : 0x1p-20;
    return has_one_algorithm(f) ? 0.0 : 8.0 * unit * largest;
}

__attribute__((unused)) static void expect_same_bits(fixture *a, fixture *b, const char *what)
{
    const double loss_a = fixture_run(a, 0), loss_b = fixture_run(b, 0);
    cr_expect(fabs(loss_a - loss_b) <= allowed(a, fabs(loss_a)), "%s: losses %.9g and %.9g", what,
              loss_a, loss_b);
    cr_assert_eq(a->params.n, b->params.n);
    for (int32_t p = 0; p < a->params.n; p++) {
        const int64_t n = lathe_desc_count(&a->params.rows[p]->desc);
        float *x = fixture_gradient(a, p), *y = fixture_gradient(b, p);
        double largest = 0.0;
        for (int64_t i = 0; i < n; i++)
            largest = fmax(largest, fabs((double)x[i]));
        for (int64_t i = 0; i < n; i++)
            cr_assert(fabs((double)x[i] - (double)y[i]) <= allowed(a, largest),
                      "%s: gradient of %s: %.9g and %.9g", what, a->params.rows[p]->name,
                      (double)x[i], (double)y[i]);
        cr_expect_gt(largest, 0.0, "%s: no gradient of %s", what, a->params.rows[p]->name);
        free(x);
        free(y);
    }
}

#endif

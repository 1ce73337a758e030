/* Measures the peak rate of matrix products at the start of a run, in the dtypes of the run and
 * with its casts to fp8: the best of square products and of the run's own largest shapes. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/product_time.h"
#include "run/plan/fit.h"
#include "train/train.h"

/* Measures products [2n,n] x [n,n]. A product must take long compared with a launch and a wait, so
 * n doubles until one takes LONG_ENOUGH: at n = 1024 on two cores, at 8192 on a large GPU. */
enum { FIRST_N = 128, LAST_N = 8192, MAX_SHAPES = 3 };
#define LONG_ENOUGH 3e-3 /* s */
#define TOO_LONG 0.2     /* s: a product of the run that takes longer says nothing more */

/* Bounds on the number of measurements that lathe_rate_measure makes. */
enum { MIN_MEASUREMENTS = 3, MAX_MEASUREMENTS = 8 };

typedef lathe_product_shape shape;

static double shape_flops(const shape *s)
{
    return 2.0 * (double)s->m * (double)s->n * (double)s->k;
}

static lathe_status measure(lathe_run *run, const shape *s, int64_t room, double *out_best)
{
    return lathe_product_time(&run->machine, run->params.compute_dtype, run->set.fp8, s, room,
                              out_best);
}

/* Lists the run's largest products, of different shapes; returns their number. */
static int32_t own_shapes(const lathe_program *p, shape list[MAX_SHAPES])
{
    const lathe_graph *g = lathe_exec_graph(p->exec);
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *node = &g->nodes[i];
        if (node->op != LATHE_OP_LINEAR)
            continue;
        const lathe_desc *x = &g->values[node->in[0]].desc, *w = &g->values[node->in[1]].desc;
        const shape s = {lathe_desc_count(x) / w->dims[1], w->dims[0], w->dims[1]};
        int32_t at = 0, is_known = 0;
        for (int32_t k = 0; k < n; k++) {
            is_known |= memcmp(&list[k], &s, sizeof s) == 0;
            at += shape_flops(&list[k]) >= shape_flops(&s);
        }
        if (is_known || at == MAX_SHAPES)
            continue;
        n += n < MAX_SHAPES;
        memmove(&list[at + 1], &list[at], (size_t)(n - at - 1) * sizeof s);
        list[at] = s;
    }
    return n;
}

lathe_status lathe_peak_flops(lathe_run *run, double *out)
{
    shape own[MAX_SHAPES];
    lathe_fit fit;
    lathe_fit_check(run, &fit);
    const int64_t room = lathe__run_only_plans(run) ? fit.have : fit.have - fit.need;
    *out = 0.0;
    for (int64_t n = FIRST_N; n <= LAST_N; n *= 2) {
        const shape square = {2 * n, n, n};
        double best = 0.0;
        LATHE_TRY(measure(run, &square, room, &best));
        if (best <= 0.0)
            break;
        *out = fmax(*out, shape_flops(&square) / best);
        if (best >= LONG_ENOUGH)
            break;
    }
    const int32_t n_own = own_shapes(&run->programs.train, own);
    for (int32_t i = 0; i < n_own; i++) {
        double best = 0.0;
        if (shape_flops(&own[i]) > *out * TOO_LONG)
            continue;
        LATHE_TRY(measure(run, &own[i], room, &best));
        if (best > 0.0)
            *out = fmax(*out, shape_flops(&own[i]) / best);
    }
    return LATHE_OK;
}

lathe_status lathe_rate_measure(lathe_status (*once)(void *arg, double *out), void *arg,
                                lathe_rate_range *out)
{
    int32_t n_since = 0; /* measurements since the last one that was clearly higher, with it */
    *out = (lathe_rate_range){0};
    while (out->n < MAX_MEASUREMENTS && n_since < MIN_MEASUREMENTS) {
        double rate = 0.0;
        LATHE_TRY(once(arg, &rate));
        n_since = rate > 1.05 * out->highest ? 1 : n_since + 1;
        out->lowest = out->n == 0 ? rate : fmin(out->lowest, rate);
        out->highest = fmax(out->highest, rate);
        out->n++;
    }
    return LATHE_OK;
}

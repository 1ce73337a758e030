/* Checks of optimizers' images, on a device with memory of its own. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/harness/device_side.h"
#include "check/kinds/checks.h"
#include "check/kinds/optimizer_case.h"

static lathe_status launch_nothing(const lathe__subject *s, const char *kernel)
{
    const lathe_optimizer_v1 *table = s->table;
    const lathe_machine *m = &s->device->machine;
    const lathe_elementwise_args args = {0};
    return m->dev->launch(m->device->self, m->stream, table->cuda_image, kernel, 0,
                          LATHE_ELEMENTWISE_THREADS, &args, (int64_t)sizeof args);
}

lathe_status lathe__image_loads(lathe__subject *s)
{
    lathe__optimizer_case c;
    LATHE_TRY(lathe__optimizer_case_init(&c, s)); /* this loads the image */
    lathe_instance_fini(&c.instance);
    if ((LATHE_HAS(c.table, average) || LATHE_HAS(c.table, estimate_every)) &&
        !LATHE_HAS(c.table, queue))
        return lathe_error(LATHE_E_PLUGIN, "estimate() or average() without queue()");
    if (launch_nothing(s, "no_such_kernel") != LATHE_E_NOT_FOUND)
        return lathe_error(LATHE_E_PLUGIN, "an unknown kernel is not LATHE_E_NOT_FOUND");
    return LATHE_OK;
}

/* Takes three steps, each followed by the estimate, and the average at the end, if the optimizer
 * has these. */
static lathe_status all_of_it(lathe__optimizer_case *c)
{
    for (int i = 0; i < 3; i++) {
        LATHE_TRY(lathe__optimizer_case_step(c));
        if (LATHE_HAS(c->table, estimate))
            LATHE_TRY(lathe__optimizer_case_run(c, LATHE_QUEUE_ESTIMATE));
    }
    return LATHE_HAS(c->table, average) ? lathe__optimizer_case_run(c, LATHE_QUEUE_AVERAGE)
                                        : LATHE_OK;
}

/* Runs both cases; `what` says how the second differs. */
static lathe_status compare_two(lathe__optimizer_case *a, lathe__optimizer_case *b,
                                const char *what)
{
    lathe_status status = all_of_it(a);
    if (status == LATHE_OK)
        status = all_of_it(b);
    if (status == LATHE_OK)
        status = lathe__optimizer_case_compare(a, b, what);
    lathe_instance_fini(&a->instance);
    lathe_instance_fini(&b->instance);
    return status;
}

static lathe_status two_cases(lathe__subject *s, lathe__optimizer_case *a, lathe__optimizer_case *b)
{
    LATHE_TRY(lathe__optimizer_case_init(a, s));
    const lathe_status status = lathe__optimizer_case_init(b, s);
    if (status != LATHE_OK)
        lathe_instance_fini(&a->instance);
    return status;
}

lathe_status lathe__same_bits_as_the_host(lathe__subject *s)
{
    lathe__optimizer_case a, b;
    LATHE_TRY(two_cases(s, &a, &b));
    a.on_device = 0;
    lathe__note(s, "%s%s%s", LATHE_HAS(a.table, queue) ? "queue()" : "one launch",
                LATHE_HAS(a.table, estimate) ? ", estimate" : "",
                LATHE_HAS(a.table, average) ? ", average" : "");
    return compare_two(&a, &b, "the image, beside step() on the host");
}

lathe_status lathe__empty_among_others(lathe__subject *s)
{
    lathe__optimizer_case a, b;
    LATHE_TRY(two_cases(s, &a, &b));
    a.on_device = 0;
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        if (i % 2 == 0) /* the first and every other tensor */
            a.tensors[i].n = b.tensors[i].n = 0;
        if (i % 3 == 0)
            a.tensors[i].shadow = b.tensors[i].shadow = NULL;
    }
    return compare_two(&a, &b, "with tensors of no elements");
}

lathe_status lathe__any_grid_will_do(lathe__subject *s)
{
    lathe__optimizer_case a, b;
    if (LATHE_HAS(((const lathe_optimizer_v1 *)s->table), queue))
        return lathe__skip(s, "queue() chooses the grids");
    LATHE_TRY(two_cases(s, &a, &b));
    b.device.max_blocks = 2;
    return compare_two(&a, &b, "with a grid of two blocks");
}

/* Sums of positive terms in any order: each addition has an error of at most 2^-53 of the sum. */
static lathe_status check_sum(double got, double want, int64_t n, const char *of, const char *name)
{
    if (fabs(got - want) <= (double)(2 * n + 8) * 0x1p-53 * want)
        return LATHE_OK;
    return lathe_error(LATHE_E_NUMERIC, "the sums of squares of %s's %s give %.17g, expected %.17g",
                       name, of, got, want);
}

lathe_status lathe__tells_its_update(lathe__subject *s)
{
    lathe__optimizer_case c;
    float *before[LATHE__N_TENSORS];
    LATHE_TRY(lathe__optimizer_case_init(&c, s));
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        before[i] = lathe__memory(s, c.tensors[i].n * 4);
        memcpy(before[i], c.tensors[i].param, (size_t)c.tensors[i].n * 4);
    }
    lathe_status status = lathe__optimizer_case_step(&c);
    for (int i = 0, at = 0; i < LATHE__N_TENSORS && status == LATHE_OK; i++) {
        const lathe_optimizer_tensor *x = &c.tensors[i];
        double change = 0, size = 0, got[2] = {0, 0};
        if (c.partition[i] == LATHE_PARTITION_MATRIX)
            continue;
        for (int64_t e = 0; e < x->n; e++) {
            const double now = (double)x->param[e], d = now - (double)before[i][e];
            change += d * d;
            size += now * now;
        }
        for (int64_t k = c.device.first_chunk[at]; k < c.device.first_chunk[at + 1]; k++)
            for (int j = 0; j < 2; j++)
                got[j] += c.device.sums[2 * k + j];
        at++;
        status = check_sum(got[0], change, x->n, "update", lathe__optimizer_info(i).name);
        if (status == LATHE_OK)
            status = check_sum(got[1], size, x->n, "elements", lathe__optimizer_info(i).name);
    }
    lathe_instance_fini(&c.instance);
    return status;
}

lathe_status lathe__leaves_inputs_alone(lathe__subject *s)
{
    lathe__optimizer_case c;
    LATHE_TRY(lathe__optimizer_case_init(&c, s));
    lathe_status status = all_of_it(&c);
    if (status == LATHE_OK && c.device.was_input != NULL)
        status =
            lathe_error(LATHE_E_CORRUPT, "wrote to %s, which it is to read", c.device.was_input);
    lathe_instance_fini(&c.instance);
    return status;
}

/* Lets each call of a step fail in turn; the step must return the error. */
lathe_status lathe__failures_are_passed_on(lathe__subject *s)
{
    enum { MAX = 200 };
    lathe__optimizer_case c;
    LATHE_TRY(lathe__optimizer_case_init(&c, s));
    if (!LATHE_HAS(c.table, queue)) {
        lathe_instance_fini(&c.instance);
        return lathe__skip(s, "no queue()");
    }
    lathe_status status = lathe__optimizer_case_step(&c);
    const int32_t n = c.device.n_calls < MAX ? c.device.n_calls : MAX;
    for (int32_t k = 1; k <= n && status == LATHE_OK; k++) {
        c.step = 0; /* the first step again, which may do more than the others */
        c.device.n_calls = 0;
        c.device.fails_at = k;
        const lathe_status failed = lathe__optimizer_case_step(&c);
        if (failed != LATHE_E_DEVICE)
            status = lathe_error(LATHE_E_PLUGIN, "call %d of %d failed, and queue() gave %d", k, n,
                                 failed);
        lathe_error_clear();
    }
    lathe__note(s, "%d calls in a step", n);
    lathe_instance_fini(&c.instance);
    return status;
}

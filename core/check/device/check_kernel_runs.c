/* Checks that two kernels do not influence each other, and that one kernel runs many times. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/parallel.h"
#include "check/device/device_checks.h"
#include "check/device/device_session.h"
#include "lathe/op.h"

enum { N = 257 };

/* A kernel y = alpha * x. */
static lathe_status scale_kernel(lathe__session *d, lathe_op_attrs *attrs, double alpha,
                                 lathe_kernel **out)
{
    const lathe_desc desc = lathe_desc_1d(LATHE_F32, N);
    *attrs = (lathe_op_attrs){.alpha = alpha};
    const lathe_kernel_problem problem = {.size = sizeof problem,
                                          .op = LATHE_OP_SCALE,
                                          .attrs = attrs,
                                          .in = &desc,
                                          .out = &desc,
                                          .n_in = 1,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = LATHE_FLAG_DETERMINISTIC,
                                          .n_threads = lathe_parallel_threads()};
    int64_t scratch = 0;
    *out = NULL;
    return d->table->kernel_create(d->instance.self, &problem, out, &scratch);
}

static lathe_status scale_run(lathe__session *d, lathe_kernel *kernel, const void *x, void *y)
{
    const lathe_kernel_args args = {.size = sizeof args, .in = &x, .out = &y};
    return d->table->kernel_run(d->instance.self, kernel, &args);
}

static lathe_status expect_scaled(lathe__session *d, const float *x, const void *y, double alpha,
                                  const char *when)
{
    float got[N];
    LATHE_TRY(lathe__session_get(d, y, (int64_t)sizeof got, got));
    for (int i = 0; i < N; i++)
        if (!(fabs((double)got[i] - alpha * (double)x[i]) <= 1e-6))
            return lathe_error(LATHE_E_NUMERIC, "%s: scale by %g gives %g for %g", when, alpha,
                               (double)got[i], (double)x[i]);
    return LATHE_OK;
}

/* Runs `body` with x and y of N floats on the device. */
static lathe_status with_vectors(lathe__subject *s,
                                 lathe_status (*body)(lathe__session *d, const float *x,
                                                      const void *on_device, void *y))
{
    lathe__session d;
    void *x_on_device = NULL, *y = NULL;
    LATHE_TRY(lathe__session_init(&d, s));
    const float *x = lathe__random(s, N, 5, 1.0);
    lathe_status status = lathe__session_put(&d, x, N * 4, &x_on_device);
    if (status == LATHE_OK)
        status = lathe__session_put(&d, NULL, N * 4, &y);
    if (status == LATHE_OK)
        status = body(&d, x, x_on_device, y);
    d.table->free(d.instance.self, x_on_device);
    d.table->free(d.instance.self, y);
    lathe_instance_fini(&d.instance);
    return status;
}

static lathe_status two_kernels(lathe__session *d, const float *x, const void *x_on_device, void *y)
{
    lathe_op_attrs attrs[2];
    lathe_kernel *kernels[2] = {NULL, NULL};
    lathe_status status = scale_kernel(d, &attrs[0], 2.0, &kernels[0]);
    if (status == LATHE_E_UNSUPPORTED)
        return lathe__skip(d->s, "the device has no scale");
    if (status == LATHE_OK)
        status = scale_kernel(d, &attrs[1], -3.0, &kernels[1]);
    attrs[0].alpha = attrs[1].alpha = 77.0; /* the kernels must have copied attrs */
    for (int i = 0; i < 4 && status == LATHE_OK; i++) {
        status = scale_run(d, kernels[i % 2], x_on_device, y);
        if (status == LATHE_OK)
            status = expect_scaled(d, x, y, i % 2 ? -3.0 : 2.0, "two kernels in turn");
    }
    for (int i = 0; i < 2; i++)
        if (kernels[i] != NULL)
            d->table->kernel_destroy(d->instance.self, kernels[i]);
    return status;
}

lathe_status lathe__kernels_are_apart(lathe__subject *s)
{
    return with_vectors(s, two_kernels);
}

static lathe_status thousand_runs(lathe__session *d, const float *x, const void *x_on_device,
                                  void *y)
{
    lathe_op_attrs attrs;
    lathe_kernel *kernel;
    lathe_status status = scale_kernel(d, &attrs, 0.5, &kernel);
    if (status == LATHE_E_UNSUPPORTED)
        return lathe__skip(d->s, "the device has no scale");
    LATHE_TRY(status);
    for (int i = 1; i <= 1000 && status == LATHE_OK; i++) {
        char when[32];
        status = scale_run(d, kernel, x_on_device, y);
        (void)snprintf(when, sizeof when, "run %d", i);
        if (status == LATHE_OK)
            status = expect_scaled(d, x, y, 0.5, when);
    }
    d->table->kernel_destroy(d->instance.self, kernel);
    return status;
}

lathe_status lathe__kernel_runs_a_thousand_times(lathe__subject *s)
{
    return with_vectors(s, thousand_runs);
}

/* Helpers for tests of ops with a decaying state. */
#ifndef SCAN_FIXTURE_H
#define SCAN_FIXTURE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/op_plugin.h"
#include "plugin_fixture.h"

static const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};

/** Runs a kernel on one worker. */
static inline void run(const lathe_op_kernel *kernel, void *self, lathe_op_call call,
                       const void *const *in, void *const *out)
{
    const lathe_device_info cpu = {.size = sizeof cpu, .n_workers = 1, .host_memory = 1};
    call.size = sizeof call;
    call.may_overwrite = ~0u;
    call.n_threads = 16;
    call.device = &cpu;
    void *const scratch = aligned_alloc(64, (size_t)(kernel->scratch(self, &call) + 63) / 64 * 64);
    const lathe_kernel_args args = {.size = sizeof args, .in = in, .out = out, .scratch = scratch};
    cr_assert_eq(kernel->run(self, &call, &args), LATHE_OK, "%s", lathe_test_message);
    free(scratch);
}

/** Whether it is a kernel for an instruction set of this machine. */
static inline int takes(const lathe_op_kernel *kernel, void *self, const lathe_op_call *call)
{
    char why[128];
    return kernel->run != NULL && kernel->score(self, call, why, sizeof why) > LATHE_SCORE_NO;
}

/** The largest difference, relative to the largest of the n numbers wanted. */
static inline double difference(const float *got, const float *want, int64_t n)
{
    double worst = 0.0, largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)got[i] - (double)want[i]);
        worst = d > worst || isnan(d) ? d : worst;
        largest = fmax(largest, fabs((double)want[i]));
    }
    return worst / largest;
}

#endif

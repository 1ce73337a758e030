/* Small problems on which the checks of op plugins run kernels: a test of the plugin's table in one
 * compute dtype, forward or backward, with the exact result.
 *
 * In host memory every tensor lies in pages of its own: inaccessible pages on both sides, and up to
 * them bytes 0xff, which are NaN in every dtype. A kernel that reads too far crashes or computes
 * NaN, and one that writes too far changes them.
 */
#ifndef LATHE_CHECK_OP_TRIAL_H
#define LATHE_CHECK_OP_TRIAL_H

#include "check/device/op_cases.h"
#include "check/harness/device_side.h"
#include "graph/ir/plugin_op.h"

typedef struct lathe__op_trial {
    lathe__subject *s;
    const lathe_plugin_op *op;
    const lathe_op_test *test;
    void *self;
    int32_t is_backward, dtype;
    int32_t uses_c;
    int32_t batch;      /* rows of the batch; 0: the test has none */
    int32_t has_states; /* 1: inputs n_in and n_in + 1 of the op are slots and states, its output
                         * n_out are the states in the same memory */
    lathe_op_case c;
    lathe_op_problem p;
    double *x[LATHE_OP_MAX_IN];     /* rounded to their dtypes; NULL: absent */
    double *want[LATHE_OP_MAX_OUT]; /* NULL: absent */
    double largest[LATHE_OP_MAX_OUT];
    int32_t batched_in[LATHE_OP_MAX_IN], batched_out[LATHE_OP_MAX_OUT];
} lathe__op_trial;

/** How a kernel is run. All zeros is plain. */
typedef struct lathe__op_mode {
    uint32_t accumulate; /* bit k: adds to output k */
    int32_t in_place;    /* 1 + the input whose memory output 0 takes; 0: none */
    int32_t is_measured; /* 1: the run must take no heap blocks */
    /* [n_out] of the caller: get the bytes of the outputs; NULL: not kept */
    unsigned char **kept;
} lathe__op_mode;

/** Makes the problem of a test: shapes by the plugin's shape(), which must be those of the test.
 *  Memory is the check's. */
lathe_status lathe__op_trial_init(lathe__subject *s, const lathe_plugin_op *op, void *self,
                                  const lathe_op_test *test, int32_t dtype, lathe__op_trial *out);
/** Turns it into the problem of the op's own backward. silent: bit k: no gradient flows through
 *  output k. unwanted: bit i: the gradient of input i is not wanted. */
lathe_status lathe__op_trial_turn(lathe__op_trial *t, uint32_t silent, uint32_t unwanted);
/** Computes the exact result of t->x. */
void lathe__op_trial_exact(lathe__op_trial *t);
/** The problem of row r of the batch alone. */
lathe_status lathe__op_trial_row(const lathe__op_trial *t, int64_t r, lathe__op_trial *out);

/** Number of kernels, and kernel i. */
int32_t lathe__op_trial_kernels(const lathe__op_trial *t);
const lathe_op_kernel *lathe__op_trial_kernel(const lathe__op_trial *t, int32_t i);
/** Score of kernel i; 0 also if it is not for the subject's device. LATHE_E_PLUGIN: an answer that
 *  the header forbids. */
lathe_status lathe__op_trial_score(const lathe__op_trial *t, int32_t i, int32_t *out);
/** The kernel that a run would choose; -1: none. */
lathe_status lathe__op_trial_best(const lathe__op_trial *t, int32_t *out);

/** Runs kernel i once in fresh memory; checks its result against the exact one, its inputs and the
 *  bytes around all tensors. worst: the largest error so far, as a share of its bound. */
lathe_status lathe__op_trial_run(const lathe__op_trial *t, int32_t i, const lathe__op_mode *mode,
                                 double *worst);

#endif

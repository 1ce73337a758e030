/* Shared by the ops with a decaying state: all but their attributes, their inputs' names
 * and their tests. An op has the inputs SCAN_Q to SCAN_DOC_START, or to SCAN_SKIP, in this order.
 */
#ifndef SCAN_OP_H
#define SCAN_OP_H

#include "lathe/kit/op_kit.h"
#include "scan.h"

/** The instance of such an op. */
typedef struct scan_use {
    const lathe_host *host; /* must be first, for lathe_op_host */
    int64_t tokens, heads, key_heads;
    double scale;     /* on q; 0: 1/sqrt(size of a key) */
    int32_t corrects; /* 1: the delta rule */
    int32_t n_in;     /* inputs, without those of a state */
    const lathe_op_tensor *inputs;
    const char *forward, *backward, *sum; /* kernels of the image */
} scan_use;

/** [pure] Functions of lathe_op_v1, lathe_op_backward and lathe_op_state. */
lathe_status scan_shape(void *self, const lathe_desc *in, lathe_desc *out);
double scan_flops(void *self, const lathe_desc *in, const lathe_desc *out);
double scan_backward_flops(void *self, const lathe_desc *in, const lathe_desc *out);
void scan_exact(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                double *const *y);
void scan_backward_exact(void *self, const lathe_desc *in, const lathe_desc *out,
                         const double *const *x, double *const *y);
extern const lathe_op_state scan_state;

extern const lathe_op_kernel scan_kernels[], scan_backward_kernels[];
#ifdef __x86_64__
enum { SCAN_N_KERNELS = 4 };
#else
enum { SCAN_N_KERNELS = 2 };
#endif

#endif

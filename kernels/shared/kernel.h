/* A prepared kernel, and the entry of an op in a device's dispatch table: shared by all devices.
 *
 * Compiled into each device plugin. The core checks shapes and dtypes (lathe_host.check_kernel).
 */
#ifndef LATHE_KERNEL_H
#define LATHE_KERNEL_H

#include "lathe/device.h"
#include "lathe/host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KERNEL_TAKES_PLANES 0x80000000u

/** One row of a device's dispatch table. */
typedef struct kernel_op {
    /** Builds the op's state for a problem that host->check_kernel has accepted; *out_scratch is 0
     *  on entry. Reports errors through host->fail; `release` then gets the state that was set so
     *  far. NULL: the op needs neither state nor scratch. */
    lathe_status (*prepare)(lathe_kernel *k, int64_t *out_scratch);
    lathe_status (*run)(lathe_kernel *k, const lathe_kernel_args *a);
    void (*release)(lathe_kernel *k); /* NULL: no state */
    /* bit i: the kernel can add to output i; and KERNEL_TAKES_PLANES: weights may be of dtype
     * LATHE_PLANES */
    uint32_t accumulates;
} kernel_op;

struct lathe_kernel {
    const lathe_host *host;
    void *device; /* the plugin's instance */
    const kernel_op *op;
    int32_t op_id; /* LATHE_OP_* */
    int32_t n_in, n_out;
    uint32_t may_accumulate, may_overwrite;
    lathe_op_attrs attrs;
    lathe_desc in[LATHE_OP_MAX_IN];
    lathe_desc out[LATHE_OP_MAX_OUT];
    lathe_packed_weight weights[LATHE_OP_MAX_IN]; /* of inputs of dtype LATHE_PLANES */
    void *state;                                  /* the op's own, from host->alloc */
};

/** Finds the op's entry in `ops` [LATHE_N_OPS] (NULL: the device does not have that op) and
 *  prepares a kernel. `device` is the plugin's instance; `device_name` is for messages ("the CPU
 *  device"). Errors: LATHE_E_UNSUPPORTED, LATHE_E_ARG, LATHE_E_SHAPE, LATHE_E_DTYPE,
 *  LATHE_E_NOMEM. */
lathe_status kernel_create(const lathe_host *host, void *device, const char *device_name,
                           const kernel_op *const *ops, const lathe_kernel_problem *problem,
                           lathe_kernel **out, int64_t *out_scratch_bytes);
void kernel_destroy(lathe_kernel *kernel);
/** Runs the kernel. Refuses to add to an output for which the problem did not request
 *  accumulation. */
lathe_status kernel_run(lathe_kernel *kernel, const lathe_kernel_args *args);

/** The op's name, for messages. */
const char *kernel_op_name(const lathe_kernel *k);

static inline int kernel_has_in(const lathe_kernel *k, int32_t i)
{
    return i < k->n_in && k->in[i].dtype != LATHE_ABSENT;
}

static inline int kernel_has_out(const lathe_kernel *k, int32_t i)
{
    return i < k->n_out && k->out[i].dtype != LATHE_ABSENT;
}

static inline int kernel_computes(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_BF16 || dtype == LATHE_F16;
}

/** Records "<op>: <text>" with LATHE_E_SHAPE. */
lathe_status kernel_bad_shape(const lathe_kernel *k, const char *text);

#ifdef __cplusplus
}
#endif

#endif

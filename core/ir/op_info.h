/* What is true of each op whatever its shapes: name, arity, who runs it, what may be in place. */
#ifndef LATHE_IR_OP_INFO_H
#define LATHE_IR_OP_INFO_H

#include "lathe/op.h"

enum {
    LATHE_RUNS_DEVICE = 0,
    LATHE_RUNS_ATTENTION = 1,
    LATHE_RUNS_QUANT = 2,
    LATHE_RUNS_BESIDE = 3 /* the core: a copy on a stream beside the machine's, or a wait for one */
};

/* Ops behind those of op.h, which lathe_pass_offload alone makes (passes.h). w is where h comes back to.
 *
 *   leave   v -> h         h = v, h in the host's memory; v may be read meanwhile, not written
 *   left    h, v -> h'     from here on h is there, and v's memory free
 *   fetch   h' -> w        w = h; nobody may touch w
 *   arrive  w, h' -> w'    from here on w is there, and h's memory free
 */
enum {
    LATHE_OP_LEAVE = LATHE_N_OPS,
    LATHE_OP_LEFT,
    LATHE_OP_FETCH,
    LATHE_OP_ARRIVE,
    LATHE_N_CORE_OPS
};

typedef struct lathe_op_info {
    const char *name;
    int32_t n_in, n_out;
    int32_t runs_on;        /* LATHE_RUNS_* */
    int32_t accumulates;    /* its outputs may be added to */
    uint32_t inplace;       /* bit k: output 0 may take the memory of input k */
    int32_t inplace_always; /* output 0 is input 0 */
} lathe_op_info;

/** Facts about an op; NULL for an unknown number. */
const lathe_op_info *lathe_op_info_get(int32_t op);

/** Number of an op by its name, or -1. */
int32_t lathe_op_find(const char *name);

#endif

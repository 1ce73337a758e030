/* The instance of the CPU device, the sizes of its work, and the dispatch entries of its ops.
 *
 * Each op (or op family) has its own file, which defines a constant kernel_op; device/cpu_ops.c
 * finds it by its name.
 */
#ifndef LATHE_CPU_H
#define LATHE_CPU_H

#include "shared/kernel.h"

#if LATHE_CPU_ISA == 1
#define LATHE_CPU_ISA_NAME "avx2"
#elif LATHE_CPU_ISA == 2
#define LATHE_CPU_ISA_NAME "avx512"
#elif LATHE_CPU_ISA == 3
#define LATHE_CPU_ISA_NAME "avx512_bf16"
#else
#error "LATHE_CPU_ISA must be 1 (avx2), 2 (avx512) or 3 (avx512_bf16)"
#endif

typedef struct cpu_onednn cpu_onednn; /* engine and stream, see onednn.h */

typedef struct cpu_device {
    const lathe_host *host;
    cpu_onednn *onednn;
} cpu_device;

/** Elements in one chunk of work that streams through memory; a multiple of CPU_TILE. */
#define CPU_GRAIN 16384
/** Rows per chunk, so that a chunk has about CPU_GRAIN elements; depends only on the width. */
static inline int64_t cpu_row_grain(int64_t width)
{
    const int64_t rows = CPU_GRAIN / (width > 0 ? width : 1);
    return rows > 0 ? rows : 1;
}

static inline int64_t cpu_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/** The dispatch entry of an op: const kernel_op CPU_OP(ADD) = {..}, defined in the op's file. An op
 *  that this device does not have has no such constant. */
#define CPU_OP(name) cpu_op_##name
#define LATHE_X(name, text, n_in, n_out) extern const kernel_op CPU_OP(name);
LATHE_OP_TABLE(LATHE_X)
#undef LATHE_X

#endif

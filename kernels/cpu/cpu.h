/* What the files of the CPU device share: the device instance, its functions, the rows of its ops.
 *
 * One op (or op family) per file; each exports a constant kernel_op that cpu_ops.c lists.
 */
#ifndef LATHE_CPU_H
#define LATHE_CPU_H

#include "kernel.h"

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

/** Zeroed memory, 64-byte aligned; cpu_memory_free releases. */
lathe_status cpu_memory_alloc(void *self, int64_t bytes, int32_t memory, void **out);
void cpu_memory_free(void *self, void *memory);
lathe_status cpu_memory_copy(void *self, lathe_stream *stream, void *dst, const void *src,
                             int64_t bytes, int32_t direction);

/** Fitness of this build here; brand string of the processor (48 bytes and a zero). */
int32_t cpu_score(char *why, int64_t why_bytes);
void cpu_brand(char out[64]);

lathe_status cpu_kernel_create(void *self, const lathe_kernel_problem *problem, lathe_kernel **out,
                               int64_t *out_scratch_bytes);
void cpu_kernel_destroy(void *self, lathe_kernel *kernel);
lathe_status cpu_kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args);

/** Elements of one parallel chunk of streaming work; a multiple of CPU_TILE. */
#define CPU_GRAIN 16384
/** Rows per chunk so that a chunk is about CPU_GRAIN elements: depends on the width only. */
static inline int64_t cpu_row_grain(int64_t width)
{
    const int64_t rows = CPU_GRAIN / (width > 0 ? width : 1);
    return rows > 0 ? rows : 1;
}

static inline int64_t cpu_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* The rows of the dispatch table, each defined in its op's file. */
extern const kernel_op cpu_op_linear, cpu_op_linear_dx, cpu_op_linear_dw, cpu_op_matmul;
extern const kernel_op cpu_op_linear_gelu, cpu_op_linear_dx_gelu;
extern const kernel_op cpu_op_head_logprob, cpu_op_head_logprob_bwd, cpu_op_head_eval;
extern const kernel_op cpu_op_head_sample;
extern const kernel_op cpu_op_rmsnorm, cpu_op_rmsnorm_bwd, cpu_op_layernorm, cpu_op_layernorm_bwd;
extern const kernel_op cpu_op_add_rmsnorm, cpu_op_add_layernorm;
extern const kernel_op cpu_op_rope, cpu_op_swiglu, cpu_op_swiglu_bwd, cpu_op_gelu, cpu_op_gelu_bwd;
extern const kernel_op cpu_op_embed, cpu_op_embed_bwd, cpu_op_dropout, cpu_op_dropout_bwd;
extern const kernel_op cpu_op_add, cpu_op_sub, cpu_op_mul, cpu_op_scale, cpu_op_scale_by;
extern const kernel_op cpu_op_lincomb, cpu_op_cast, cpu_op_copy, cpu_op_sigmoid, cpu_op_logsigmoid;
extern const kernel_op cpu_op_sum, cpu_op_row_sum, cpu_op_broadcast, cpu_op_l2_normalize;
extern const kernel_op cpu_op_slice, cpu_op_slice_bwd, cpu_op_kv_append, cpu_op_transpose;
extern const kernel_op cpu_op_apply_update, cpu_op_sum_squares;
extern const kernel_op cpu_op_update_squares, cpu_op_clamp;

#endif

/* What the files of the CPU device share: the device instance, a prepared kernel, an op's row.
 *
 * One op (or op family) per file; each exports a constant cpu_op that kernel.c lists.
 */
#ifndef LATHE_CPU_H
#define LATHE_CPU_H

#include "lathe/device.h"
#include "lathe/host.h"

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

/** One row of the dispatch table. */
typedef struct cpu_op {
    /** Checks the problem, builds state; *out_scratch is 0 on entry. Errors through host->fail;
     *  whatever state it has set by then is given to release. */
    lathe_status (*prepare)(lathe_kernel *k, int64_t *out_scratch);
    lathe_status (*run)(lathe_kernel *k, const lathe_kernel_args *a);
    void (*release)(lathe_kernel *k); /* NULL: no state */
    uint32_t accumulates;             /* bit i: output i may be added to */
} cpu_op;

struct lathe_kernel {
    const lathe_host *host;
    cpu_device *device;
    const cpu_op *op;
    int32_t op_id; /* LATHE_OP_* */
    int32_t n_in, n_out;
    uint32_t may_accumulate, may_overwrite;
    lathe_op_attrs attrs;
    lathe_desc in[LATHE_OP_MAX_IN];
    lathe_desc out[LATHE_OP_MAX_OUT];
    void *state; /* of the op, from host->alloc */
};

/** Name of the op of `k`, for messages. */
const char *cpu_op_name(const lathe_kernel *k);

static inline int cpu_has_in(const lathe_kernel *k, int32_t i)
{
    return i < k->n_in && k->in[i].dtype != LATHE_ABSENT;
}

static inline int cpu_has_out(const lathe_kernel *k, int32_t i)
{
    return i < k->n_out && k->out[i].dtype != LATHE_ABSENT;
}

/** Input i is present with `count` elements of `dtype` (CPU_COMPUTE: f32, bf16 or f16). */
lathe_status cpu_check_in(const lathe_kernel *k, int32_t i, int32_t dtype, int64_t count);
lathe_status cpu_check_out(const lathe_kernel *k, int32_t i, int32_t dtype, int64_t count);
/** Records "<op>: <text>" with LATHE_E_SHAPE. */
lathe_status cpu_bad_shape(const lathe_kernel *k, const char *text);

#define CPU_COMPUTE (-1)

static inline int cpu_computes(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_BF16 || dtype == LATHE_F16;
}

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
extern const cpu_op cpu_op_linear, cpu_op_linear_dx, cpu_op_linear_dw, cpu_op_matmul;
extern const cpu_op cpu_op_head_logprob, cpu_op_head_logprob_bwd, cpu_op_head_eval;
extern const cpu_op cpu_op_head_sample;
extern const cpu_op cpu_op_rmsnorm, cpu_op_rmsnorm_bwd, cpu_op_layernorm, cpu_op_layernorm_bwd;
extern const cpu_op cpu_op_rope, cpu_op_swiglu, cpu_op_swiglu_bwd, cpu_op_gelu, cpu_op_gelu_bwd;
extern const cpu_op cpu_op_embed, cpu_op_embed_bwd, cpu_op_dropout, cpu_op_dropout_bwd;
extern const cpu_op cpu_op_add, cpu_op_sub, cpu_op_mul, cpu_op_scale, cpu_op_scale_by;
extern const cpu_op cpu_op_lincomb, cpu_op_cast, cpu_op_copy, cpu_op_sigmoid, cpu_op_logsigmoid;
extern const cpu_op cpu_op_sum, cpu_op_row_sum, cpu_op_broadcast, cpu_op_l2_normalize;
extern const cpu_op cpu_op_slice, cpu_op_slice_bwd, cpu_op_kv_append, cpu_op_transpose;
extern const cpu_op cpu_op_apply_update;

#endif

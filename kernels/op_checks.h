/* What each op asks of its problem: see op_checks.c. LATHE_E_SHAPE, LATHE_E_DTYPE, LATHE_E_UNSUPPORTED or
 * LATHE_E_ARG with the op and the tensor named. */
#ifndef LATHE_OP_CHECKS_H
#define LATHE_OP_CHECKS_H

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

lathe_status kernel_check_unary(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_binary(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_lincomb(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_scale_by(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_cast(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_copy(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_sum(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_row_sum(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_broadcast(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_l2_normalize(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_rmsnorm(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_add_rmsnorm(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_rmsnorm_bwd(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_layernorm(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_add_layernorm(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_layernorm_bwd(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_rope(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_swiglu(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_gelu(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_embed(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_embed_bwd(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_head(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_dropout(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_slice(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_slice_bwd(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_kv_append(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_transpose(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_apply_update(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_sum_squares(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_update_squares(lathe_kernel *k, int64_t *out_scratch);
lathe_status kernel_check_clamp(lathe_kernel *k, int64_t *out_scratch);

#ifdef __cplusplus
}
#endif

#endif

/* Functions of one element (element_loops.h).
 *
 *   EXP LOG ABS TANH  y = exp(x), log(x), |x|, tanh(x)
 *   ABS_BWD           dx = dy * sign(x), 0 where x is 0
 *   TANH_BWD          dx = dy * (1 - y^2), computed as (1 - y)(1 + y): precise where y is near 1
 */
#include <math.h>

#include "base/vecmath.h"
#include "ops/element_loops.h"

CPU_TILE_FN(tile_exp, cpu_exp(x[j]))
CPU_TILE_FN(tile_log, logf(x[j]))
CPU_TILE_FN(tile_abs, __builtin_fabsf(x[j]))
CPU_TILE_FN(tile_tanh, cpu_tanh(x[j]))
CPU_TILE_FN(tile_abs_bwd, y[j] > 0.0f ? x[j] : y[j] < 0.0f ? -x[j] : 0.0f)
CPU_TILE_FN(tile_tanh_bwd, x[j] * ((1.0f - y[j]) * (1.0f + y[j])))

CPU_TILE_OP(EXP, tile_exp, 0)
CPU_TILE_OP(LOG, tile_log, 0)
CPU_TILE_OP(ABS, tile_abs, 0)
CPU_TILE_OP(TANH, tile_tanh, 0)
CPU_TILE_OP(ABS_BWD, tile_abs_bwd, 1)
CPU_TILE_OP(TANH_BWD, tile_tanh_bwd, 1)

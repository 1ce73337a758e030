/* DEQUANT: a quantized weight, decoded by the plugin of its format. The graph makes its nodes
 * itself. */
#include "ir/ops/rules.h"

LATHE_OP_DEFINE(DEQUANT, .runs_on = LATHE_RUNS_QUANT, .recomputed = 1);

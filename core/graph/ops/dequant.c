/* DEQUANT: decodes a quantized weight with the plugin of its format. Only the graph creates such
 * nodes. */
#include "graph/ops/rules.h"

LATHE_OP_DEFINE(DEQUANT, .runs_on = LATHE_RUNS_QUANT, .recomputed = 1);

/* The ops that lathe_pass_offload makes: COPY_OUT, WAIT_OUT, COPY_IN, WAIT_IN (op_info.h). */
#include "graph/ops/rules.h"

LATHE_OP_DEFINE(COPY_OUT, .runs_on = LATHE_RUNS_BESIDE);
LATHE_OP_DEFINE(WAIT_OUT, .runs_on = LATHE_RUNS_BESIDE, .inplace = 1, .inplace_always = 1);
LATHE_OP_DEFINE(COPY_IN, .runs_on = LATHE_RUNS_BESIDE);
LATHE_OP_DEFINE(WAIT_IN, .runs_on = LATHE_RUNS_BESIDE, .inplace = 1, .inplace_always = 1);

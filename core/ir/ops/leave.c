/* The ops that lathe_pass_offload makes: LEAVE, LEFT, FETCH, ARRIVE (op_info.h). */
#include "ir/ops/rules.h"

LATHE_OP_DEFINE(LEAVE, .runs_on = LATHE_RUNS_BESIDE);
LATHE_OP_DEFINE(LEFT, .runs_on = LATHE_RUNS_BESIDE, .inplace = 1, .inplace_always = 1);
LATHE_OP_DEFINE(FETCH, .runs_on = LATHE_RUNS_BESIDE);
LATHE_OP_DEFINE(ARRIVE, .runs_on = LATHE_RUNS_BESIDE, .inplace = 1, .inplace_always = 1);

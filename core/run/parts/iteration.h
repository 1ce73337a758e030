/* Checks and memory of a run whose stage makes its own batches (iteration_memory.h). */
#ifndef LATHE_RUN_ITERATION_H
#define LATHE_RUN_ITERATION_H

#include "lathe/lathe.h"

/** Refuses settings that have no meaning for such a stage. LATHE_E_CONFIG. */
lathe_status lathe__iteration_check(const lathe_run *run);

/** Asks the stage for the size of its state, and adds it to the plan. */
lathe_status lathe__iteration_plan(lathe_run *run);
/** place allocates the state, filled with 0; close frees what the iteration has. */
lathe_status lathe__iteration_place(lathe_run *run);
void lathe__iteration_close(lathe_run *run);

#endif

/* The line that a training prints before its first step. */
#ifndef LATHE_PIPELINE_TRAIN_START_H
#define LATHE_PIPELINE_TRAIN_START_H

#include "run/run_state.h"

/** Prints sizes, precision, device, threads, attention and planned memory of an open run. */
void lathe_train_print_start(const lathe_run *run);

#endif

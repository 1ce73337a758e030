/* The line that a training prints before its first step. */
#ifndef LATHE_CMD_TRAIN_START_H
#define LATHE_CMD_TRAIN_START_H

#include "lathe/lathe.h"

/** Prints sizes, precision, device, threads, attention and planned memory of an open run. */
void lathe_train_print_start(const lathe_run *run);

#endif

/* Checks that a run file computes with a checkpoint's weights as the run computed that wrote it. */
#ifndef LATHE_RUN_READ_CHECK_H
#define LATHE_RUN_READ_CHECK_H

#include "run/state/run_state.h"

/** For a run that does not train and reads the checkpoint that its file names: refuses, at the key
 * that differs, another model, adapter or quantization format than the checkpoint was written with,
 * or other settings of them. Does nothing if there is no checkpoint, or if its manifest cannot be
 * read: loading it says what is wrong. LATHE_E_CONFIG: refused. */
lathe_status lathe_read_check(lathe_run *run);

#endif

/* Settings that opening a run appends to those of the command line. */
#ifndef LATHE_OPENING_MORE_OVERRIDES_H
#define LATHE_OPENING_MORE_OVERRIDES_H

#include "run/run_state.h"

/** Makes room for n settings after run->open.overrides[run->open.n_overrides]; the last of a key
 *  counts. The caller raises n_overrides. NULL: out of memory. */
lathe_override *lathe__more_overrides(lathe_run *run, int32_t n);

#endif

/* What two checkpoints differ in. */
#ifndef LATHE_RUN_CHECKPOINT_DIFF_H
#define LATHE_RUN_CHECKPOINT_DIFF_H

#include "base/buffer.h"

/** Appends a line per difference to `out`: plugins and their versions, configuration keys, counters of the
 *  state, and tensors by file: how many elements differ, the largest |b - a|, and that over the largest |a|.
 *  *out_n counts the lines that tell of one. Neither folder is verified first.
 *  LATHE_E_NOT_FOUND, LATHE_E_CORRUPT, LATHE_E_IO: one of them cannot be read. */
lathe_status lathe_checkpoint_diff(const char *a, const char *b, lathe_buffer *out, int64_t *out_n);

#endif

/* Writes TensorBoard event files: DIR/tensorboard/events.out.tfevents.SECONDS.HOST.PID.N
 *
 *   file    = record*        the first record: Event{wall_time, file_version "brain.Event:2"}
 *   record  = u64 n | u32 masked(crc32c of the 8 bytes of n) | n bytes | u32 masked(crc32c of them)
 *   masked  = (crc >> 15 | crc << 17) + 0xa282ead8
 *   Event   = 1: double wall_time, 2: int64 step, 3: string file_version, 5: Summary,
 *             7: SessionLog{1: status}, START = 1
 *   Summary = 1: Value{1: string tag, 2: float simple_value}*
 *
 * All numbers are little-endian. Every start of a run writes a new file, which begins with a
 * SessionLog START at the next step of the run: TensorBoard then ignores what earlier files hold
 * from that step on. Source: tensorflow/core/util/event.proto, summary.proto,
 * lib/io/record_writer.cc.
 */
#ifndef LATHE_METRICS_TENSORBOARD_H
#define LATHE_METRICS_TENSORBOARD_H

#include <stdio.h>

#include "lathe/lathe.h"

typedef struct lathe_tensorboard {
    FILE *file; /* NULL: not wanted */
    char *path;
} lathe_tensorboard;

/** Makes dir/tensorboard and a new event file in it. `step`: number of steps taken so far.
 * LATHE_E_IO names the file. */
lathe_status lathe_tensorboard_open(lathe_tensorboard *b, const char *dir, int64_t step);

/** Writes one event with a scalar per key, all for the same step. A key "eval_x" becomes the tag
 * "eval/x", a key with a slash is kept, and any other key x becomes "train/x". Allocates nothing.
 * LATHE_E_IO names the file, the step and the cause. */
lathe_status lathe_tensorboard_write(lathe_tensorboard *b, int64_t step, int32_t n,
                                     const char *const *keys, const double *values);

void lathe_tensorboard_close(lathe_tensorboard *b);

#endif

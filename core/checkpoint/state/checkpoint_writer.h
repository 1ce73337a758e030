/* Writes checkpoints from an image (checkpoint_image.h) in a thread, one at a time, while the run
 * continues. */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_WRITER_H
#define LATHE_CHECKPOINT_CHECKPOINT_WRITER_H

#include "checkpoint/state/checkpoint_image.h"
#include "metrics/figures.h"

typedef struct lathe_writer lathe_writer;

/** Starts the thread. The image must outlive it. */
lathe_status lathe_writer_create(lathe_image *image, lathe_writer **out);

/** Gives the image to the writer, which uses it until lathe_writer_wait returns. Call it only when
 * nothing is being written. The figures are copied. */
void lathe_writer_post(lathe_writer *writer, const lathe_figures *figures, int32_t gate);

/** 1: a checkpoint is being written. */
int32_t lathe_writer_busy(lathe_writer *writer);

/** Waits until nothing is being written. Returns the first error since the last wait, with its
 * message, and then clears it. *out_path (out_path may be NULL) is the newest checkpoint written;
 * NULL: none yet. */
lathe_status lathe_writer_wait(lathe_writer *writer, const char **out_path);

/** Waits, then ends the thread; NULL is fine. An error that no lathe_writer_wait returned is logged
 * as a warning. */
void lathe_writer_destroy(lathe_writer *writer);

#endif

/* A copy of a run's state to write a checkpoint from while the run goes on.
 *
 * One block, planned and allocated with the run (category "checkpoint"):
 *
 *   | master of p0 | master of p1 | ... | all optimizer slots | average |
 *
 * Rows that do not train are not copied: they are written from the files that they were read from
 * (model_file.h). Counters, cursor and the like are copied as well. On a device with memory of its
 * own the block is pinned host memory.
 */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_IMAGE_H
#define LATHE_CHECKPOINT_CHECKPOINT_IMAGE_H

#include "checkpoint/saved_state.h"

typedef struct lathe_image lathe_image;

/** Bytes of the copy; 0 when the settings ask for no checkpoints beside the training. */
int64_t lathe_image_bytes(const lathe_saved_state *saved);

/** Allocates checkpoints->image, when it takes bytes; and frees it. */
lathe_status lathe_image_place(const lathe_saved_state *saved);
void lathe_image_destroy(const lathe_saved_state *saved);

/** Writes once over all of it, so that the first copy does not wait for pages. Any thread. */
void lathe_image_touch(lathe_image *image);

/** Copies the state, and waits for the copy. Allocates nothing. */
lathe_status lathe_image_take(lathe_image *image, const lathe_saved_state *saved);

/** The state as it was when taken, for lathe_checkpoint_write: only to be read. */
const lathe_saved_state *lathe_image_state(const lathe_image *image);

#endif

/* A copy of a run's state, from which a checkpoint is written while the run continues.
 *
 * The copy is one block, planned and allocated with the run (category "checkpoint"):
 *
 *   | master of p0 | master of p1 | ... | all optimizer slots | average | state of the stage |
 *
 * Rows that are not trained are not copied: they are written from the files that they were read
 * from (model_file.h). Counters and the data cursor are copied as well. On a device with its own
 * memory, the block is pinned host memory.
 */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_IMAGE_H
#define LATHE_CHECKPOINT_CHECKPOINT_IMAGE_H

#include "checkpoint/state/saved_state.h"

typedef struct lathe_image lathe_image;

/** Bytes of the copy; 0 if the settings do not ask for asynchronous checkpoints, or if ranks divide
 * the state. */
int64_t lathe_image_bytes(const lathe_saved_state *saved);

/** place allocates checkpoints->image if the copy has any bytes; destroy frees it. */
lathe_status lathe_image_place(const lathe_saved_state *saved);
void lathe_image_destroy(const lathe_saved_state *saved);

/** Writes to every page once, so that the first copy does not wait for page faults. Any thread. */
void lathe_image_touch(lathe_image *image);

/** Copies the state, and waits for the copy. Allocates nothing. */
lathe_status lathe_image_take(lathe_image *image, const lathe_saved_state *saved);

/** The state at the time of the copy, for lathe_checkpoint_write; read only. */
const lathe_saved_state *lathe_image_state(const lathe_image *image);

#endif

/* The thread that writes checkpoints from an image while the run goes on. One at a time. */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_WRITER_H
#define LATHE_CHECKPOINT_CHECKPOINT_WRITER_H

#include "checkpoint/checkpoint_image.h"
#include "record/figures.h"

typedef struct lathe_writer lathe_writer;

/** Starts the thread. The image must outlive it. */
lathe_status lathe_writer_create(lathe_image *image, lathe_writer **out);

/** Hands the image over: it is the writer's until lathe_writer_wait. Only when nothing is being written.
 *  figures are copied. */
void lathe_writer_post(lathe_writer *writer, const lathe_figures *figures, int32_t gate);

/** 1: something is being written. */
int32_t lathe_writer_busy(lathe_writer *writer);

/** Waits until nothing is being written. The first failure since the last wait, with its message; then
 *  that is forgotten. *out_path (may be NULL): the newest checkpoint written, NULL: none yet. */
lathe_status lathe_writer_wait(lathe_writer *writer, const char **out_path);

/** Waits and ends the thread; takes NULL. An error nobody waited for is a warning. */
void lathe_writer_destroy(lathe_writer *writer);

#endif

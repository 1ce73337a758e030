/* The last micro-batch of a state that is saved between backward and step, for optimizers that want curvature
 * estimates: its tensors are in the file of the gradients, after those. Nothing is written where no estimates are
 * wanted. */
#ifndef LATHE_CHECKPOINT_BATCH_ROWS_H
#define LATHE_CHECKPOINT_BATCH_ROWS_H

#include "checkpoint/saved_state.h"
#include "io/safetensors.h"
#include "io/st_writer.h"

/** Declares the tensors after those of the gradients; writes them, from *io_index on. */
lathe_status lathe__batch_rows_declare(const lathe_saved_state *saved, lathe_st_writer *w);
lathe_status lathe__batch_rows_write(const lathe_saved_state *saved, lathe_st_writer *w,
                                     int64_t *io_index);
/** Reads them back (set NULL: there is no such file). LATHE_E_SHAPE, LATHE_E_CORRUPT. */
lathe_status lathe__batch_rows_check(const lathe_saved_state *saved, const lathe_safetensors *set);
void lathe__batch_rows_read(const lathe_saved_state *saved, const lathe_safetensors *set);

#endif

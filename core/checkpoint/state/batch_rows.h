/* Saves the last micro-batch of a state that is written between backward and step, for optimizers
 * that need curvature estimates. Its tensors follow the gradients in the gradients' file. Without
 * such an optimizer, nothing is written. */
#ifndef LATHE_CHECKPOINT_BATCH_ROWS_H
#define LATHE_CHECKPOINT_BATCH_ROWS_H

#include "checkpoint/state/saved_state.h"
#include "files/safetensors/safetensors.h"
#include "files/safetensors/st_writer.h"

/** declare adds the tensors after the gradients; write writes them, beginning at tensor
 * *io_index. */
lathe_status lathe__batch_rows_declare(const lathe_saved_state *saved, lathe_st_writer *w);
lathe_status lathe__batch_rows_write(const lathe_saved_state *saved, lathe_st_writer *w,
                                     int64_t *io_index);
/** check and read load the tensors again; set is NULL if there is no such file. LATHE_E_SHAPE,
 * LATHE_E_CORRUPT. */
lathe_status lathe__batch_rows_check(const lathe_saved_state *saved, const lathe_safetensors *set);
void lathe__batch_rows_read(const lathe_saved_state *saved, const lathe_safetensors *set);

#endif

/* Shapes of a stage's inputs. */
#ifndef LATHE_PLUG_STAGE_INPUTS_H
#define LATHE_PLUG_STAGE_INPUTS_H

#include "lathe/stage.h"

/** dtype and count of input i, as the table says: {LATHE_F32, 0} if it says nothing. */
lathe_input_shape lathe_stage_shape(const lathe_stage_v1 *stage, int32_t i);

/** Numbers of input i per token or row. n_stored: tokens per target of the stored teacher, which
 *  an input of source STORED has that many of, and one log-probability more; with 0 there is no
 *  such input, and its count is 0. */
int64_t lathe_stage_input_count(const lathe_stage_v1 *stage, int32_t i, int32_t n_stored);

/** Whether the stage can learn from a stored teacher: its table has inputs for it. */
int32_t lathe_stage_takes_stored(const lathe_stage_v1 *stage);

#endif

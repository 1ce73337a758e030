/* The adapter's own file: adapter_model.safetensors and adapter_config.json, as PEFT reads them. */
#ifndef LATHE_CHECKPOINT_ADAPTER_FILE_H
#define LATHE_CHECKPOINT_ADAPTER_FILE_H

#include "checkpoint/saved_state.h"

/** Writes the parameters that the adapter made, f32, under its own keys. */
lathe_status lathe__adapter_file_write(const lathe_saved_state *saved, const char *dir);

/** Reads them back; every tensor is checked before the first is written. */
lathe_status lathe__adapter_file_read(const lathe_saved_state *saved, const char *dir);

/** Whether the file has every tensor in the shape of the run's: LATHE_E_NOT_FOUND, LATHE_E_SHAPE. */
lathe_status lathe__adapter_file_check(const lathe_saved_state *saved, const char *dir);

/** LATHE_E_CORRUPT names the tensor that is not, bit by bit, what the run holds. */
lathe_status lathe__adapter_file_compare(const lathe_saved_state *saved, const char *dir);

#endif

/* Writes and reads the files of an adapter, adapter_model.safetensors and adapter_config.json, in
 * the format of PEFT. */
#ifndef LATHE_CHECKPOINT_ADAPTER_FILE_H
#define LATHE_CHECKPOINT_ADAPTER_FILE_H

#include "checkpoint/state/saved_state.h"

/** Whether the file holds a parameter: the adapter's own, heads of the stage, and those of the
 * model that are trained beside it. */
int32_t lathe__adapter_file_has(const lathe_saved_state *saved, int32_t param);

/** Whether there is any such parameter. Without one the functions below do nothing. */
int32_t lathe__adapter_file_is_needed(const lathe_saved_state *saved);

/** Writes the key of a parameter. LATHE_E_PLUGIN: the adapter has none. */
lathe_status lathe__adapter_file_key(const lathe_saved_state *saved, const char *name, char *out,
                                     int64_t capacity);

/** Writes the parameters, in f32, under the adapter's key names. `place`: the name that the folder
 * will have. adapter_config.json names it as the base if the folder holds the base, into which the
 * adapter was merged; else model.path. */
lathe_status lathe__adapter_file_write(const lathe_saved_state *saved, const char *dir,
                                       const char *place);

/** Reads the parameters; every tensor is checked before the first is changed. */
lathe_status lathe__adapter_file_read(const lathe_saved_state *saved, const char *dir);

/** Like lathe__adapter_file_read, for a folder that Lathe did not write: a tensor that no parameter
 *  takes is refused by name, because PEFT would compute something with it. LATHE_E_CONFIG. */
lathe_status lathe__adapter_file_take(const lathe_saved_state *saved, const char *dir);

/** Gives the f32 values of a parameter of the model from the file that was read last, also where
 * the run keeps them in another dtype. out: as many elements as the parameter has. */
lathe_status lathe__adapter_file_values(const lathe_saved_state *saved, int32_t param, float *out);

/** Reads the parameters that a run begins with, from a file of Lathe or of PEFT: in any dtype that
 * converts to f32, and with no tensor that the adapter has no parameter for. Heads of the stage may
 * be missing. fill 0: only checks. LATHE_E_CONFIG says what does not fit. */
lathe_status lathe__adapter_file_begin(const lathe_saved_state *saved, const char *dir,
                                       int32_t fill);

/** Like lathe__adapter_file_begin, for an adapter with frozen parameters: that of the reference, or
 * one of several over one base. prefix: begins the names of its rows. */
lathe_status lathe__adapter_file_frozen(const lathe_saved_state *saved,
                                        const lathe_instance *adapter, const char *prefix,
                                        const char *dir, int32_t fill);

/** Checks that the file has every tensor in the shape that the run expects: LATHE_E_NOT_FOUND,
 * LATHE_E_SHAPE. */
lathe_status lathe__adapter_file_check(const lathe_saved_state *saved, const char *dir);

/** Lists the tensors of the adapter's file with which another run could begin, a line with name and
 * shape for each; none if the method has no parameters of its own. */
lathe_status lathe__adapter_file_list(const lathe_saved_state *saved, lathe_buffer *out);

/** Compares the file with the run's memory, bit by bit. LATHE_E_CORRUPT names a tensor that
 * differs. */
lathe_status lathe__adapter_file_compare(const lathe_saved_state *saved, const char *dir);

#endif

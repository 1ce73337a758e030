/* The data of `lathe eval --data PATH`, and of other options that name texts. */
#ifndef LATHE_APP_EVAL_DATA_H
#define LATHE_APP_EVAL_DATA_H

#include "base/buffer.h"
#include "cli/args.h"

/** Writes PATH, which an option of the command gives ("--data"), as a list of datasets in TOML, for
 * the settings data.datasets and data.validation. If the command names a run file or a checkpoint,
 * the records are read with the columns and the format of its data.datasets, and with their type
 * where the file's name tells none. LATHE_E_ARG: --data.validation names other data.
 * LATHE_E_CONFIG: these datasets have different columns or formats. */
lathe_status lathe_eval_data(const lathe_args *args, const char *option, const char *path,
                             lathe_buffer *out);

/** Says that every token counts in an evaluation of the folder `dir`, which is of no run, and names
 *  the stage that the records of --data are of, if their columns tell. */
void lathe_eval_say_stage(const lathe_args *args, const char *dir);

#endif

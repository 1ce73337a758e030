/* The data on which a folder is evaluated: PATH of `lathe eval --data PATH`, and other texts. */
#ifndef LATHE_SESSION_EVAL_DATA_H
#define LATHE_SESSION_EVAL_DATA_H

#include "session/model_request.h"

/** Data that a caller names. */
typedef struct lathe_eval_source {
    const char *option; /* that names them, for messages: "--data" */
    const char *place;  /* of errors in the data; NULL: the setting, --data.validation */
    const char *path;   /* a file or a folder */
    /* Tables in TOML, which replace what the word says of its data; NULL: none. */
    const char *columns, *format;
} lathe_eval_source;

/** Adds the data as data.datasets and data.validation. If the word is a run file or a checkpoint,
 * the records are read with the columns and the format of its data.datasets, and with their type
 * where the file's name tells none. ask->inputs are there. LATHE_E_ARG: data.validation of the
 * caller names other data. LATHE_E_CONFIG: the word's datasets have different columns or formats.
 */
lathe_status lathe_eval_data(const lathe_model_request *ask, const lathe_eval_source *from,
                             lathe_edits *out);

/** Says that every token counts in an evaluation of the folder `dir`, which is of no run, and names
 *  the stage that the records of ask->data are of, if their columns tell. */
void lathe_eval_say_stage(const lathe_model_request *ask, const char *dir);

#endif

/* Inputs from which a run is decided, read once: the run file, the plugins, and the descriptions of
 * the models that it names. A run shares them with the trials that plan it with other settings
 * (run/plan/trial.h), so that all of them see one reading of each file. */
#ifndef LATHE_RUN_RUN_INPUTS_H
#define LATHE_RUN_RUN_INPUTS_H

#include "config/config.h"
#include "files/gguf/model_files.h"

typedef struct lathe_run_inputs {
    int32_t n_owners;
    lathe_run_file *file;
    lathe_registry *registry; /* NULL: not made yet */
    int32_t is_guest;         /* 1: the registry belongs to somebody else */
    lathe_model_texts texts;  /* config.json and generation_config.json */
} lathe_run_inputs;

/** Inputs with one owner, of a run file (NULL: none) and the options of the command line (NULL:
 *  none). */
lathe_status lathe_run_inputs_create(const char *path, const lathe_edits *options,
                                     lathe_run_inputs **out);

/** Uses the plugins of a registry that outlives the inputs. */
void lathe_run_inputs_use(lathe_run_inputs *inputs, lathe_registry *registry);

/** Adds an owner; each owner releases them. Returns the inputs. */
lathe_run_inputs *lathe_run_inputs_share(lathe_run_inputs *inputs);
void lathe_run_inputs_release(lathe_run_inputs *inputs); /* NULL is allowed */

#endif

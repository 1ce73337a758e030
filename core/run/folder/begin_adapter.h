/* A run that begins with an adapter: model.adapter, or an adapter's folder as model.path.
 *
 * The folder (of PEFT, a checkpoint, or the folder of a run) gives the settings of the adapter that
 * decide what it computes; the run file may leave them out, but not change them. Its weights are
 * the first values of the adapter's parameters, and those of the reference, if the stage has one.
 */
#ifndef LATHE_RUN_BEGIN_ADAPTER_H
#define LATHE_RUN_BEGIN_ADAPTER_H

#include "run/folder/folder_settings.h"
#include "run/state/run_state.h"

typedef struct lathe_begin_adapter {
    const char *dir;             /* NULL: the run does not begin with an adapter */
    const char *key;             /* the key of [model] that names it: "adapter" or "path" */
    lathe_setting_list settings; /* of the folder, as keys of a run file */
    int32_t first; /* of run->decided.edits: the first that lathe__begin_adapter_take added */
} lathe_begin_adapter;

/** Finds the adapter that the configuration names, and adds to run->decided.edits the model,
 * the adapter, and the method and the format if the run has none. out->dir is NULL if there is
 * none.
 *
 *   Errors  LATHE_E_CONFIG: the folder has no adapter that Lathe reads, or its model is not found.
 */
lathe_status lathe__begin_adapter_find(lathe_run *run, lathe_begin_adapter *out);

/** Appends the settings of the adapter that the method of run->config has; for keys that the run
 * sets and the folder does not, their defaults. LATHE_E_CONFIG: such a key has no default. */
lathe_status lathe__begin_adapter_take(lathe_run *run, lathe_begin_adapter *begin);

/** Checks that the run file does not change what the adapter computes. `first`: the configuration
 * before lathe__begin_adapter_take. LATHE_E_CONFIG names the key. */
lathe_status lathe__begin_adapter_check(lathe_run *run, lathe_config *first,
                                        const lathe_begin_adapter *begin);

#endif

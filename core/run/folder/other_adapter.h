/* An adapter beside the run's own, over the same base: that of the reference, or one of several
 * that generate. `what` names it in messages, which are LATHE_E_CONFIG. */
#ifndef LATHE_RUN_OTHER_ADAPTER_H
#define LATHE_RUN_OTHER_ADAPTER_H

#include "run/folder/folder_settings.h"
#include "run/state/run_state.h"

/** Refuses an adapter that was trained over another model than the run's: by the hashes in its
 *  manifest, or else by the files of the model that it names. A name that is no folder here, such
 *  as one of a hub, says nothing; the shapes are checked when the file is read. */
lathe_status lathe__other_adapter_check_base(lathe_run *run, const char *what, const char *dir);

/** Describes how the model `base`, which was named for the adapter in `dir`, differs from the one
 * that it was trained over, by the hashes in its manifest or else by the files of the model that it
 * names: *out, in the arena. NULL: it has the same weights; or nothing is known. */
lathe_status lathe__adapter_base_difference(const char *dir, const char *base, lathe_arena *arena,
                                            const char **out);

/** Refuses an adapter that was trained over weights in another format than the run's. */
lathe_status lathe__other_adapter_check_format(const lathe_run *run, const char *what,
                                               const lathe_setting_list *settings);

/** Reads the settings of a folder as those of a run, and makes the instance. Refuses a method
 *  without parameters of its own, and an init that changes the base. The caller destroys
 *  *out_config, also after an error. */
lathe_status lathe__other_adapter_make(lathe_run *run, const char *what,
                                       const lathe_setting_list *settings,
                                       lathe_config **out_config, lathe_instance *out);

#endif

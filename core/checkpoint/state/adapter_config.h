/* Writes adapter_config.json, in the format of PEFT. */
#ifndef LATHE_CHECKPOINT_ADAPTER_CONFIG_H
#define LATHE_CHECKPOINT_ADAPTER_CONFIG_H

#include "checkpoint/state/saved_state.h"

/** Writes the adapter's settings, as its plugin gives them, and the heads of the stage. A plugin
 *  without config_json has no such file. `place`: the name that the folder will have, which is the
 *  base if the adapter was merged into it. */
lathe_status lathe__adapter_config_write(const lathe_saved_state *saved, const char *dir,
                                         const char *place);

#endif

/* Opens the model of a command: `lathe generate DIR`, `lathe eval DIR`. */
#ifndef LATHE_APP_MODEL_DIR_H
#define LATHE_APP_MODEL_DIR_H

#include "cli/weights_option.h"
#include "run/run_state.h"

/** Opens the model that args->words[0] names: a Hugging Face folder, a checkpoint, an adapter's
 *  folder (with the base that it names, or --model.path), the folder of a run (its latest
 *  checkpoint), or a run file (its latest checkpoint by checkpoint.resume, with its adapter). Takes
 *  the averaged weights if the checkpoint has these, and prints a line about it; --weights chooses.
 *  settings: further settings as pairs "key", "value", ended by NULL; the user's overrides win. */
lathe_status lathe_app_open_model(const lathe_args *args, int32_t mode, const char *const *settings,
                                  lathe_run **out);

#endif

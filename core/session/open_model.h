/* Opens the model that a request names. */
#ifndef LATHE_SESSION_OPEN_MODEL_H
#define LATHE_SESSION_OPEN_MODEL_H

#include "run/state/run_state.h"
#include "session/model_request.h"

/** Opens the model that ask->word names: a Hugging Face folder, a checkpoint, an adapter's
 *  folder (with the base that it names, or --model.path), the folder of a run (its latest
 *  checkpoint), or a run file (its latest checkpoint by checkpoint.resume, with its adapter). Takes
 *  the averaged weights if the checkpoint has these, and logs a line about it, unless ask->weights
 *  says otherwise. mode: LATHE_OPEN_*. After an error *out may be open; the caller closes it. */
lathe_status lathe_model_open(const lathe_model_request *ask, int32_t mode, lathe_run **out);

#endif

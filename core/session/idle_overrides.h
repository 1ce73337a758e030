/* Settings of the caller that a session does not use. */
#ifndef LATHE_SESSION_IDLE_OVERRIDES_H
#define LATHE_SESSION_IDLE_OVERRIDES_H

#include "session/model_request.h"

/** Warns of each setting that only a training reads, where a model is opened without training it.
 */
void lathe_session_warn_idle(const lathe_model_request *ask);

#endif

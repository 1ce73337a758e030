/* Settings on the command line that a command does not use. */
#ifndef LATHE_APP_IDLE_OVERRIDES_H
#define LATHE_APP_IDLE_OVERRIDES_H

#include "cli/args.h"

/** Warns of each --section.key that only a training reads, for commands that open a model without
 *  training it. */
void lathe_app_warn_idle_overrides(const lathe_args *args);

#endif

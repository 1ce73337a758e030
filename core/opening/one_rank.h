/* Whether this process is one of several ranks. */
#ifndef LATHE_OPENING_ONE_RANK_H
#define LATHE_OPENING_ONE_RANK_H

#include "plug/registry.h"

/** LATHE_E_UNSUPPORTED: a launcher has started this process as one of several, each of which would
 *  train alone and write to the same folder. */
lathe_status lathe__one_rank(lathe_registry *registry);

#endif

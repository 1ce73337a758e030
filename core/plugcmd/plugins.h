/* What several commands do with the registry: kinds by name, refusals to stderr. */
#ifndef LATHE_PLUGCMD_PLUGINS_H
#define LATHE_PLUGCMD_PLUGINS_H

#include "plug/registry.h"

/** LATHE_KIND_* of the text. LATHE_E_ARG with a similar name or the list of kinds. */
lathe_status lathe_plugcmd_kind(const char *typed, int32_t *out);

/** One line per refusal on stderr; notes only with with_notes. */
void lathe_plugcmd_print_refusals(const lathe_registry *registry, int with_notes);

#endif

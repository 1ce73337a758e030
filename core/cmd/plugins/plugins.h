/* Functions of several commands: find kinds by name, and print refused plugins. */
#ifndef LATHE_CMD_PLUGINS_H
#define LATHE_CMD_PLUGINS_H

#include "plug/registry.h"

/** LATHE_KIND_* of the text. LATHE_E_ARG: unknown; the message has a similar name or the list of
 *  kinds. */
lathe_status lathe_plugcmd_kind(const char *typed, int32_t *out);

/** Prints one line per refused plugin on stderr; notes only if with_notes is 1. */
void lathe_plugcmd_print_refusals(const lathe_registry *registry, int with_notes);

#endif

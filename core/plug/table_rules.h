/* What an interface table of each kind must hold: one table of rules per kind. */
#ifndef LATHE_PLUG_TABLE_RULES_H
#define LATHE_PLUG_TABLE_RULES_H

#include "lathe/plugin.h"

/** Checks the interface table of a plugin whose kind, revision and table size have been checked:
 *  functions that every plugin of the kind has are not NULL, functions that only work together are
 *  all there or all NULL, and the constants of a stage are in range.
 *  Errors  LATHE_E_PLUGIN: the rule that is broken, with the member's name, without the path. */
lathe_status lathe_table_rules_check(const lathe_plugin *plugin);

#endif

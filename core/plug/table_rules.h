/* Checks the interface table of each kind against a list of rules. */
#ifndef LATHE_PLUG_TABLE_RULES_H
#define LATHE_PLUG_TABLE_RULES_H

#include "lathe/plugin.h"

/** Checks the interface table of a plugin whose kind, revision and table size have been checked:
 *  functions that every plugin of the kind needs are not NULL, functions that only work together
 *  are all set or all NULL, and the constants of a stage are in range. Errors: LATHE_E_PLUGIN with
 *  the broken rule and the member's name, without the path. */
lathe_status lathe_table_rules_check(const lathe_plugin *plugin);

#endif

/* Holds the settings of one parameter group, a table of optimizer.groups, as typed fields. */
#ifndef LATHE_OPTIM_GROUP_SETTINGS_H
#define LATHE_OPTIM_GROUP_SETTINGS_H

#include "plug/config_keys.h"

enum { LATHE_MAX_GROUPS = 16 }; /* with the group of the parameters that are in no other */

/** The members are the rows of plug/keys_groups.inc. */
typedef struct lathe_group_settings {
#define KEY(key, c_type, member, ...) LATHE_KEY_MEMBER(c_type, member)
#define KEY_ALONE(...)
#include "plug/keys_groups.inc"
#undef KEY
#undef KEY_ALONE
} lathe_group_settings;

/** Reads the groups from a checked configuration, in the order of the file. Texts are borrowed from
 *  it. Returns the number of groups, of which at most LATHE_MAX_GROUPS are read. */
int64_t lathe_group_settings_read(const lathe_config *config,
                                  lathe_group_settings out[LATHE_MAX_GROUPS]);

#endif

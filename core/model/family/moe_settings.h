/* The settings of [moe] of the run file, for models with experts, as typed fields. */
#ifndef LATHE_MODEL_MOE_SETTINGS_H
#define LATHE_MODEL_MOE_SETTINGS_H

#include "plug/config_keys.h"

enum { LATHE_BALANCE_OVER_MODEL = 0, LATHE_BALANCE_OVER_LAYER = 1 };

/** The members are the rows of plug/keys_moe.inc: each row has the type, the unit and the
 *  meaning. */
typedef struct lathe_moe_settings {
#define KEY(key, c_type, member, ...) LATHE_KEY_MEMBER(c_type, member)
#define KEY_ALONE(...)
#include "plug/keys_moe.inc"
#undef KEY
#undef KEY_ALONE
} lathe_moe_settings;

#endif

/* Reads the tables of optimizer.groups. */
#include "update/group_settings.h"

#define KEY(key, c_type, member, form, convert, ...)                                               \
    LATHE_KEY_OF(lathe_group_settings, key, member, form, convert)
#define KEY_ALONE(...)
static const lathe_key keys[] = {
#include "plug/keys_groups.inc"
};

int64_t lathe_group_settings_read(const lathe_config *config,
                                  lathe_group_settings out[LATHE_MAX_GROUPS])
{
    return lathe_config_fill_tables(config, "optimizer", "groups", keys,
                                    (int32_t)(sizeof keys / sizeof keys[0]), out, sizeof *out,
                                    LATHE_MAX_GROUPS);
}

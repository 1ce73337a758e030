/* Reads the tables of optimizer.groups. */
#include "optim/group_settings.h"
#include "config/config_fill.h"

#define KEY(key, c_type, member, form, convert, ...)                                               \
    LATHE_KEY_OF(lathe_group_settings, key, member, form, convert)
#define KEY_ALONE(...)
static const lathe_key keys[] = {
#include "plug/keys_groups.inc"
};

int64_t lathe_group_settings_read(const lathe_config *config,
                                  lathe_group_settings out[LATHE_MAX_GROUPS])
{
    const int32_t n_keys = (int32_t)(sizeof keys / sizeof keys[0]);
    const lathe_config_table *table;
    int64_t n = 0;
    for (; (table = lathe_config_table_at(config, "optimizer", "groups", n)) != NULL; n++)
        if (n < LATHE_MAX_GROUPS)
            lathe_config_table_fill(config, table, keys, n_keys, &out[n]);
    return n;
}

/* Opens the rewards of a configuration. */
#include "reward/reward_open.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

/* A reward whose plugin warns while it is opened. */
typedef struct warned_reward {
    const lathe_config *config;
    lathe_diags *diags;
    int32_t index;
} warned_reward;

static void place_warning(void *arg, const char *key, const char *message)
{
    const warned_reward *r = arg;
    const lathe_place place = lathe_config_where_reward(r->config, r->index, key);
    if (r->diags != NULL)
        lathe_diags_add(r->diags, LATHE_DIAG_WARNING, &place, NULL, "%s", message);
    else
        lathe_log(LATHE_LOG_WARN, "%s:%d:%d: %s", place.file, place.line, place.column, message);
}

lathe_status lathe_reward_refuse(const lathe_config *config, int32_t index, lathe_diags *collected)
{
    lathe_diags own = {0}, *const diags = collected != NULL ? collected : &own;
    const lathe_place place = lathe_config_where_reward(config, index, lathe_error_key());
    const lathe_place inner = lathe_error_place(); /* of the record that it cannot use */
    lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL, "%s", lathe_error_message());
    lathe_diags_inner(diags, &inner);
    const lathe_status status = lathe_diags_status(diags);
    lathe_diags_fini(&own);
    return status;
}

lathe_status lathe_reward_instances(const lathe_config *config, lathe_diags *collected,
                                    lathe_arena *arena, lathe_instance **out, int32_t *out_n)
{
    int32_t n = 0;
    const lathe_config_reward *list = lathe_config_rewards(config, &n);
    lathe_status first = LATHE_OK;
    *out_n = 0;
    if (n == 0)
        return LATHE_OK;
    *out = lathe_arena_alloc(arena, n * (int64_t)sizeof **out);
    if (*out == NULL)
        return LATHE_E_NOMEM;
    memset(*out, 0, (size_t)n * sizeof **out);
    *out_n = n;
    for (int32_t i = 0; i < n; i++) {
        if (list[i].part.component == NULL)
            continue;
        warned_reward warned = {config, collected, i};
        lathe_log_catch_warnings(place_warning, &warned);
        lathe_status status =
            lathe_instance_init(&(*out)[i], list[i].part.component, list[i].part.values);
        lathe_log_catch_warnings(NULL, NULL);
        if (status == LATHE_E_CONFIG)
            status = lathe_reward_refuse(config, i, collected);
        if (status != LATHE_OK && collected == NULL)
            return status;
        first = first != LATHE_OK ? first : status;
    }
    return first;
}

lathe_status lathe_rewards_open(const lathe_config *config, lathe_instance *instances,
                                lathe_rewards **out)
{
    int32_t n = 0;
    const lathe_config_reward *list = lathe_config_rewards(config, &n);
    lathe_reward_part *parts = calloc((size_t)n + 1, sizeof *parts);
    if (parts == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: %d rewards", n);
    for (int32_t i = 0; i < n; i++) {
        parts[i] = (lathe_reward_part){.label = list[i].label,
                                       .weight = list[i].weight,
                                       .timeout_seconds = list[i].timeout_seconds,
                                       .retries = list[i].retries,
                                       .component = list[i].part.component,
                                       .values = list[i].part.values};
        if (instances[i].component != NULL)
            parts[i].instance = &instances[i];
    }
    const lathe_status status = lathe_rewards_create(parts, n, out);
    free(parts);
    return status;
}

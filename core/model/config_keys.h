/* Which keys of a config.json, and of its quantization_config, mean something here. */
#ifndef LATHE_MODEL_CONFIG_KEYS_H
#define LATHE_MODEL_CONFIG_KEYS_H

#include <jansson.h>

#include "lathe/plugin.h"
#include "model/generation_config.h"

/** LATHE_KEY_* (generation_config.h) of a key of a family's config.json. Unknown: nothing here
 * knows what it would change. */
int32_t lathe_config_key(const lathe_plugin *family, const char *key);

/** The same for a key of quantization_config. Refused: it changes what the weights mean, and is not
 *  supported; empty is fine. */
int32_t lathe_quant_config_key(const char *key);

/** LATHE_E_CONFIG: a key of quantization_config is refused. Unknown keys of both objects are named
 *  in a warning. */
lathe_status lathe_config_keys_check(const char *place, const lathe_plugin *family, json_t *object);

#endif

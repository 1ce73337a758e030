/* Which keys of a config.json, and of its quantization_config, mean something here. */
#ifndef LATHE_MODEL_HF_CONFIG_KEYS_H
#define LATHE_MODEL_HF_CONFIG_KEYS_H

#include <jansson.h>

#include "lathe/model.h"
#include "lathe/plugin.h"

/** How Lathe treats a key of config.json, quantization_config or generation_config.json. */
enum {
    LATHE_KEY_UNKNOWN = 0,  /* warned of by its name */
    LATHE_KEY_READ = 1,     /* has its meaning here */
    LATHE_KEY_HARMLESS = 2, /* changes no token that Lathe makes or learns */
    LATHE_KEY_WARNED = 3,   /* has no meaning here: warned of, unless its value changes nothing */
    LATHE_KEY_REFUSED = 4   /* the folder is refused, unless its value changes nothing */
};

/** LATHE_KEY_* of a key of a family's config.json. Unknown: nothing here
 * knows what it would change. */
int32_t lathe_config_key(const lathe_plugin *family, const char *key);

/** LATHE_KEY_* of a key of the outer configuration of a model of several towers, beside that of its
 *  text model. */
int32_t lathe_wrapper_config_key(const lathe_model_wrapper *wrapper, const char *key);

/** LATHE_KEY_* of a key of quantization_config. Refused: it changes what the weights mean, and is
 *  not supported; empty is fine. */
int32_t lathe_quant_config_key(const char *key);

/** LATHE_E_CONFIG: a key of quantization_config is refused. Unknown keys of all objects are named
 * in a warning, and so is code of the folder's own (auto_map). wrapper: whose text model `family`
 * serves; NULL: none. */
lathe_status lathe_config_keys_check(const char *place, const lathe_plugin *family,
                                     const lathe_model_wrapper *wrapper, json_t *object);

#endif

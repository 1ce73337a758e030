/* Checked access to the keys of a config.json: what the families' readers share. The first failure
 * sticks in `status`; later calls do nothing and return the default. */
#ifndef LATHE_MODEL_CONFIG_READER_H
#define LATHE_MODEL_CONFIG_READER_H

#include <jansson.h>

#include "model/hf_config.h"

typedef struct lathe_config_reader {
    const char *name; /* of the file, for errors */
    json_t *object;
    lathe_status status;
    const char *
        parent; /* the key that the object stands at, such as "rope_scaling"; NULL: it is the whole file */
} lathe_config_reader;

#define LATHE_REQUIRED INT64_MIN /* as default of lathe__config_int */

/** Integer in [lo, hi]; a missing or null key gives `def`, or fails when that is LATHE_REQUIRED. */
int64_t lathe__config_int(lathe_config_reader *r, const char *key, int64_t def, int64_t lo,
                          int64_t hi);
/** Finite number > 0. */
double lathe__config_positive(lathe_config_reader *r, const char *key, double def);
/** Number from 0 to 1; 0 when missing or null. */
double lathe__config_share(lathe_config_reader *r, const char *key);
int32_t lathe__config_bool(lathe_config_reader *r, const char *key, int32_t def);

/** Fails unless the key is absent, null, or one of the strings "a|b". */
void lathe__config_only_string(lathe_config_reader *r, const char *key, const char *choices);
/** Fails unless the key is absent, null, or equals `value` (bool keys: 0 or 1). */
void lathe__config_only_number(lathe_config_reader *r, const char *key, double value);

/** The one of two names of a setting that the object has: `alias` where it is set, since transformers lets
 *  the names of its attribute_map overwrite the model's own; else `key`. Warns when both are set and differ. */
const char *lathe__config_alias(lathe_config_reader *r, const char *key, const char *alias);

/** eos_token_id, an id or a list of them, into ids[LATHE_MAX_EOS]. */
void lathe__config_eos(lathe_config_reader *r, int32_t *ids, int32_t *out_n);

/** Fails unless layer_types is absent, null, or names full_attention for every layer. */
void lathe__config_full_attention(lathe_config_reader *r, int64_t n_layers);

/** rope_scaling, or else rope_parameters; rope_theta within it comes before the one beside it. Reads
 *  out->max_positions, the default of llama3's original_max_position_embeddings. */
void lathe__config_rope(lathe_config_reader *r, lathe_model_config *out);

/** Fails with "file: key is VALUE; why". */
void lathe__config_refuse(lathe_config_reader *r, const char *key, const char *why);

#endif

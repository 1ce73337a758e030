/* Reads keys of a JSON object with checks: the config.json keys that all families share, and those
 * of generation_config.json. The first failure is kept in `status`; later calls do nothing and
 * return the default. */
#ifndef LATHE_MODEL_CONFIG_READER_H
#define LATHE_MODEL_CONFIG_READER_H

#include <jansson.h>

#include "lathe/status.h"

typedef struct lathe_config_reader {
    const char *name; /* of the file, for messages; "": a table of the run file, whose place the
                       * core prints */
    json_t *object;
    lathe_status status;
    const char *parent; /* key of the object, such as "rope_scaling"; NULL: the whole file */
} lathe_config_reader;

#define LATHE_REQUIRED INT64_MIN /* a default of lathe__config_int */

/** The value of a key; NULL if it is absent or null. */
json_t *lathe__config_value(const lathe_config_reader *r, const char *key);

/** Integer in [lo, hi]. A missing or null key gives `def`; if `def` is LATHE_REQUIRED, it fails. */
int64_t lathe__config_int(lathe_config_reader *r, const char *key, int64_t def, int64_t lo,
                          int64_t hi);
/** Finite number > 0. */
double lathe__config_positive(lathe_config_reader *r, const char *key, double def);
/** Number from 0 to 1; 0 when missing or null. */
double lathe__config_share(lathe_config_reader *r, const char *key);
int32_t lathe__config_bool(lathe_config_reader *r, const char *key, int32_t def);

/** Fails unless the key is absent, null, or equals `value` (bool keys: 0 or 1). */
void lathe__config_only_number(lathe_config_reader *r, const char *key, double value);

/** eos_token_id, an id or a list of at most `most` of them; negative ids stand for none. */
void lathe__config_eos(lathe_config_reader *r, int32_t *ids, int32_t max, int32_t *out_n);

/** "FILE: ", with which messages begin; "" for a table of the run file. The format of a message
 *  has "%s%s" for it. */
#define LATHE_CONFIG_AT(r) (r)->name, (r)->name[0] != '\0' ? ": " : ""

/** Fails with "file: key is VALUE; why". */
void lathe__config_refuse(lathe_config_reader *r, const char *key, const char *why);

#endif

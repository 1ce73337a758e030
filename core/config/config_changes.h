/* Compares the configurations of two starts of a run. */
#ifndef LATHE_CONFIG_CONFIG_CHANGES_H
#define LATHE_CONFIG_CONFIG_CHANGES_H

#include <jansson.h>

#include "base/buffer.h"
#include "config/config.h"

/** Effect of a key that changed since the checkpoint, for a run that resumes. */
enum {
    LATHE_CHANGE_FIXED = 1, /* the run would train a different model: refused */
    LATHE_CHANGE_DATA = 2,  /* may change the rows of the data or their order */
    LATHE_CHANGE_QUIET = 4, /* does not affect the training, or is reported elsewhere */
    /* what is optimised, or what the weights compute: refused unless checkpoint.allow_changed names
       the key */
    LATHE_CHANGE_OBJECTIVE = 8
};

/** Compares two configurations (lathe_config_json). Returns {"optimizer.lr": {"from": 0.001, "to":
 * 0.1}, ...}, in the order of the second one; null means that the key is not set. Returns NULL if
 * memory runs out. The caller releases the result. */
json_t *lathe_config_changes(const json_t *before, const json_t *now);

/** LATHE_CHANGE_* of "section.key". */
int32_t lathe_change_effect(const char *name);

/** Whether checkpoint.allow_changed names "section.key". */
int32_t lathe_config_allows_change(const lathe_config *config, const char *name);

/** Appends "0.001 -> 0.1"; long values are cut. */
void lathe_change_put(const json_t *change, lathe_buffer *out);

/** Appends a value of a change as it is written in the run file; "unset" for null. */
void lathe_change_value_put(const json_t *value, lathe_buffer *out);

/** The configuration as a JSON object of sections (lathe_config_json). The caller drops it. */
lathe_status lathe_config_object(const lathe_config *config, json_t **out);

#endif

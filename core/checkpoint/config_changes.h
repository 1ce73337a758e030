/* The keys in which the configurations of two starts differ. */
#ifndef LATHE_CHECKPOINT_CONFIG_CHANGES_H
#define LATHE_CHECKPOINT_CONFIG_CHANGES_H

#include <jansson.h>

#include "base/buffer.h"

/** What it means to a run that resumes that a key changed since its checkpoint. */
enum {
    LATHE_CHANGE_FIXED = 1, /* the run would train another model: refused */
    LATHE_CHANGE_DATA = 2,  /* may make other rows of the data, or another order of them */
    LATHE_CHANGE_QUIET = 4  /* has no influence on the training, or is told elsewhere */
};

/** Compares two configurations (lathe_config_json): {"optimizer.lr": {"from": 0.001, "to": 0.1}, ...}, in the order of
 *  the second one. null: the key is not set there. NULL: no memory. The caller drops it. */
json_t *lathe_config_changes(const json_t *before, const json_t *now);

/** LATHE_CHANGE_* of "section.key". */
int32_t lathe_change_effect(const char *name);

/** Appends "0.001 -> 0.1"; long values are cut. */
void lathe_change_put(const json_t *change, lathe_buffer *out);

/** Appends a value of a change as it would stand in the file; "unset" for null. */
void lathe_change_value_put(const json_t *value, lathe_buffer *out);

#endif

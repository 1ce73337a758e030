/* Writes and reads the counters of a training run in state/run.json: steps, schedule, loss
 * scale, data cursor, and sums since the last step. */
#ifndef LATHE_CHECKPOINT_STATE_COUNTERS_H
#define LATHE_CHECKPOINT_STATE_COUNTERS_H

#include <jansson.h>

#include "base/buffer.h"
#include "checkpoint/state/saved_state.h"

/** Append the members of the JSON object, each with a comma except for the sums. */
void lathe__state_counters_put(const lathe_saved_state *saved, lathe_buffer *b);
void lathe__state_sums_put(const lathe_accumulated *sum, lathe_buffer *b);

/** The loads of experts as a member "expert_loads" of run.json, and a comma after it; nothing if
 *  there are none. */
void lathe__state_loads_put(const lathe_expert_loads *loads, lathe_buffer *b);
/** LATHE_E_CONFIG: the state has none, or those of other routers. */
lathe_status lathe__state_loads_check(const json_t *root, const char *path,
                                      const lathe_expert_loads *loads);
/** Checks and reads them. out: [loads->n] */
lathe_status lathe__state_loads_read(const json_t *root, const char *path,
                                     const lathe_expert_loads *loads, double *out);

/** Reads the counters that every version has; the others are 0. `path` is the file, for messages.
 * LATHE_E_CORRUPT names the member that is wrong. */
lathe_status lathe__state_counters_read(const json_t *root, const char *path, lathe_counters *out);
/** Reads what version 2 added: skipped steps, the loss scale, spikes, and the sums. */
lathe_status lathe__state_sums_read(const json_t *root, const char *path, lathe_counters *at,
                                    lathe_accumulated *sum);

/** Reads a whole number; the second function also requires 0 <= number <= `most`. */
lathe_status lathe__state_integer(const json_t *object, const char *path, const char *key,
                                  int64_t *out);
lathe_status lathe__state_count(const json_t *object, const char *path, const char *key,
                                int64_t max, int64_t *out);

#endif

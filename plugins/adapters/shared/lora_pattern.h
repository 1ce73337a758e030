/* A table from module patterns to numbers: PEFT's rank_pattern and alpha_pattern. */
#ifndef LATHE_LORA_PATTERN_H
#define LATHE_LORA_PATTERN_H

#include "lathe/host.h"

#define LORA_PATTERN_MAX_WHOLE 256.0 /* the largest rank */

typedef struct lora_patterns lora_patterns;

/** Reads a flat JSON object {"pattern": number, ...}. `method` and `key` name the plugin and the
 *  table in messages. json NULL: an empty table.
 *
 *  A pattern is a POSIX extended regular expression that must match the whole module name or its
 *  end after a dot, as in PEFT: (.*\.)?(pattern)$. PEFT's are Python's, whose \d and (?:...) POSIX
 *  does not have: write [0-9] and (...). Numbers must be > 0; with `whole` they must also be
 *  integers, and at most LORA_PATTERN_MAX_WHOLE.
 *
 *  Errors  LATHE_E_CONFIG: a pattern or its number is wrong (both are named), or the object is
 *          malformed. LATHE_E_NOMEM. */
lathe_status lora_patterns_create(const lathe_host *host, const char *method, const char *key,
                                  const char *json, int whole, lora_patterns **out);
void lora_patterns_destroy(lora_patterns *p);

/** The number of the first pattern that matches the module, or `otherwise` if none does. */
double lora_patterns_find(const lora_patterns *p, const char *module, double otherwise);

/** The first pattern that matches none of the modules, or NULL. */
const char *lora_patterns_unmatched(const lora_patterns *p, const char *const *modules, int n);

#endif

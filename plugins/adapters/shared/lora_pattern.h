/* A table from module patterns to numbers: PEFT's rank_pattern and alpha_pattern. */
#ifndef LATHE_LORA_PATTERN_H
#define LATHE_LORA_PATTERN_H

#include "lathe/host.h"

#define LORA_MAX_RANK 65536.0

typedef struct lora_patterns lora_patterns;

/** Reads a flat JSON object {"pattern": number, ...}. `method` and `key` name the plugin and the
 *  table in messages. json NULL: an empty table.
 *
 *  A pattern is a regular expression of PCRE2, which has what Python's `re` offers for names. It
 *  must match the whole module name or its end after a dot, as in PEFT: (.*\.)?(pattern)$, and the
 *  first one that matches counts. Numbers must be at least 0; with `whole` they must be integers
 *  from 1 to LORA_MAX_RANK.
 *
 *  Errors  LATHE_E_CONFIG: a pattern or its number is wrong (both are named), or the object is
 *          malformed. LATHE_E_NOMEM. */
lathe_status lora_patterns_create(const lathe_host *host, const char *method, const char *key,
                                  const char *json, int whole, lora_patterns **out);
void lora_patterns_destroy(lora_patterns *p);

/** The number of the first pattern that matches the module, or `otherwise` if none does. */
double lora_patterns_find(const lora_patterns *p, const char *module, double otherwise);

/** Checks that every pattern matches one of the modules. strict 0: a pattern without a match is
 * only warned of. LATHE_E_NOT_FOUND: one matches none. LATHE_E_UNSUPPORTED: a search takes too
 * long.
 */
lathe_status lora_patterns_check(const lora_patterns *p, const char *key,
                                 const char *const *modules, int n, int strict);

#endif

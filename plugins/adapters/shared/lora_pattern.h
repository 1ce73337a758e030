/* A table from module patterns to numbers: PEFT's rank_pattern and alpha_pattern. */
#ifndef LATHE_LORA_PATTERN_H
#define LATHE_LORA_PATTERN_H

#include "lathe/host.h"

#define LORA_PATTERN_MAX_WHOLE 256.0 /* the largest rank */

typedef struct lora_patterns lora_patterns;

/** Reads a flat JSON object {"pattern": number, ...}; method and key
 *  name the plugin and the table in messages.
 *  A pattern is a POSIX extended regular expression that must match the whole module name or its
 *  end after a dot, as in PEFT: (.*\.)?(pattern)$. Numbers must be > 0; with `whole`, whole and at
 * most LORA_PATTERN_MAX_WHOLE. json NULL: an empty table. LATHE_E_CONFIG names key, pattern and
 * fault. */
lathe_status lora_patterns_create(const lathe_host *host, const char *method, const char *key,
                                  const char *json, int whole, lora_patterns **out);
void lora_patterns_destroy(lora_patterns *p);

/** The number of the first pattern that matches, else `otherwise`. */
double lora_patterns_find(const lora_patterns *p, const char *module, double otherwise);

/** The first pattern that matches none of the modules, or NULL. */
const char *lora_patterns_idle(const lora_patterns *p, const char *const *modules, int n);

#endif

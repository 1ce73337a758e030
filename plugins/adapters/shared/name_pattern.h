/* Patterns that choose parameters by their names. */
#ifndef LATHE_ADAPTERS_NAME_PATTERN_H
#define LATHE_ADAPTERS_NAME_PATTERN_H

#include "lathe/host.h"
#include "lathe/schema.h"

/** Whether all of `text` matches `pattern`, where * stands for any run of characters. Linear in
 * practice: on a mismatch only the last * is extended. */
static inline int name_matches(const char *pattern, const char *text)
{
    const char *star = NULL, *resume = NULL;
    while (*text != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            resume = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++resume;
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

/** Whether one of the patterns matches. A list that is not set has none. */
static inline int name_in(const lathe_value *patterns, const char *name)
{
    for (int64_t i = 0; patterns->is_set && i < patterns->n; i++)
        if (name_matches(patterns->strs[i], name))
            return 1;
    return 0;
}

/** LATHE_E_CONFIG: a pattern is empty. */
static inline lathe_status name_patterns_check(const lathe_host *host, const char *key,
                                               const lathe_value *patterns)
{
    for (int64_t i = 0; patterns->is_set && i < patterns->n; i++)
        if (patterns->strs[i][0] == '\0')
            return lathe_fail_at(host, LATHE_E_CONFIG, key, "%s[%lld] is empty", key, (long long)i);
    return LATHE_OK;
}

/** LATHE_E_NOT_FOUND: a pattern matches none of the names, so it is probably misspelt. */
static inline lathe_status name_patterns_match(const lathe_host *host, const char *plugin,
                                               const char *key, const lathe_value *patterns,
                                               const char *const *names, int32_t n_names)
{
    for (int64_t i = 0; patterns->is_set && i < patterns->n; i++) {
        int32_t k = 0;
        while (k < n_names && !name_matches(patterns->strs[i], names[k]))
            k++;
        if (k == n_names)
            return lathe_fail_at(host, LATHE_E_NOT_FOUND, key,
                                 "%s: %s[%lld] = \"%s\" matches no parameter, and patterns cover "
                                 "whole names (\"*.mlp.*\")",
                                 plugin, key, (long long)i, patterns->strs[i]);
    }
    return LATHE_OK;
}

#endif

/* Regular expressions for plugins, by PCRE2. */
#include "base/host_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

/* Steps of one search before it is given up, so that an unfortunate pattern ends. */
#define MAX_STEPS 10000000u

lathe_status lathe__host_pattern_create(const char *key, const char *pattern, void **out)
{
    PCRE2_UCHAR why[200] = "";
    PCRE2_SIZE at = 0;
    int code = 0;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &code, &at, NULL);
    if (*out != NULL)
        return LATHE_OK;
    (void)pcre2_get_error_message(code, why, sizeof why);
    return lathe_error_at(LATHE_E_CONFIG, NULL, key,
                          "the regular expression '%s' is wrong at byte %zu: %s", pattern, at,
                          (const char *)why);
}

int32_t lathe__host_pattern_find(const void *pattern, const char *text, int64_t bytes, int64_t from,
                                 int64_t *spans, int32_t n_spans)
{
    const pcre2_code *code = pattern;
    pcre2_match_data *found = pcre2_match_data_create_from_pattern(code, NULL);
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    int n = PCRE2_ERROR_NOMEMORY;
    if (found != NULL && limits != NULL) {
        (void)pcre2_set_match_limit(limits, MAX_STEPS);
        n = pcre2_match(code, (PCRE2_SPTR)text, (PCRE2_SIZE)bytes, (PCRE2_SIZE)from, 0, found,
                        limits);
    }
    const uint32_t n_groups = n > 0 ? pcre2_get_ovector_count(found) : 0;
    const PCRE2_SIZE *ends = n > 0 ? pcre2_get_ovector_pointer(found) : NULL;
    for (int32_t i = 0; i < n_spans / 2; i++) {
        const int is_set = (uint32_t)i < n_groups && i < n && ends[2 * i] != PCRE2_UNSET;
        spans[2 * i] = is_set ? (int64_t)ends[2 * i] : -1;
        spans[2 * i + 1] = is_set ? (int64_t)ends[2 * i + 1] : -1;
    }
    pcre2_match_data_free(found);
    pcre2_match_context_free(limits);
    if (n > 0)
        return (int32_t)n_groups;
    if (n == PCRE2_ERROR_NOMATCH)
        return 0;
    if (n == PCRE2_ERROR_NOMEMORY)
        return lathe_error(LATHE_E_NOMEM, "out of memory: the search for a pattern");
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "the search for a pattern takes too long; write it without nested repeats, "
                       "such as (a+)+");
}

void lathe__host_pattern_free(void *pattern)
{
    pcre2_code_free(pattern);
}

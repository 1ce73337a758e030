/* lathe_host.pattern_create, pattern_find and pattern_free: regular expressions for plugins. */
#ifndef LATHE_BASE_HOST_PATTERN_H
#define LATHE_BASE_HOST_PATTERN_H

#include "lathe/host.h"

lathe_status lathe__host_pattern_create(const char *key, const char *pattern, void **out);
int32_t lathe__host_pattern_find(const void *pattern, const char *text, int64_t bytes, int64_t from,
                                 int64_t *spans, int32_t n_spans);
void lathe__host_pattern_free(void *pattern);

#endif

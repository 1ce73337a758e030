/* Writes a shape as text. */
#include "graph/ir/desc_text.h"

#include <stdio.h>

const char *lathe_desc_text(const lathe_desc *d, char *text, int64_t capacity)
{
    int used = snprintf(text, (size_t)capacity, "%s[", lathe_dtype_name(d->dtype));
    for (int32_t i = 0; i < d->rank && used < capacity; i++)
        used += snprintf(text + used, (size_t)(capacity - used), "%s%lld", i ? "," : "",
                         (long long)d->dims[i]);
    if (used < capacity)
        (void)snprintf(text + used, (size_t)(capacity - used), "]");
    return text;
}

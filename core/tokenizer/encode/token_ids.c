/* Lists of token ids. */
#include "tokenizer/encode/token_ids.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

lathe_status lathe_ids_reserve(lathe_ids *ids, int64_t n_more)
{
    if (ids->n + n_more <= ids->capacity)
        return LATHE_OK;
    int64_t capacity = ids->capacity + ids->capacity / 2 + 64;
    if (capacity < ids->n + n_more)
        capacity = ids->n + n_more;
    int32_t *data = realloc(ids->data, (size_t)capacity * sizeof *data);
    if (data == NULL)
        return lathe_error(LATHE_E_NOMEM, "%lld token ids", (long long)capacity);
    ids->data = data;
    ids->capacity = capacity;
    return LATHE_OK;
}

lathe_status lathe_ids_append(lathe_ids *ids, const int32_t *data, int64_t n)
{
    LATHE_TRY(lathe_ids_reserve(ids, n));
    if (n > 0)
        memcpy(ids->data + ids->n, data, (size_t)n * sizeof *data);
    ids->n += n;
    return LATHE_OK;
}

void lathe_ids_fini(lathe_ids *ids)
{
    free(ids->data);
    memset(ids, 0, sizeof *ids);
}

/* Finds the reader plugin of a file. */
#include "data/records/readers.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "lathe/reader.h"

lathe_status lathe_readers_find(lathe_registry *registry, lathe_arena *arena, lathe_readers *out)
{
    const char **names = NULL;
    int64_t n = 0;
    *out = (lathe_readers){0};
    if (registry == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_registry_names(registry, LATHE_KIND_READER, arena, &names, &n));
    out->list = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof(const lathe_component *));
    if (out->list == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        const lathe_status status =
            lathe_registry_find(registry, LATHE_KIND_READER, names[i], &out->list[out->n]);
        if (status == LATHE_E_NOMEM)
            return status;
        if (status == LATHE_OK)
            out->n++;
        else
            lathe_log(LATHE_LOG_WARN, "%s", lathe_error_message());
    }
    lathe_error_clear();
    return LATHE_OK;
}

/* Whether the path ends with one of the suffixes, which spaces separate. */
static int has_suffix(const char *path, const char *suffixes)
{
    const size_t length = strlen(path);
    while (*suffixes) {
        const size_t n = strcspn(suffixes, " ");
        if (length > n && strncmp(path + length - n, suffixes, n) == 0)
            return 1;
        suffixes += n + (suffixes[n] == ' ');
    }
    return 0;
}

const lathe_component *lathe_readers_by_name(const lathe_readers *readers, const char *path)
{
    for (int64_t i = 0; i < readers->n; i++) {
        const lathe_reader_v1 *table = readers->list[i]->plugin->table;
        if (has_suffix(path, table->suffixes))
            return readers->list[i];
    }
    return NULL;
}

const lathe_component *lathe_readers_by_bytes(const lathe_readers *readers, const char *head,
                                              int64_t n, const char **out_format)
{
    for (int64_t i = 0; i < readers->n; i++) {
        const lathe_reader_v1 *table = readers->list[i]->plugin->table;
        for (int32_t k = 0; k < table->n_magics; k++) {
            const lathe_reader_magic *magic = &table->magics[k];
            *out_format = magic->format;
            if (n >= magic->n_bytes && memcmp(head, magic->bytes, (size_t)magic->n_bytes) == 0)
                return readers->list[i];
        }
    }
    *out_format = NULL;
    return NULL;
}

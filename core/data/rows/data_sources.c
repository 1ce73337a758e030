/* Records a run's data files in its checkpoints, and compares them on resume. */
#include "data/rows/data_sources.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum { MAX_FILES = 4096 };

void lathe_data_sources_json(const lathe_shards *shards, lathe_buffer *out)
{
    int64_t n = 0;
    const lathe_source *list = shards ? lathe_shards_sources(shards, &n) : NULL;
    lathe_buffer_puts(out, "[");
    for (int64_t i = 0; n <= MAX_FILES && i < n; i++) {
        lathe_buffer_puts(out, i ? ",\n    {\"path\": " : "\n    {\"path\": ");
        lathe_buffer_json_string(out, list[i].path);
        lathe_buffer_printf(out, ", \"bytes\": %lld, \"modified\": [%lld, %lld]}",
                            (long long)list[i].bytes, (long long)list[i].seconds,
                            (long long)list[i].nanoseconds);
    }
    lathe_buffer_puts(out, n > 0 && n <= MAX_FILES ? "\n  ]" : "]");
}

static const json_t *find(const json_t *files, const char *path)
{
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        const char *name = json_string_value(json_object_get(file, "path"));
        if (name && strcmp(name, path) == 0)
            return file;
    }
    return NULL;
}

static int is_listed(const lathe_source *list, int64_t n, const char *path)
{
    for (int64_t i = 0; i < n; i++)
        if (strcmp(list[i].path, path) == 0)
            return 1;
    return 0;
}

/* Writes how the file has changed; "" if it has not. */
static void compare(const lathe_source *now, const json_t *was, char *out, size_t bytes)
{
    const json_t *modified = json_object_get(was, "modified");
    const long long size = (long long)json_integer_value(json_object_get(was, "bytes"));
    out[0] = '\0';
    if (!was)
        (void)snprintf(out, bytes, "%s is new (%lld bytes)", now->path, (long long)now->bytes);
    else if (size != now->bytes)
        (void)snprintf(out, bytes, "%s has %lld bytes; it had %lld when the checkpoint was written",
                       now->path, (long long)now->bytes, size);
    else if (json_integer_value(json_array_get(modified, 0)) != now->seconds ||
             json_integer_value(json_array_get(modified, 1)) != now->nanoseconds)
        (void)snprintf(out, bytes, "%s was modified after the checkpoint was written", now->path);
}

lathe_status lathe_data_sources_explain(const lathe_shards *shards, const json_t *root,
                                        const char *path, lathe_status status)
{
    char what[1024] = "", message[1024];
    int64_t n = 0;
    const json_t *files = json_object_get(root, "sources");
    const lathe_source *list = shards ? lathe_shards_sources(shards, &n) : NULL;
    if (status != LATHE_E_STATE || json_array_size(files) == 0)
        return status;
    (void)snprintf(message, sizeof message, "%s", lathe_error_message());
    for (int64_t i = 0; i < n && !what[0]; i++)
        compare(&list[i], find(files, list[i].path), what, sizeof what);
    for (size_t i = 0; i < json_array_size(files) && !what[0]; i++) {
        const char *name = json_string_value(json_object_get(json_array_get(files, i), "path"));
        if (name && !is_listed(list, n, name))
            (void)snprintf(what, sizeof what,
                           "%s does not exist any more, or is no longer listed in data.datasets",
                           name);
    }
    if (!what[0])
        return lathe_error(status, "%s", message);
    return lathe_error(LATHE_E_CONFIG,
                       "%s cannot be resumed, because the data changed since it was written: "
                       "%s; put the data back as they were, or start a new run from its weights "
                       "with model.path",
                       path, what);
}

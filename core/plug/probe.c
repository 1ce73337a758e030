/* Tries out plugins in a child process before this process loads them. */
#include "plug/probe.h"

#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/error.h"
#include "lathe/attention.h"
#include "lathe/device.h"
#include "plug/plugin_instance.h"
#include "plug/probe_cache.h"
#include "plug/schema_check.h"
#include "plug/so.h"

enum { PROBE_SECONDS = 5 };

/* The files that one child tries: those that are not known, from `first` on. */
typedef struct batch {
    const lathe_probe *const *files;
    int64_t first, n;
} batch;

static void ask_score(const lathe_instance *instance)
{
    const lathe_plugin *plugin = instance->component->plugin;
    char why[256];
    if (plugin->kind == LATHE_KIND_DEVICE)
        (void)((const lathe_device_v1 *)plugin->table)->score(why, sizeof why);
    if (plugin->kind != LATHE_KIND_ATTENTION)
        return;
    (void)lathe_attention_takes_plain(instance, "avx2", 1);
    (void)lathe_attention_takes_plain(instance, "sm_90", 0);
}

/* Makes the calls that a listing makes. */
static void call(const lathe_probe *file, const lathe_plugin *plugin)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_diags diags = {0};
    lathe_value *values = NULL;
    const lathe_component component = {plugin, file->path};
    lathe_instance instance = {.component = &component, .table = plugin->table};
    const lathe_schema_scope scope = {.section = file->name};
    if (plugin->kind == LATHE_KIND_DEVICE) {
        ask_score(&instance);
        return;
    }
    if (lathe_schema_check(&scope, NULL, plugin->fields, plugin->n_fields, &arena, &diags,
                           &values) == LATHE_OK &&
        diags.n == 0 && lathe_instance_init(&instance, &component, values) == LATHE_OK) {
        ask_score(&instance);
        lathe_instance_fini(&instance);
    }
    lathe_diags_fini(&diags);
    lathe_arena_fini(&arena);
}

/* Runs in the child. Writes one byte to the parent after each file: '+' if it loads, '-' if it is
 * refused. */
static void try_all(void *arg, int fd)
{
    const batch *b = arg;
    for (int64_t i = b->first; i < b->n; i++) {
        const lathe_plugin *plugin = NULL;
        const lathe_probe *file = b->files[i];
        const int loads =
            lathe_so_open(file->path, file->kind, file->name, file->pin, &plugin) == LATHE_OK;
        if (loads)
            call(file, plugin);
        lathe_child_write(fd, loads ? "+" : "-", 1);
    }
}

static lathe_status set_fault(lathe_probe *file, const lathe_child_end *end, lathe_arena *arena)
{
    char how[128];
    lathe_child_end_text(end, PROBE_SECONDS, how, sizeof how);
    file->fault = lathe_arena_printf(
        arena, "%s: %s when it is loaded; `lathe plugin check` of the file shows where", file->path,
        how);
    return file->fault != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

/* Tries files[0 .. n), none of them known. Starts one more child after each crash. */
static lathe_status try_unknown(lathe_probe **files, int64_t n, lathe_probe_cache *cache,
                                lathe_arena *arena)
{
    batch b = {(const lathe_probe *const *)files, 0, n};
    while (b.first < n) {
        lathe_buffer out = LATHE_BUFFER_INIT;
        lathe_child_end end;
        const lathe_status status = lathe_child_run(try_all, &b, PROBE_SECONDS, &out, &end);
        const int64_t n_done = out.len;
        for (int64_t i = 0; i < n_done && b.first + i < n; i++)
            if (out.data[i] == '+')
                lathe_probe_cache_put(cache, files[b.first + i]->path, LATHE_CHILD_DONE);
        lathe_buffer_fini(&out);
        LATHE_TRY(status);
        if (end.how == LATHE_CHILD_DONE)
            return LATHE_OK;
        const int64_t last = b.first + n_done;
        if (last >= n) /* all were tried; the process failed afterwards */
            return LATHE_OK;
        b.first = last;
        if (n_done > 0)
            continue; /* tried again, alone in its process */
        LATHE_TRY(set_fault(files[last], &end, arena));
        lathe_probe_cache_put(cache, files[last]->path, end.how);
        b.first = last + 1;
    }
    return LATHE_OK;
}

lathe_status lathe_probe_run(lathe_probe *files, int64_t n, lathe_arena *arena)
{
    lathe_probe_cache cache;
    lathe_probe **unknown = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *unknown);
    int64_t n_unknown = 0;
    lathe_status status = LATHE_OK;
    if (unknown == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_probe_cache_load(&cache));
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const lathe_child_end hung = {LATHE_CHILD_HUNG, 0};
        const int32_t known = lathe_probe_cache_get(&cache, files[i].path);
        files[i].fault = NULL;
        if (known == LATHE_CHILD_HUNG)
            status = set_fault(&files[i], &hung, arena);
        else if (known != LATHE_CHILD_DONE)
            unknown[n_unknown++] = &files[i];
    }
    if (status == LATHE_OK && n_unknown > 0)
        status = try_unknown(unknown, n_unknown, &cache, arena);
    lathe_probe_cache_save(&cache);
    return status;
}

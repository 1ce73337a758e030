/* Manages the folder of a run's checkpoints. */
#include "checkpoint/state/checkpoint_folder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/stale.h"
#include "files/safetensors/manifest.h"

static int by_step(const void *a, const void *b)
{
    const lathe_checkpoint_entry *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

lathe_status lathe_checkpoint_list(const char *dir, lathe_arena *arena,
                                   lathe_checkpoint_entry **out, int64_t *out_n)
{
    char **names = NULL;
    int64_t n = 0, n_kept = 0;
    *out = NULL;
    *out_n = 0;
    LATHE_TRY(lathe_dir_list(dir, arena, &names, &n));
    lathe_checkpoint_entry *list = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *list);
    if (list == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        lathe_checkpoint_entry *e = &list[n_kept];
        if (!lathe_checkpoint_step(names[i], &e->step))
            continue;
        e->name = names[i];
        e->path = lathe_path_join(arena, dir, names[i]);
        if (e->path == NULL)
            return LATHE_E_NOMEM;
        n_kept += lathe_path_is_dir(e->path);
    }
    if (n_kept > 1)
        qsort(list, (size_t)n_kept, sizeof *list, by_step);
    *out = list;
    *out_n = n_kept;
    return LATHE_OK;
}

lathe_status lathe_checkpoint_point(const char *dir, const char *pointer, const char *name)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, dir, pointer);
    const lathe_status status =
        path ? lathe_file_write_atomic(path, name, (int64_t)strlen(name)) : LATHE_E_NOMEM;
    lathe_arena_fini(&arena);
    return status;
}

/* ---- the best checkpoints ---- */

lathe_status lathe_checkpoint_figure(const char *path, const char *key, int32_t read_back,
                                     double *out)
{
    char *text = NULL;
    json_t *meta = NULL;
    *out = NAN;
    lathe_status status = lathe_manifest_meta(path, &text);
    if (status == LATHE_OK && text)
        status = lathe_json_load(path, text, (int64_t)strlen(text), &meta);
    const json_t *figure = json_object_get(json_object_get(meta, "figures"), key);
    if (json_is_number(figure) && (!read_back || json_is_true(json_object_get(meta, "read_back"))))
        *out = json_number_value(figure);
    json_decref(meta);
    free(text);
    const int damaged = status == LATHE_E_CORRUPT || status == LATHE_E_NOT_FOUND;
    return damaged ? LATHE_OK : status;
}

int32_t lathe_checkpoint_better(const lathe_keep *keep, double a, double b)
{
    if (isnan(a) || isnan(b))
        return !isnan(a);
    return keep->higher ? a > b : a < b;
}

lathe_status lathe_checkpoint_best(const char *dir, const lathe_keep *keep, lathe_arena *arena,
                                   const lathe_checkpoint_entry **out, int64_t *out_n)
{
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0, n_kept = 0;
    *out = NULL;
    *out_n = 0;
    if (keep->best <= 0)
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_list(dir, arena, &list, &n));
    double *values = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *values);
    if (values == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++) { /* insertion sort; of equal ones the earlier comes first */
        const lathe_checkpoint_entry e = list[i];
        double value;
        LATHE_TRY(lathe_checkpoint_figure(e.path, keep->metric, keep->read_back, &value));
        if (isnan(value))
            continue;
        int64_t at = n_kept++;
        for (; at > 0 && lathe_checkpoint_better(keep, value, values[at - 1]); at--) {
            values[at] = values[at - 1];
            list[at] = list[at - 1];
        }
        values[at] = value;
        list[at] = e;
    }
    *out = list;
    *out_n = n_kept < keep->best ? n_kept : keep->best;
    return LATHE_OK;
}

static lathe_status point_best(const char *dir, const lathe_keep *keep, lathe_arena *arena)
{
    const lathe_checkpoint_entry *good = NULL;
    const char *now = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_checkpoint_best(dir, keep, arena, &good, &n));
    if (n == 0)
        return LATHE_OK;
    if (lathe_checkpoint_pointer(dir, "best", arena, &now) != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "%s: it is written anew", lathe_error_message());
    if (now && strcmp(now, good[0].name) == 0)
        return LATHE_OK;
    return lathe_checkpoint_point(dir, "best", good[0].name);
}

lathe_status lathe_checkpoint_point_best(const char *dir, const lathe_keep *keep)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = point_best(dir, keep, &arena);
    lathe_arena_fini(&arena);
    return status;
}

/* ---- removal ---- */

lathe_status lathe_checkpoint_remove(const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *going = lathe_arena_printf(&arena, "%s.tmp.%ld", path, (long)getpid());
    lathe_status status = going ? lathe_dir_remove(going) : LATHE_E_NOMEM;
    if (status == LATHE_OK && rename(path, going) != 0)
        status = lathe_error(LATHE_E_IO, "%s: cannot remove: %s", path, strerror(errno));
    if (status == LATHE_OK)
        status = lathe_dir_remove(going);
    lathe_arena_fini(&arena);
    return status;
}

static int32_t is_named(const char *name, const lathe_checkpoint_entry *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return 1;
    return 0;
}

static lathe_status remove_old(const char *dir, const lathe_keep *keep, lathe_arena *arena)
{
    lathe_checkpoint_entry *list = NULL;
    const lathe_checkpoint_entry *good = NULL;
    const char *latest = NULL, *best = NULL;
    int64_t n = 0, n_good = 0;
    LATHE_TRY(lathe_checkpoint_pointer(dir, "latest", arena, &latest));
    LATHE_TRY(lathe_checkpoint_pointer(dir, "best", arena, &best));
    LATHE_TRY(lathe_checkpoint_best(dir, keep, arena, &good, &n_good));
    LATHE_TRY(lathe_checkpoint_list(dir, arena, &list, &n));
    for (int64_t i = 0; i < n - keep->last; i++) {
        const char *name = list[i].name;
        if ((latest && strcmp(name, latest) == 0) || (best && strcmp(name, best) == 0) ||
            is_named(name, good, n_good))
            continue;
        LATHE_TRY(lathe_checkpoint_remove(list[i].path));
    }
    return LATHE_OK;
}

lathe_status lathe_checkpoint_remove_old(const char *dir, const lathe_keep *keep)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = keep->last > 0 ? remove_old(dir, keep, &arena) : LATHE_OK;
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_checkpoint_remove_stale(const char *dir)
{
    return lathe_stale_remove(dir, NULL);
}

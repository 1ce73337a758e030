/* Begins and lists the branches of a run. */
#include "checkpoint/state/checkpoint_branch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log.h"
#include "checkpoint/state/checkpoint.h"
#include "metrics/metrics.h"

#define FILE_NAME "branches.json"
#define FILE_VERSION 1

/* ---- the file ---- */

lathe_status lathe_branches_read(const char *dir, json_t **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *root = NULL;
    const char *path = lathe_path_join(&arena, dir, FILE_NAME);
    lathe_status status = path ? LATHE_OK : LATHE_E_NOMEM;
    *out = NULL;
    if (status == LATHE_OK && lathe_path_exists(path)) {
        status = lathe_json_load_file(path, &root);
        json_t *list = json_object_get(root, "branches");
        if (status == LATHE_OK && (!json_is_array(list) || json_integer_value(json_object_get(
                                                               root, "version")) != FILE_VERSION))
            status = lathe_error(LATHE_E_CORRUPT, "%s: not a list of branches of version %d", path,
                                 FILE_VERSION);
        *out = status == LATHE_OK ? json_incref(list) : NULL;
    } else if (status == LATHE_OK) {
        *out = json_array();
    }
    if (status == LATHE_OK && *out == NULL)
        status = lathe_error(LATHE_E_NOMEM, "%s: no memory for its branches", dir);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status write_branches(const char *dir, json_t *list)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, dir, FILE_NAME);
    json_t *root = json_pack("{s:s, s:i, s:O}", "format", "lathe-branches", "version", FILE_VERSION,
                             "branches", list);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    lathe_status status = path && text
                              ? lathe_file_write_atomic(path, text, (int64_t)strlen(text))
                              : lathe_error(LATHE_E_NOMEM, "%s: no memory for its branches", dir);
    free(text);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

static int64_t number_of(const json_t *record)
{
    return (int64_t)json_integer_value(json_object_get(record, "number"));
}

static int64_t step_of(const json_t *record)
{
    return (int64_t)json_integer_value(json_object_get(record, "step"));
}

static json_t *last_of(const json_t *list)
{
    const size_t n = json_array_size(list);
    return n ? json_array_get(list, n - 1) : NULL;
}

static char *folder_of(lathe_arena *arena, const char *dir, int64_t number)
{
    return lathe_arena_printf(arena, "%s/abandoned/branch-%lld", dir, (long long)number);
}

lathe_status lathe_branch_abandoned(const char *dir, int64_t number, lathe_arena *arena,
                                    lathe_checkpoint_entry **out, int64_t *out_n)
{
    const char *folder = folder_of(arena, dir, number);
    *out = NULL;
    *out_n = 0;
    if (folder == NULL)
        return LATHE_E_NOMEM;
    return lathe_path_is_dir(folder) ? lathe_checkpoint_list(folder, arena, out, out_n) : LATHE_OK;
}

lathe_status lathe_branch_origin(const char *dir, lathe_arena *arena, const char **out_path)
{
    json_t *list = NULL;
    *out_path = NULL;
    LATHE_TRY(lathe_branches_read(dir, &list));
    const char *from = json_string_value(json_object_get(last_of(list), "from"));
    if (from && from[0] == '/')
        *out_path = lathe_arena_strdup(arena, from);
    const lathe_status status =
        from && from[0] == '/' && *out_path == NULL ? LATHE_E_NOMEM : LATHE_OK;
    json_decref(list);
    return status;
}

lathe_status lathe_checkpoint_ahead(const char *dir, const char *latest, lathe_arena *arena,
                                    const char **out_path)
{
    const char *slash = strrchr(latest, '/');
    lathe_checkpoint_entry *list = NULL;
    json_t *branches = NULL;
    int64_t n = 0, step = -1;
    *out_path = latest;
    if (!lathe_checkpoint_step(slash ? slash + 1 : latest, &step))
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_list(dir, arena, &list, &n));
    if (n == 0 || list[n - 1].step <= step)
        return LATHE_OK;
    LATHE_TRY(lathe_branches_read(dir, &branches));
    const json_t *last = last_of(branches);
    if (last == NULL || json_is_true(json_object_get(last, "done")))
        *out_path = list[n - 1].path;
    json_decref(branches);
    return LATHE_OK;
}

/* ---- the checkpoint to which the run went back ---- */

/* State of beginning a branch. */
typedef struct branching {
    const char *dir; /* the run's folder */
    lathe_keep keep;
    lathe_arena arena;
    json_t *list;        /* the list of branches.json */
    const char *from;    /* a name in the folder, or an absolute path */
    int64_t step;        /* of `from` */
    int64_t newest_kept; /* steps in the folder up to this one are ancestors; -1: none is */
    int32_t began;       /* 1: a branch was begun, or an interrupted beginning was completed */
} branching;

/* Returns K of a path ".../abandoned/branch-K" in the folder; 0 for any other path. */
static int64_t abandoned_number(const char *dir, const char *parent)
{
    const size_t n = strlen(dir);
    long long number = 0;
    if (strncmp(parent, dir, n) != 0 || sscanf(parent + n, "/abandoned/branch-%lld", &number) != 1)
        return 0;
    return number;
}

/* The last step that the newest branch shares with abandoned branch `number`. */
static int64_t shared_step(const json_t *list, int64_t number)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *record = json_array_get(list, i);
        if (number_of(record) >= number && step_of(record) < least)
            least = step_of(record);
    }
    return least == INT64_MAX ? -1 : least;
}

static lathe_status find_place(branching *b, const char *path)
{
    char *own = realpath(b->dir, NULL), *real = realpath(path, NULL);
    int64_t step;
    lathe_status status = LATHE_OK;
    if (own == NULL || real == NULL)
        status = lathe_error(LATHE_E_IO, "%s: cannot be resolved: %s", own ? path : b->dir,
                             strerror(errno));
    char *slash = real ? strrchr(real, '/') : NULL;
    if (status == LATHE_OK && slash) {
        b->from = lathe_arena_strdup(&b->arena, real);
        *slash = '\0';
        const int is_own = strcmp(real, own) == 0 && lathe_checkpoint_step(slash + 1, &step);
        const int64_t number = abandoned_number(own, real);
        b->newest_kept = is_own ? b->step : number > 0 ? shared_step(b->list, number) : -1;
        if (b->from && is_own)
            b->from = strrchr(b->from, '/') + 1;
        status = b->from ? LATHE_OK : LATHE_E_NOMEM;
    }
    free(own);
    free(real);
    return status;
}

static int is_inside(const branching *b)
{
    return b->from[0] != '/';
}

/* ---- steps that begin a branch ---- */

static int leaves(const branching *b, const lathe_checkpoint_entry *e)
{
    return e->step > b->newest_kept;
}

/* Lists the names of the checkpoints to move. */
static lathe_status list_leaving(branching *b, json_t **out)
{
    lathe_checkpoint_entry *entries = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_checkpoint_list(b->dir, &b->arena, &entries, &n));
    *out = json_array();
    for (int64_t i = 0; i < n; i++)
        if (leaves(b, &entries[i]))
            (void)json_array_append_new(*out, json_string(entries[i].name));
    return *out ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "%s: no memory for a branch", b->dir);
}

static lathe_status remove_pointer(branching *b, const char *pointer)
{
    const char *path = lathe_path_join(&b->arena, b->dir, pointer);
    if (path == NULL)
        return LATHE_E_NOMEM;
    if (unlink(path) != 0 && errno != ENOENT)
        return lathe_error(LATHE_E_IO, "%s: cannot remove: %s", path, strerror(errno));
    return lathe_dir_sync(b->dir);
}

static lathe_status keep_lines(branching *b, const char *folder, const char *name)
{
    const char *from = lathe_path_join(&b->arena, b->dir, name);
    const char *to = lathe_path_join(&b->arena, folder, name);
    return from && to ? lathe_lines_copy_after(from, b->step, to) : LATHE_E_NOMEM;
}

/* Sets `latest` to the checkpoint from which the run continues (removes it if that is outside the
 * folder). Removes `best` if it names a checkpoint to be moved. */
static lathe_status move_pointers(branching *b)
{
    const char *latest = NULL, *best = NULL;
    int64_t step = -1;
    if (lathe_checkpoint_pointer(b->dir, "latest", &b->arena, &latest) != LATHE_OK)
        latest = NULL; /* it is written again */
    if (is_inside(b) && (latest == NULL || strcmp(latest, b->from) != 0))
        LATHE_TRY(lathe_checkpoint_point(b->dir, "latest", b->from));
    if (!is_inside(b))
        LATHE_TRY(remove_pointer(b, "latest"));
    const lathe_status status = lathe_checkpoint_pointer(b->dir, "best", &b->arena, &best);
    if (status != LATHE_OK || (best && lathe_checkpoint_step(best, &step) && step > b->newest_kept))
        return remove_pointer(b, "best");
    return LATHE_OK;
}

static lathe_status move_entries(branching *b, const char *folder)
{
    lathe_checkpoint_entry *entries = NULL;
    int64_t n = 0, n_moved = 0;
    LATHE_TRY(lathe_checkpoint_list(b->dir, &b->arena, &entries, &n));
    for (int64_t i = 0; i < n; i++) {
        if (!leaves(b, &entries[i]))
            continue;
        const char *to = lathe_path_join(&b->arena, folder, entries[i].name);
        if (to == NULL)
            return LATHE_E_NOMEM;
        if (rename(entries[i].path, to) != 0)
            return lathe_error(LATHE_E_IO, "%s: cannot move to %s: %s", entries[i].path, to,
                               strerror(errno));
        n_moved++;
    }
    if (n_moved == 0)
        return LATHE_OK;
    LATHE_TRY(lathe_dir_sync(folder));
    return lathe_dir_sync(b->dir);
}

/* Sets `best` to the best of the checkpoints that are not moved. */
static lathe_status point_best(branching *b)
{
    const lathe_checkpoint_entry *good = NULL;
    const char *now = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_checkpoint_best(b->dir, &b->keep, &b->arena, &good, &n));
    LATHE_TRY(lathe_checkpoint_pointer(b->dir, "best", &b->arena, &now));
    return n > 0 && now == NULL ? lathe_checkpoint_point(b->dir, "best", good[0].name) : LATHE_OK;
}

/* Does everything after the record is written. It may be repeated from its start at any time. */
static lathe_status finish(branching *b, json_t *record)
{
    const char *folder = folder_of(&b->arena, b->dir, number_of(record));
    if (folder == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_dir_create(folder));
    LATHE_TRY(lathe_file_sync_parent(folder));
    LATHE_TRY(keep_lines(b, folder, "metrics.jsonl"));
    LATHE_TRY(keep_lines(b, folder, "samples.jsonl"));
    LATHE_TRY(move_pointers(b));
    LATHE_TRY(move_entries(b, folder));
    LATHE_TRY(point_best(b));
    (void)json_object_set_new(record, "done", json_true());
    return write_branches(b->dir, b->list);
}

/* ---- is an interrupted beginning to be completed? ---- */

/* Marks an interrupted beginning as done without completing it; checkpoints that it moved are
 * not moved back. If it moved none, its record is removed. */
static lathe_status close_interrupted(branching *b, json_t *record)
{
    lathe_checkpoint_entry *entries = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_branch_abandoned(b->dir, number_of(record), &b->arena, &entries, &n));
    json_t *names = json_array();
    for (int64_t i = 0; i < n; i++)
        (void)json_array_append_new(names, json_string(entries[i].name));
    (void)json_object_set_new(record, "abandoned", names);
    (void)json_object_set_new(record, "done", json_true());
    if (n == 0)
        (void)json_array_remove(b->list, json_array_size(b->list) - 1);
    return write_branches(b->dir, b->list);
}

static void tell(const branching *b, const json_t *record)
{
    const json_t *names = json_object_get(record, "abandoned");
    const size_t n = json_array_size(names);
    if (n == 0)
        return;
    const char *first = json_string_value(json_array_get(names, 0));
    const char *last = json_string_value(json_array_get(names, n - 1));
    lathe_log(LATHE_LOG_WARN,
              "the run continues from step %lld as branch %lld: %zu checkpoint%s of the branch "
              "before (%s%s%s) moved to %s/abandoned/branch-%lld",
              (long long)b->step, (long long)number_of(record), n, n == 1 ? "" : "s",
              first ? first : "", n > 1 ? " to " : "", n > 1 && last ? last : "", b->dir,
              (long long)number_of(record));
}

static lathe_status begin_next(branching *b, json_t *leaving, int32_t is_rewind)
{
    const json_t *last = last_of(b->list);
    json_t *record = json_pack("{s:I, s:s, s:I, s:o, s:I, s:b, s:O}", "number",
                               (json_int_t)(last ? number_of(last) + 1 : 1), "why",
                               is_rewind ? "rewind" : "resume", "step", (json_int_t)b->step, "from",
                               lathe__json_text(b->from), "time", (json_int_t)time(NULL), "done", 0,
                               "abandoned", leaving);
    if (record == NULL || json_array_append_new(b->list, record) != 0)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for a branch", b->dir);
    LATHE_TRY(write_branches(b->dir, b->list));
    LATHE_TRY(finish(b, record));
    tell(b, record);
    b->began = 1;
    return LATHE_OK;
}

/* Finds the record of an interrupted beginning of this same branch. NULL: there is none, or it
 * belonged to another branch and was closed. */
static lathe_status take_interrupted(branching *b, json_t **out)
{
    json_t *record = last_of(b->list);
    const char *from = json_string_value(json_object_get(record, "from"));
    *out = NULL;
    if (record == NULL || json_is_true(json_object_get(record, "done")))
        return LATHE_OK;
    if (from == NULL || strcmp(from, b->from) != 0 || step_of(record) != b->step)
        return close_interrupted(b, record);
    *out = record;
    return LATHE_OK;
}

static lathe_status begin(branching *b, const char *path, int32_t is_rewind)
{
    json_t *interrupted = NULL, *leaving = NULL;
    LATHE_TRY(lathe_branches_read(b->dir, &b->list));
    LATHE_TRY(find_place(b, path));
    LATHE_TRY(take_interrupted(b, &interrupted));
    if (interrupted) {
        LATHE_TRY(finish(b, interrupted));
        tell(b, interrupted);
        b->began = 1;
        if (!is_rewind)
            return LATHE_OK;
    }
    LATHE_TRY(list_leaving(b, &leaving));
    const lathe_status status =
        is_rewind || json_array_size(leaving) > 0 ? begin_next(b, leaving, is_rewind) : LATHE_OK;
    json_decref(leaving);
    return status;
}

static lathe_status know(const lathe_saved_state *saved, const json_t *list)
{
    lathe_branch *branch = &saved->checkpoints->branch;
    const json_t *last = last_of(list);
    if (last == NULL)
        return LATHE_OK;
    char *text = json_dumps(list, JSON_COMPACT);
    branch->number = number_of(last);
    branch->json = text ? lathe_arena_strdup(saved->arena, text) : NULL;
    free(text);
    return branch->json ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for branches");
}

lathe_status lathe_branch_know(const lathe_saved_state *saved)
{
    json_t *list = NULL;
    LATHE_TRY(lathe_branches_read(saved->set->dir, &list));
    const lathe_status status = know(saved, list);
    json_decref(list);
    return status;
}

lathe_status lathe_branch_begin(const lathe_saved_state *saved, const char *path, int32_t is_rewind)
{
    branching b = {.dir = saved->set->dir,
                   .keep = lathe__checkpoint_keep(saved),
                   .arena = LATHE_ARENA_INIT,
                   .step = saved->at->step};
    lathe_status status = begin(&b, path, is_rewind);
    if (status == LATHE_OK) {
        status = know(saved, b.list);
        saved->checkpoints->branch.began |= b.began && last_of(b.list);
    }
    json_decref(b.list);
    lathe_arena_fini(&b.arena);
    return status;
}

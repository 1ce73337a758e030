/* Reads the folder of a run. */
#include "view/run_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"

static double seconds_of(const struct timespec *t)
{
    return (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
}

/* A number that changes when a file is written; 0: there is no file. */
static int64_t stamp_of(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return 0;
    return (int64_t)((uint64_t)info.st_mtim.tv_sec * 1000003u +
                     (uint64_t)info.st_mtim.tv_nsec * 31u + (uint64_t)info.st_size * 7u +
                     (uint64_t)info.st_ino) |
           1;
}

lathe_status lathe_run_view_init(lathe_run_view *v, const char *dir)
{
    *v = (lathe_run_view){.dir = dir, .step = -1};
    if (!lathe_path_is_dir(dir))
        return lathe_error(LATHE_E_NOT_FOUND,
                           "%s: no such folder; expected the checkpoint.dir of a run", dir);
    const char *path = lathe_path_join(&v->arena, dir, "metrics.jsonl");
    return path ? lathe_metrics_reader_create(path, &v->reader) : LATHE_E_NOMEM;
}

void lathe_run_view_fini(lathe_run_view *v)
{
    for (int32_t i = 0; i < LATHE_METRICS_MAX_KEYS; i++)
        lathe_series_fini(&v->series[i]);
    lathe_metrics_reader_destroy(v->reader);
    json_decref(v->record);
    lathe_arena_fini(&v->checkpoint_arena);
    lathe_arena_fini(&v->arena);
}

/* ---- metrics ---- */

static void take_row(void *arg, const lathe_metrics_row *row)
{
    lathe_run_view *v = arg;
    if (row == NULL) { /* a resumed run replaced the file */
        for (int32_t i = 0; i < LATHE_METRICS_MAX_KEYS; i++)
            lathe_series_fini(&v->series[i]);
        v->step = -1;
        return;
    }
    /* the run went back: cut all curves, also those without a value in this row */
    if (row->step < v->step)
        for (int32_t i = 0; i < LATHE_METRICS_MAX_KEYS; i++)
            lathe_series_cut(&v->series[i], row->step);
    v->step = row->step;
    for (int32_t i = 0; i < row->n; i++) {
        const lathe_status status =
            lathe_series_add(&v->series[row->keys[i]], row->step, row->values[i]);
        if (v->series_status == LATHE_OK)
            v->series_status = status;
    }
}

/* ---- run.json ---- */

/* Keeps the last valid run.json: a file that is missing for a moment must not end the view. */
static void read_record(lathe_run_view *v, const char *path)
{
    json_t *root = NULL;
    const int64_t stamp = stamp_of(path);
    if (stamp == v->record_stamp)
        return;
    v->record_stamp = stamp;
    if (stamp == 0 || lathe_json_load_file(path, &root) != LATHE_OK || !json_is_object(root)) {
        lathe_error_clear();
        json_decref(root);
        return;
    }
    json_decref(v->record);
    v->record = root;
}

const json_t *lathe_run_view_get(const lathe_run_view *v, const char *path)
{
    const json_t *at = v->record;
    while (at) {
        char key[64];
        const size_t n = strcspn(path, ".");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
        at = json_object_get(at, key);
        if (path[n] == '\0')
            break;
        path += n + 1;
    }
    return at;
}

const char *lathe_run_view_text(const lathe_run_view *v, const char *path)
{
    const char *s = json_string_value(lathe_run_view_get(v, path));
    return s ? s : "";
}

double lathe_run_view_number(const lathe_run_view *v, const char *path)
{
    const json_t *value = lathe_run_view_get(v, path);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const json_t *lathe_run_view_start(const lathe_run_view *v)
{
    const json_t *lineage = lathe_run_view_get(v, "lineage");
    const size_t n = json_array_size(lineage);
    return n > 0 ? json_array_get(lineage, n - 1) : NULL;
}

/* ---- checkpoints ---- */

static int64_t folder_bytes(const char *path, lathe_arena *arena)
{
    char **files = NULL;
    int64_t n = 0, bytes = 0;
    struct stat info;
    if (lathe_dir_walk(path, arena, &files, &n) != LATHE_OK)
        return 0;
    for (int64_t i = 0; i < n; i++)
        bytes += stat(files[i], &info) == 0 ? (int64_t)info.st_size : 0;
    return bytes;
}

/* Reads the first line of dir/name ("step-00000100"), or "". */
static void read_pointer(const lathe_run_view *v, lathe_arena *arena, const char *name, char *out,
                         size_t bytes)
{
    const char *path = lathe_path_join(arena, v->dir, name);
    FILE *f = NULL;
    if (path && lathe_file_stream(path, &f) != LATHE_OK)
        lathe_error_clear();
    if (f == NULL || fgets(out, (int)bytes, f) == NULL)
        out[0] = '\0';
    out[strcspn(out, " \r\n")] = '\0';
    if (f)
        (void)fclose(f);
}

/* Step of a folder "step-00000100" that has a manifest, which is written last. -1: not a
 * checkpoint. */
static int64_t checkpoint_step(const char *name)
{
    char *end = NULL;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    const long long step = strtoll(name + 5, &end, 10);
    return *end == '\0' ? (int64_t)step : -1;
}

static void add_checkpoint(lathe_run_view *v, const char *name)
{
    struct stat info;
    const int64_t step = checkpoint_step(name);
    const char *path = step >= 0 ? lathe_path_join(&v->checkpoint_arena, v->dir, name) : NULL;
    const char *manifest =
        path ? lathe_path_join(&v->checkpoint_arena, path, "manifest.json") : NULL;
    if (manifest == NULL || stat(manifest, &info) != 0)
        return;
    v->checkpoints[v->n_checkpoints++] =
        (lathe_checkpoint_view){.name = name,
                                .step = step,
                                .bytes = folder_bytes(path, &v->checkpoint_arena),
                                .written = seconds_of(&info.st_mtim),
                                .eval_loss = (double)NAN};
}

static int by_step(const void *a, const void *b)
{
    const int64_t x = ((const lathe_checkpoint_view *)a)->step;
    const int64_t y = ((const lathe_checkpoint_view *)b)->step;
    return (x > y) - (x < y);
}

static lathe_status read_checkpoints(lathe_run_view *v)
{
    char **names = NULL;
    int64_t n = 0;
    lathe_arena_fini(&v->checkpoint_arena);
    v->n_checkpoints = 0;
    v->checkpoints = NULL;
    if (lathe_dir_list(v->dir, &v->checkpoint_arena, &names, &n) != LATHE_OK)
        return LATHE_OK; /* the folder was removed */
    v->checkpoints =
        lathe_arena_alloc(&v->checkpoint_arena, (n + 1) * (int64_t)sizeof *v->checkpoints);
    if (v->checkpoints == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++)
        add_checkpoint(v, names[i]);
    qsort(v->checkpoints, (size_t)v->n_checkpoints, sizeof *v->checkpoints, by_step);
    return LATHE_OK;
}

/* Adds to the checkpoints what the metrics and the pointers say. */
static void mark_checkpoints(lathe_run_view *v, lathe_arena *scratch)
{
    char latest[128], best[128];
    const lathe_series *eval = lathe_run_view_series(v, "eval_loss");
    lathe_checkpoint_view *least = NULL;
    read_pointer(v, scratch, "latest", latest, sizeof latest);
    read_pointer(v, scratch, "best", best, sizeof best);
    for (int64_t i = 0; i < v->n_checkpoints; i++) {
        lathe_checkpoint_view *c = &v->checkpoints[i];
        c->is_latest = strcmp(c->name, latest) == 0;
        c->is_best = strcmp(c->name, best) == 0;
        c->eval_loss = eval ? lathe_series_at(eval, c->step) : (double)NAN;
        if (isfinite(c->eval_loss) && (least == NULL || c->eval_loss < least->eval_loss))
            least = c;
    }
    if (best[0] == '\0' && least)
        least->is_best = 1;
}

/* ---- refresh ---- */

static lathe_status refresh(lathe_run_view *v, lathe_arena *scratch)
{
    struct stat info;
    const int64_t metrics_stamp = v->metrics_stamp, checkpoint_stamp = v->checkpoint_stamp;
    const char *metrics = lathe_path_join(scratch, v->dir, "metrics.jsonl");
    const char *record = lathe_path_join(scratch, v->dir, "run.json");
    const char *latest = lathe_path_join(scratch, v->dir, "latest");
    if (metrics == NULL || record == NULL || latest == NULL)
        return LATHE_E_NOMEM;
    /* Takes the stamps before reading, so that a change in between is seen next time. */
    v->metrics_stamp = stamp_of(metrics);
    v->checkpoint_stamp = stamp_of(v->dir) ^ stamp_of(latest);
    v->metrics_written = stat(metrics, &info) == 0 ? seconds_of(&info.st_mtim) : 0.0;
    read_record(v, record);
    if (v->metrics_stamp != metrics_stamp) {
        LATHE_TRY(lathe_metrics_reader_poll(v->reader, take_row, v));
        LATHE_TRY(v->series_status);
    }
    if (v->checkpoint_stamp != checkpoint_stamp)
        LATHE_TRY(read_checkpoints(v));
    mark_checkpoints(v, scratch);
    return LATHE_OK;
}

lathe_status lathe_run_view_refresh(lathe_run_view *v)
{
    lathe_arena scratch = LATHE_ARENA_INIT;
    const lathe_status status = refresh(v, &scratch);
    lathe_arena_fini(&scratch);
    return status;
}

lathe_status lathe_run_view_check(const lathe_run_view *v)
{
    if (v->record || v->step >= 0 || v->n_checkpoints > 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_NOT_FOUND,
                       "%s: no run in it: neither run.json, nor metrics.jsonl, nor a checkpoint; "
                       "expected the checkpoint.dir of a run that was started",
                       v->dir);
}

const lathe_series *lathe_run_view_series(const lathe_run_view *v, const char *key)
{
    for (int32_t i = 0; i < lathe_metrics_reader_n_keys(v->reader); i++)
        if (strcmp(lathe_metrics_reader_key(v->reader, i), key) == 0)
            return v->series[i].n > 0 ? &v->series[i] : NULL;
    return NULL;
}

double lathe_run_view_last(const lathe_run_view *v, const char *key)
{
    const lathe_series *s = lathe_run_view_series(v, key);
    return s ? lathe_series_last(s) : (double)NAN;
}

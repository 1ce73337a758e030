/* Writes the record of a run's starts. run_describe.c makes the description of the run. */
#include "train/run_record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/process.h"
#include "checkpoint/state/checkpoint_branch.h"
#include "checkpoint/state/checkpoint_info.h"
#include "config/config_changes.h"
#include "train/run_describe.h"

static void utc_now(char out[32])
{
    const time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) == NULL || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        (void)snprintf(out, 32, "%lld", (long long)now);
}

/* ---- events.jsonl ---- */

/* One write per line, so that lines of several threads do not mix. */
static void write_event(void *arg, int32_t level, const char *text)
{
    const lathe_run_record *record = arg;
    lathe_buffer line = LATHE_BUFFER_INIT;
    char now[32];
    utc_now(now);
    lathe_buffer_printf(&line, "{\"time\": \"%s\", \"level\": \"%s\", \"text\": ", now,
                        level >= LATHE_LOG_ERROR ? "error" : "warning");
    lathe_buffer_json_string(&line, text);
    lathe_buffer_puts(&line, "}\n");
    if (line.status == LATHE_OK && write(record->events, line.data, (size_t)line.len) < 0) {
        /* a full disk: the message went to the log as well */
    }
    lathe_buffer_fini(&line);
}

static void open_events(lathe_run_record *record, const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, dir, "events.jsonl");
    record->events =
        path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666)
             : -1;
    if (record->events < 0)
        lathe_log(LATHE_LOG_WARN, "%s: cannot append: %s", path ? path : dir, strerror(errno));
    else
        lathe_log_set_tap(write_event, record);
    lathe_arena_fini(&arena);
}

/* ---- run.json ---- */

/* Renames an unreadable file to a free name. */
static lathe_status set_aside(const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = LATHE_E_IO;
    for (int i = 1; i < 1000; i++) {
        const char *aside = lathe_arena_printf(&arena, "%s.damaged-%d", path, i);
        if (aside == NULL) {
            status = LATHE_E_NOMEM;
            break;
        }
        if (link(path, aside) == 0) { /* unlike rename, link never replaces a file */
            status = unlink(path) == 0 ? LATHE_OK : LATHE_E_IO;
            lathe_log(LATHE_LOG_WARN, "%s; it was set aside as %s", lathe_error_message(), aside);
            break;
        }
        if (errno != EEXIST)
            break;
    }
    if (status == LATHE_E_IO)
        status = lathe_error(LATHE_E_IO, "%s: cannot be set aside: %s", path, strerror(errno));
    lathe_arena_fini(&arena);
    return status;
}

/* Reads the record of earlier starts; NULL if there is none. A damaged one is renamed. */
static lathe_status read_earlier(const char *path, json_t **out)
{
    *out = NULL;
    if (!lathe_path_exists(path))
        return LATHE_OK;
    lathe_status status = lathe_json_load_file(path, out);
    if (status == LATHE_OK && !json_is_array(json_object_get(*out, "lineage")))
        status = lathe_error(LATHE_E_CORRUPT, "%s: not the record of a run: no 'lineage'", path);
    if (status == LATHE_OK)
        return LATHE_OK;
    json_decref(*out);
    *out = NULL;
    if (status == LATHE_E_PARSE || status == LATHE_E_CORRUPT)
        return set_aside(path);
    return status; /* unreadable: leave it alone */
}

static lathe_status write_json(const char *path, const json_t *root)
{
    char *text = json_dumps(root, JSON_INDENT(2));
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for its text", path);
    const lathe_status status = lathe_file_write_atomic(path, text, (int64_t)strlen(text));
    free(text);
    return status;
}

/* Lists what this start changed since the checkpoint that it resumes from, or else since the start
 * before it (config_changes.h). NULL: nothing, or unknown. */
static json_t *changes(const json_t *earlier, const char *from, const json_t *now)
{
    json_t *meta = NULL, *out = NULL;
    if (from && lathe_checkpoint_meta(from, &meta) != LATHE_OK)
        lathe_error_clear(); /* the start before it will do */
    const json_t *before = json_object_get(meta ? meta : earlier, "config");
    if (json_is_object(before))
        out = lathe_config_changes(before, now);
    json_decref(meta);
    if (json_object_size(out) > 0)
        return out;
    json_decref(out);
    return NULL;
}

/* Reads the line of a file of one line, without its newline. */
static void read_line(const char *path, char *out, size_t bytes)
{
    FILE *f = NULL;
    if (lathe_file_stream(path, &f) != LATHE_OK)
        lathe_error_clear();
    if (f == NULL || fgets(out, (int)bytes, f) == NULL)
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (f)
        (void)fclose(f);
}

static json_t *this_start(const lathe_counters *at, const char *started, const char *from)
{
    char host[256] = "", boot[64];
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    json_t *entry = json_object();
    json_object_set_new(entry, "time", json_string(started));
    json_object_set_new(entry, "step", json_integer(at->step));
    json_object_set_new(entry, "from", from ? lathe__json_text(from) : json_null());
    json_object_set_new(entry, "lathe", json_string(lathe_version()));
    json_object_set_new(entry, "host", lathe__json_text(host));
    json_object_set_new(entry, "pid", json_integer(getpid()));
    json_object_set_new(entry, "start_ticks", json_integer(lathe_process_born(getpid())));
    json_object_set_new(entry, "boot", lathe__json_text(boot));
    return entry;
}

/* Adds the branch of this start, and what was moved when it began that branch. */
static void add_branch(const lathe_run *run, json_t *entry)
{
    json_t *list = NULL;
    if (lathe_branches_read(run->set.checkpoint.dir, &list) != LATHE_OK) {
        lathe_log(LATHE_LOG_WARN, "%s", lathe_error_message());
        return;
    }
    const size_t n = json_array_size(list);
    const json_t *last = n ? json_array_get(list, n - 1) : NULL;
    json_object_set_new(entry, "branch", json_integer(run->checkpoints.branch.number));
    if (run->checkpoints.branch.began)
        json_object_set(entry, "abandoned", json_object_get(last, "abandoned"));
    json_decref(list);
}

/* Adds the times when the run went back while it ran: the branches after `first`. */
static void add_rewinds(const lathe_checkpoint_settings *set, json_t *entry)
{
    json_t *list = NULL, *rewinds = json_array();
    const int64_t first = (int64_t)json_integer_value(json_object_get(entry, "branch"));
    if (lathe_branches_read(set->dir, &list) != LATHE_OK)
        list = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *record = json_array_get(list, i);
        if (json_integer_value(json_object_get(record, "number")) > first)
            json_array_append(rewinds, record);
    }
    if (json_array_size(rewinds) > 0)
        json_object_set(entry, "rewinds", rewinds);
    json_decref(rewinds);
    json_decref(list);
}

static lathe_status begin(lathe_run_record *record, const char *from, double peak_flops)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *earlier = NULL, *root = NULL;
    const char *path = lathe_path_join(&arena, record->run->set.checkpoint.dir, "run.json");
    lathe_status status = path ? read_earlier(path, &earlier) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = lathe__run_describe(record->run, peak_flops, &root);
    if (status == LATHE_OK) {
        json_t *entry = this_start(&record->run->at, record->started, from);
        json_t *lineage = json_object_get(earlier, "lineage");
        json_t *changed = changes(earlier, from, json_object_get(root, "config"));
        if (changed)
            json_object_set_new(entry, "changed", changed);
        add_branch(record->run, entry);
        if (lineage)
            json_object_set(root, "lineage", lineage);
        else
            json_object_set_new(root, "lineage", json_array());
        json_array_append_new(json_object_get(root, "lineage"), entry);
        status = write_json(path, root);
    }
    json_decref(root);
    json_decref(earlier);
    lathe_arena_fini(&arena);
    return status;
}

void lathe_run_record_begin(lathe_run_record *record, lathe_run *run, const char *from,
                            double peak_flops)
{
    *record = (lathe_run_record){.events = -1};
    if (run->set.checkpoint.dir == NULL)
        return;
    record->run = run;
    utc_now(record->started);
    open_events(record, run->set.checkpoint.dir);
    if (begin(record, from, peak_flops) != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "the run's record was not written: %s", lathe_error_message());
    lathe_error_clear();
}

/* The lineage entry of this start, or NULL when another process replaced the file meanwhile. */
static json_t *own_entry(const json_t *root, const lathe_run_record *record)
{
    const json_t *lineage = json_object_get(root, "lineage");
    for (size_t i = json_array_size(lineage); i-- > 0;) {
        json_t *entry = json_array_get(lineage, i);
        const char *time = json_string_value(json_object_get(entry, "time"));
        if (time && strcmp(time, record->started) == 0 &&
            json_integer_value(json_object_get(entry, "pid")) == getpid())
            return entry;
    }
    return NULL;
}

/* Sets the end of a start, which is now. */
static void set_end(json_t *entry, const lathe_run *run, const char *how)
{
    char now[32];
    utc_now(now);
    json_object_set_new(entry, "end", json_string(how));
    json_object_set_new(entry, "end_time", json_string(now));
    json_object_set_new(entry, "end_step", json_integer(run->at.step));
}

static lathe_status end(const lathe_run_record *record, const char *how, const char *message)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *root = NULL;
    const char *path = lathe_path_join(&arena, record->run->set.checkpoint.dir, "run.json");
    lathe_status status = path ? lathe_json_load_file(path, &root) : LATHE_E_NOMEM;
    json_t *entry = status == LATHE_OK ? own_entry(root, record) : NULL;
    if (entry) {
        set_end(entry, record->run, how);
        add_rewinds(&record->run->set.checkpoint, entry);
        if (message)
            json_object_set_new(entry, "message", lathe__json_text(message));
        status = write_json(path, root);
    }
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

void lathe_run_record_end(lathe_run_record *record, lathe_status status,
                          const lathe_train_result *result)
{
    if (record->run == NULL)
        return;
    char *message = status != LATHE_OK ? strdup(lathe_error_message()) : NULL;
    const char *how = status != LATHE_OK      ? "failed"
                      : result->interrupted   ? "interrupted"
                      : result->paused        ? "paused"
                      : result->stopped_early ? "stopped early"
                                              : "finished";
    /* a disk that has just refused a checkpoint or the figures refuses this, too; one line is said
     */
    if (end(record, how, message) != LATHE_OK && status != LATHE_E_IO)
        lathe_log(LATHE_LOG_WARN, "the run's record was not written: %s", lathe_error_message());
    lathe_error_clear();
    if (record->events >= 0) {
        lathe_log_set_tap(NULL, NULL);
        (void)close(record->events);
    }
    if (message) /* the caller's error, not ours */
        (void)lathe_error(status, "%s", message);
    free(message);
    record->run = NULL;
}

/* Whether the start came to the end of the run. */
static int is_complete(const json_t *entry)
{
    const char *end = json_string_value(json_object_get(entry, "end"));
    return end && (strcmp(end, "finished") == 0 || strcmp(end, "stopped early") == 0);
}

void lathe_run_record_complete(const lathe_run *run, const lathe_train_result *result)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *root = NULL;
    const char *dir = run->set.checkpoint.dir;
    const char *path = dir ? lathe_path_join(&arena, dir, "run.json") : NULL;
    lathe_status status = LATHE_OK;
    if (path && lathe_path_exists(path))
        status = lathe_json_load_file(path, &root);
    const json_t *lineage = json_object_get(root, "lineage");
    const size_t n = json_array_size(lineage);
    json_t *last = n ? json_array_get(lineage, n - 1) : NULL;
    if (last && !is_complete(last)) {
        set_end(last, run, result->stopped_early ? "stopped early" : "finished");
        json_object_del(last, "message");
        status = write_json(path, root);
    }
    if (status != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "the run's record was not written: %s", lathe_error_message());
    lathe_error_clear();
    json_decref(root);
    lathe_arena_fini(&arena);
}

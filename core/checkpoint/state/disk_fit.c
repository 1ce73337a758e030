/* Checks that the checkpoints of a run fit on the disk. */
#include "checkpoint/state/disk_fit.h"

#include <math.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/fs.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "checkpoint/state/model_file.h"

/* Number of checkpoints that every_epochs asks for; -1: not known, because the length of the run is
 * in steps, or the data were not read. */
static int64_t to_write_by_epochs(const lathe_saved_state *saved)
{
    const double every = saved->set->every_epochs;
    const lathe_loader *loader = saved->data->loader;
    if (!(every > 0.0))
        return 0;
    if (saved->data->n_wanted == 0 || loader == NULL)
        return -1;
    const lathe_cursor *at = &saved->at->cursor;
    const double rows = (double)lathe_loader_rows(loader);
    const double all = (double)saved->data->n_wanted / rows / every;
    const double done = (double)lathe_loader_passed(loader, at) / rows / every;
    return (int64_t)(ceil(all) - floor(done));
}

/* Number of checkpoints that the run still writes, from the current step on; 0: not known in
 * advance. */
static int64_t to_write(const lathe_saved_state *saved)
{
    const lathe_checkpoint_settings *s = saved->set;
    const int64_t first = saved->at->step, last = saved->max_steps;
    const int64_t by_epochs = to_write_by_epochs(saved);
    if (s->every_minutes > 0.0 || by_epochs < 0 || (s->every > 0 && last <= 0))
        return 0;
    if (s->every == 0)
        return by_epochs > 0 ? by_epochs : 1;
    return by_epochs + last / s->every - first / s->every + (last % s->every != 0);
}

/* Free bytes of the file system that holds the folder, or its nearest existing parent; -1: not
 * known. */
static int64_t free_bytes(const char *dir, lathe_arena *arena)
{
    struct statvfs fs;
    char *path = lathe_arena_strdup(arena, dir);
    while (path && !lathe_path_exists(path)) {
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            path = lathe_arena_strdup(arena, ".");
        else if (slash == path)
            path = lathe_arena_strdup(arena, "/");
        else
            *slash = '\0';
    }
    if (path == NULL || statvfs(path, &fs) != 0)
        return -1;
    return (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

lathe_status lathe_disk_fit_check(const lathe_saved_state *saved, lathe_disk_fit *out)
{
    const lathe_checkpoint_settings *s = saved->set;
    const char *dir = s->dir;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_checkpoint_entry *list = NULL;
    int64_t there = 0, kept = 0;
    lathe_status status = LATHE_OK;
    *out = (lathe_disk_fit){.each = lathe__checkpoint_disk_bytes(saved), .have = -1, .fits = 1};
    if (dir && lathe_path_is_dir(dir))
        status = lathe_checkpoint_list(dir, &arena, &list, &there);
    if (status == LATHE_OK && dir) {
        kept = to_write(saved);
        out->max = kept > 0 ? kept + there : 0;
        if (s->keep_last > 0) { /* an old one is removed after the new one is complete */
            const int64_t bound = (int64_t)s->keep_last + s->keep_best + 1;
            out->max = out->max > 0 && out->max < bound ? out->max : bound;
        }
        out->there = there;
        out->more = out->max > there ? out->max - there : out->max > 0 ? 1 : 0;
        out->have = free_bytes(dir, &arena);
        out->n_room = out->have >= 0 && out->each > 0 && out->have / out->each < INT32_MAX
                          ? (int32_t)(out->have / out->each)
                          : 0;
        /* in floating point: for a long run the product can overflow 64 bits */
        out->fits = out->have < 0 || (double)out->each * (double)(out->more > 0 ? out->more : 1) <=
                                         (double)out->have;
    }
    lathe_arena_fini(&arena);
    return status;
}

static void put_bytes(lathe_buffer *b, double bytes)
{
    const double mib = bytes / (1024.0 * 1024.0);
    if (mib >= 1024.0)
        lathe_buffer_printf(b, "%.2f GiB", mib / 1024.0);
    else
        lathe_buffer_printf(b, "%.1f MiB", mib);
}

/* Advice for checkpoints that do not fit. An old checkpoint is removed only after the next one is
 * complete, so that there must be room for both. */
static void put_advice(const lathe_checkpoint_settings *s, const lathe_disk_fit *fit,
                       lathe_buffer *b)
{
    const int64_t room = fit->n_room + fit->there, least = (int64_t)s->keep_best + 2;
    if (room >= least)
        lathe_buffer_printf(b, ": not enough; set checkpoint.keep_last to at most %lld",
                            (long long)(room - 1 - s->keep_best));
    else if (fit->n_room < 1)
        lathe_buffer_puts(b, ": not enough for one more; choose another checkpoint.dir");
    else if (s->keep_best > 0 && room >= 2)
        lathe_buffer_printf(b,
                            ": not enough for the %lld that checkpoint.keep_best = %d needs; lower "
                            "it, or choose another checkpoint.dir",
                            (long long)least, s->keep_best);
    else
        lathe_buffer_puts(b, ": not enough for two checkpoints, and an old one is removed only "
                             "after the next is complete; choose another checkpoint.dir");
}

void lathe_disk_fit_none_text(const lathe_saved_state *saved, const lathe_disk_fit *fit,
                              lathe_buffer *b)
{
    lathe_buffer_puts(b, "no checkpoint fits on the disk: one takes ");
    put_bytes(b, (double)fit->each);
    lathe_buffer_puts(b, ", and ");
    put_bytes(b, (double)fit->have);
    lathe_buffer_printf(b, " are free in %s: make room, or choose another checkpoint.dir",
                        saved->set->dir);
}

void lathe_disk_fit_text(const lathe_saved_state *saved, const lathe_disk_fit *fit, lathe_buffer *b)
{
    const int keeps_all = saved->set->keep_last == 0;
    if (fit->max > 0) {
        lathe_buffer_printf(b, "%lld checkpoint%s", (long long)fit->max, fit->max == 1 ? "" : "s");
        if (fit->max > 1)
            lathe_buffer_printf(b, "%s (checkpoint.keep_last = %d%s)",
                                keeps_all ? " over the run" : " at a time", saved->set->keep_last,
                                keeps_all ? " keeps all" : ", plus the one being written");
        lathe_buffer_printf(b, " take%s ", fit->max == 1 ? "s" : "");
        put_bytes(b, (double)fit->max * (double)fit->each);
    } else {
        lathe_buffer_puts(b, "the number of checkpoints is not known in advance");
    }
    if (fit->have < 0)
        return;
    lathe_buffer_puts(b, "; ");
    put_bytes(b, (double)fit->have);
    lathe_buffer_printf(b, " are free in %s", saved->set->dir);
    if (fit->fits)
        return;
    put_advice(saved->set, fit, b);
}

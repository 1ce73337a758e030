/* lathe checkpoint rm: removes checkpoints; removes the latest only with --force. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/lock.h"
#include "base/print.h"
#include "checkpoint/state/checkpoint_branch.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "cmd/saved/saved_commands.h"

typedef struct removal {
    const char *dir;
    lathe_arena arena;
    lathe_checkpoint_entry *list; /* by step */
    int32_t *goes;                /* [n] */
    int64_t n;
    const char *latest, *best;
} removal;

static lathe_status read_folder(removal *r)
{
    if (!lathe_path_is_dir(r->dir))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no such folder", r->dir);
    LATHE_TRY(lathe_checkpoint_list(r->dir, &r->arena, &r->list, &r->n));
    LATHE_TRY(lathe_checkpoint_pointer(r->dir, "latest", &r->arena, &r->latest));
    LATHE_TRY(lathe_checkpoint_pointer(r->dir, "best", &r->arena, &r->best));
    r->goes = lathe_arena_alloc(&r->arena, (r->n + 1) * (int64_t)sizeof *r->goes);
    return r->goes ? LATHE_OK : LATHE_E_NOMEM;
}

static int is(const char *pointed, const lathe_checkpoint_entry *e)
{
    return pointed && strcmp(pointed, e->name) == 0;
}

/* Marks the step that the text names: "100", "step-00000100", "best" or "latest". */
static lathe_status mark(removal *r, const char *text)
{
    char *end = NULL;
    int64_t step = -1;
    const int is_best = strcmp(text, "best") == 0, is_latest = strcmp(text, "latest") == 0;
    if ((is_best && !r->best) || (is_latest && !r->latest))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: there is no file %s", r->dir, text);
    text = is_best ? r->best : is_latest ? r->latest : text;
    if (!lathe_checkpoint_step(text, &step)) {
        errno = 0;
        step = strtoll(text, &end, 10);
        if (end == text || *end != '\0' || errno != 0 || step < 0)
            return lathe_error(LATHE_E_ARG, "'%s' is no step; expected a number, best or latest",
                               text);
    }
    for (int64_t i = 0; i < r->n; i++)
        if (r->list[i].step == step) {
            r->goes[i] = 1;
            return LATHE_OK;
        }
    return lathe_error(LATHE_E_NOT_FOUND, "%s: no checkpoint of step %lld", r->dir,
                       (long long)step);
}

/* Marks all checkpoints that branches abandoned. */
static lathe_status remove_abandoned(removal *r)
{
    json_t *list = NULL;
    lathe_status status = lathe_branches_read(r->dir, &list);
    for (size_t i = 0; i < json_array_size(list) && status == LATHE_OK; i++) {
        const json_t *record = json_array_get(list, i);
        const int64_t number = (int64_t)json_integer_value(json_object_get(record, "number"));
        lathe_checkpoint_entry *entries = NULL;
        int64_t n = 0;
        status = lathe_branch_abandoned(r->dir, number, &r->arena, &entries, &n);
        for (int64_t k = 0; k < n && status == LATHE_OK; k++) {
            status = lathe_checkpoint_remove(entries[k].path);
            if (status == LATHE_OK)
                lathe_print("removed %s\n", entries[k].path);
        }
    }
    json_decref(list);
    return status;
}

static lathe_status choose(removal *r, const lathe_args *args)
{
    int64_t keep = 0;
    LATHE_TRY(lathe_args_int(args, "--keep-last", 1, INT32_MAX, 0, &keep));
    const int32_t force = lathe_args_value(args, "--force") != NULL;
    if ((keep > 0) == (args->n_words > 1))
        return lathe_error(LATHE_E_ARG, "expected steps, --keep-last N or --abandoned");
    for (int32_t i = 1; i < args->n_words; i++)
        LATHE_TRY(mark(r, args->words[i]));
    for (int64_t i = 0; keep > 0 && i < r->n - keep; i++)
        r->goes[i] = !is(r->latest, &r->list[i]) && !is(r->best, &r->list[i]);
    for (int64_t i = 0; i < r->n; i++)
        if (r->goes[i] && is(r->latest, &r->list[i]) && !force)
            return lathe_error(
                LATHE_E_STATE,
                "%s is the latest, from which a run would resume; --force removes it "
                "all the same",
                r->list[i].path);
    return LATHE_OK;
}

/* Changes a pointer to a removed checkpoint to the newest remaining one (latest), or removes the
 * pointer. */
static lathe_status move_pointer(const removal *r, const char *pointer, const char *now,
                                 int32_t moves)
{
    char path[4096];
    int32_t dangles = 0;
    const char *newest = NULL;
    for (int64_t i = 0; i < r->n; i++) {
        dangles |= r->goes[i] && is(now, &r->list[i]);
        newest = r->goes[i] ? newest : r->list[i].name;
    }
    if (!dangles)
        return LATHE_OK;
    if (moves && newest)
        return lathe_checkpoint_point(r->dir, pointer, newest);
    (void)snprintf(path, sizeof path, "%s/%s", r->dir, pointer);
    if (unlink(path) != 0)
        return lathe_error(LATHE_E_IO, "%s: cannot remove: %s", path, strerror(errno));
    return LATHE_OK;
}

static lathe_status remove_chosen(removal *r, const lathe_args *args)
{
    LATHE_TRY(read_folder(r));
    if (lathe_args_value(args, "--abandoned")) {
        LATHE_TRY(remove_abandoned(r));
        if (args->n_words == 1 && !lathe_args_value(args, "--keep-last"))
            return LATHE_OK;
    }
    LATHE_TRY(choose(r, args));
    LATHE_TRY(move_pointer(r, "latest", r->latest, 1));
    LATHE_TRY(move_pointer(r, "best", r->best, 0));
    for (int64_t i = 0; i < r->n; i++) {
        if (!r->goes[i])
            continue;
        LATHE_TRY(lathe_checkpoint_remove(r->list[i].path));
        lathe_print("removed %s\n", r->list[i].path);
    }
    return LATHE_OK;
}

/* DIR/best as the only word names a checkpoint, not the folder of a run. */
static lathe_status refuse_pointer(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    if (!lathe_path_is_pointer(dir))
        return LATHE_OK;
    return lathe_error(LATHE_E_ARG,
                       "%s names a checkpoint; expected the folder of a run and then the steps: "
                       "lathe checkpoint rm %.*s %s",
                       dir, slash ? (int)(slash - dir) : 1, slash ? dir : ".",
                       slash ? slash + 1 : dir);
}

static int run(const lathe_args *args)
{
    removal r = {.dir = args->words[0], .arena = LATHE_ARENA_INIT};
    lathe_lock lock = LATHE_LOCK_INIT;
    const char *path = lathe_path_join(&r.arena, r.dir, "lock");
    lathe_status status = path ? refuse_pointer(r.dir) : LATHE_E_NOMEM;
    if (status == LATHE_OK && lathe_path_is_dir(r.dir))
        status = lathe_lock_take(path, &lock); /* a run in progress removes its own checkpoints */
    if (status == LATHE_OK)
        status = remove_chosen(&r, args);
    lathe_lock_release(&lock);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_arena_fini(&r.arena);
    return code;
}

static const lathe_option options[] = {
    {"--keep-last", "N", "remove all except the newest N, the latest and the best"},
    {"--abandoned", NULL,
     "remove the checkpoints in abandoned/, which the run left there when it went back"},
    {"--force", NULL, "remove the latest checkpoint too"},
};

const lathe_command lathe_cmd_checkpoint_rm = {
    .name = "checkpoint rm",
    .arguments = "DIR|RUN.toml STEP...|--keep-last N|--abandoned",
    .summary = "remove checkpoints from the folder of a run",
    .details = "A run file means its checkpoint.dir.\n"
               "STEP is a number, or best or latest for the checkpoint that this file names.\n"
               "The command is refused while a run trains in the folder. If `latest` pointed\n"
               "to a removed checkpoint, it then points to the newest one that is left; `best`\n"
               "is removed with its checkpoint.\n",
    .options = options,
    .n_options = 3,
    .min_words = 1,
    .max_words = 1000,
    .names_runs = 1,
    .run = run,
};

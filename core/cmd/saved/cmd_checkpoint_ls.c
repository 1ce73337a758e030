/* lathe checkpoint ls: lists the checkpoints of a folder. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/print.h"
#include "checkpoint/state/checkpoint_branch.h"
#include "checkpoint/state/checkpoint_info.h"
#include "cmd/saved/saved_commands.h"
#include "view/wrap.h"

typedef struct listing {
    lathe_checkpoint_entry *entries;
    lathe_checkpoint_info *infos;
    int64_t *branches; /* [n] the branch whose beginning abandoned it; 0: it is one of the newest
                          branch */
    int64_t n;
    const char *latest, *best; /* names; NULL */
} listing;

/* Appends entries of one folder. */
static lathe_status add_entries(listing *l, const lathe_checkpoint_entry *entries, int64_t n,
                                int64_t branch, lathe_arena *arena)
{
    const int64_t total = l->n + n;
    lathe_checkpoint_entry *list = lathe_arena_alloc(arena, (total + 1) * (int64_t)sizeof *list);
    int64_t *branches = lathe_arena_alloc(arena, (total + 1) * (int64_t)sizeof *branches);
    if (!list || !branches)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < total; i++) {
        list[i] = i < l->n ? l->entries[i] : entries[i - l->n];
        branches[i] = i < l->n ? l->branches[i] : branch;
    }
    l->entries = list;
    l->branches = branches;
    l->n = total;
    return LATHE_OK;
}

/* Appends the checkpoints that branches of a run abandoned. */
static lathe_status add_abandoned(const char *dir, lathe_arena *arena, listing *l)
{
    json_t *list = NULL;
    lathe_status status = lathe_branches_read(dir, &list);
    for (size_t i = 0; i < json_array_size(list) && status == LATHE_OK; i++) {
        const json_t *record = json_array_get(list, i);
        const int64_t number = (int64_t)json_integer_value(json_object_get(record, "number"));
        lathe_checkpoint_entry *entries = NULL;
        int64_t n = 0;
        status = lathe_branch_abandoned(dir, number, arena, &entries, &n);
        if (status == LATHE_OK)
            status = add_entries(l, entries, n, number, arena);
    }
    json_decref(list);
    return status;
}

static lathe_status read_listing(const char *dir, lathe_arena *arena, listing *l)
{
    lathe_checkpoint_entry *entries = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_checkpoint_entries(dir, arena, &entries, &n));
    LATHE_TRY(add_entries(l, entries, n, 0, arena));
    LATHE_TRY(add_abandoned(dir, arena, l));
    l->infos = lathe_arena_alloc(arena, (l->n + 1) * (int64_t)sizeof *l->infos);
    if (!l->infos)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < l->n; i++)
        LATHE_TRY(lathe_checkpoint_info_read(l->entries[i].path, arena, &l->infos[i]));
    const char **names[2] = {&l->latest, &l->best};
    static const char *const pointers[2] = {"latest", "best"};
    for (int k = 0; k < 2; k++)
        if (lathe_checkpoint_pointer(dir, pointers[k], arena, names[k]) != LATHE_OK)
            lathe_print_to(stderr, "lathe checkpoint ls: %s\n", lathe_error_message());
    return LATHE_OK;
}

/* Whether a pointer names entry i. */
static int is(const char *pointed, const listing *l, int64_t i)
{
    return pointed && l->branches[i] == 0 && strcmp(pointed, l->entries[i].name) == 0;
}

static void put_size(lathe_buffer *b, int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int k = 0;
    for (; x >= 1024.0 && k < 4; k++)
        x /= 1024.0;
    lathe_buffer_printf(b, k ? "  %6.1f %-3s" : "  %6.0f %-3s", x, units[k]);
}

static void put_number(lathe_buffer *b, double x)
{
    if (isnan(x))
        lathe_buffer_printf(b, "  %10s", "-");
    else
        lathe_buffer_printf(b, "  %10.5g", x);
}

enum { TABLE_COLUMNS = 80 }; /* with fewer columns, a checkpoint takes two lines */

static void put_row(lathe_buffer *b, const listing *l, int64_t i, int is_narrow)
{
    const lathe_checkpoint_info *info = &l->infos[i];
    const lathe_checkpoint_entry *e = &l->entries[i];
    char when[32] = "-";
    const time_t at = (time_t)info->time;
    struct tm local;
    if (info->time > 0 && localtime_r(&at, &local))
        (void)strftime(when, sizeof when, is_narrow ? "%Y-%m-%d %H:%M" : "%Y-%m-%d %H:%M:%S",
                       &local);
    lathe_buffer_printf(b, "%8lld  %-*s", (long long)e->step, is_narrow ? 16 : 19, when);
    if (!is_narrow) {
        put_size(b, info->bytes);
        put_number(b, info->loss);
        put_number(b, info->best);
    }
    lathe_buffer_printf(b, "%s%s", is(l->latest, l, i) ? "  latest" : "",
                        is(l->best, l, i) ? "  best" : "");
    if (is_narrow) {
        lathe_buffer_puts(b, "\n  ");
        put_size(b, info->bytes);
        put_number(b, info->loss);
        put_number(b, info->best);
    }
    const char *gap = is_narrow ? "\n    " : "  ";
    if (l->branches[i] > 0)
        lathe_buffer_printf(b, "%sabandoned by branch %lld", gap, (long long)l->branches[i]);
    if (info->damage) {
        lathe_buffer_printf(b, "%sdamaged: ", gap);
        lathe_wrap_text(b, info->damage, 13, 4, is_narrow ? lathe_wrap_columns() : 0);
    }
    lathe_buffer_puts(b, "\n");
}

static void put_table(lathe_buffer *b, const listing *l)
{
    const char *metric = NULL;
    for (int64_t i = l->n - 1; i >= 0 && !metric; i--)
        metric = l->infos[i].metric;
    const int32_t columns = lathe_wrap_columns();
    const int is_narrow = columns > 0 && columns < TABLE_COLUMNS;
    metric = metric ? metric : "metric";
    if (is_narrow)
        lathe_buffer_printf(b, "%8s  written\n  %12s  %10s  %10.10s\n", "step", "size", "loss",
                            metric);
    else
        lathe_buffer_printf(b, "%8s  %-19s  %10s  %10s  %10s\n", "step", "written", "size", "loss",
                            metric);
    for (int64_t i = 0; i < l->n; i++)
        put_row(b, l, i, is_narrow);
}

static void put_json_number(lathe_buffer *b, const char *key, double x)
{
    if (isnan(x))
        lathe_buffer_printf(b, ", \"%s\": null", key);
    else
        lathe_buffer_printf(b, ", \"%s\": %.17g", key, x);
}

static void put_json(lathe_buffer *b, const listing *l)
{
    lathe_buffer_puts(b, "[");
    for (int64_t i = 0; i < l->n; i++) {
        const lathe_checkpoint_info *info = &l->infos[i];
        const lathe_checkpoint_entry *e = &l->entries[i];
        lathe_buffer_printf(b, "%s\n  {\"step\": %lld, \"path\": ", i ? "," : "",
                            (long long)e->step);
        lathe_buffer_json_string(b, e->path);
        lathe_buffer_printf(b, ", \"time\": %lld, \"bytes\": %lld", (long long)info->time,
                            (long long)info->bytes);
        put_json_number(b, "loss", info->loss);
        lathe_buffer_puts(b, ", \"metric\": ");
        if (info->metric)
            lathe_buffer_json_string(b, info->metric);
        else
            lathe_buffer_puts(b, "null");
        put_json_number(b, "value", info->best);
        lathe_buffer_printf(b, ", \"latest\": %s, \"best\": %s, \"read_back\": %s, \"damage\": ",
                            is(l->latest, l, i) ? "true" : "false",
                            is(l->best, l, i) ? "true" : "false",
                            info->read_back ? "true" : "false");
        if (info->damage)
            lathe_buffer_json_string(b, info->damage);
        else
            lathe_buffer_puts(b, "null");
        if (l->branches[i] > 0)
            lathe_buffer_printf(b, ", \"abandoned\": %lld}", (long long)l->branches[i]);
        else
            lathe_buffer_puts(b, ", \"abandoned\": null}");
    }
    lathe_buffer_puts(b, l->n ? "\n]\n" : "]\n");
}

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer text = LATHE_BUFFER_INIT;
    listing l = {0};
    lathe_status status = read_listing(args->words[0], &arena, &l);
    if (status == LATHE_OK) {
        if (lathe_args_value(args, "--json"))
            put_json(&text, &l);
        else
            put_table(&text, &l);
        status = text.status;
    }
    if (status == LATHE_OK)
        lathe_print_text(stdout, text.data);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_buffer_fini(&text);
    lathe_arena_fini(&arena);
    return code;
}

static const lathe_option options[] = {
    {"--json", NULL,
     "print an array of objects: step, path, time, bytes, loss, metric, value, latest, best, "
     "read_back, damage, abandoned"},
};

const lathe_command lathe_cmd_checkpoint_ls = {
    .name = "checkpoint ls",
    .arguments = "DIR|RUN.toml",
    .summary = "list the checkpoints in the folder of a run",
    .details = "A run file means its checkpoint.dir.\n"
               "Prints one line per checkpoint, by step: time, size, loss of the step, the\n"
               "metric checkpoint.best_metric if there was an evaluation, whether `latest` or\n"
               "`best` points to it, and files that are missing or have a wrong size. `lathe\n"
               "checkpoint verify` also checks the contents of the files. Checkpoints that the\n"
               "run abandoned when it went back to an earlier one are listed last.\n",
    .options = options,
    .n_options = 1,
    .min_words = 1,
    .max_words = 1,
    .names_runs = 1,
    .names_models = 1,
    .run = run,
};

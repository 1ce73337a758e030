/* lathe launch: trains on several processes of this machine, and starts again after a failure. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "base/toml.h"
#include "cmd/line/rank_failure.h"
#include "cmd/line/refusal.h"
#include "cmd/main/commands.h"
#include "cmd/main/launch_job.h"
#include "cmd/main/trace_option.h"
#include "run/open/opening.h"

enum { MAX_RANKS = 1024, MAX_RESTARTS = 1000, FIXED = 12 };

static const lathe_option options[] = {
    {"-n, --ranks", "N", "number of processes"},
    {"--restarts", "R",
     "after a failure, start again from the last checkpoint, at most R times (default 0)"},
    {"--min-ranks", "M",
     "each restart has one process fewer, or parallel.shard_ranks, with DiLoCo one island, but at "
     "least M (default: N)"},
    LATHE_TRACE_OPTIONS("all ranks", "steps"),
};

/* Whether the command line or the run file sets a key of a section. */
static int sets(const lathe_args *args, const char *section, const char *key)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_toml_node *root = NULL;
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%s", section, key);
    int found = lathe_args_override(args, name) != NULL;
    if (!found && lathe_toml_load_file(args->words[0], &arena, &root) == LATHE_OK)
        found = lathe_toml_find(lathe_toml_find(root, section), key) != NULL;
    lathe_error_clear(); /* of the file: the ranks say what is wrong with it */
    lathe_arena_fini(&arena);
    return found;
}

/* A whole number of [parallel], of the command line or the run file; 0: none. */
static int64_t number_of(const lathe_args *args, const char *key)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_toml_node *root = NULL;
    int64_t n = 0;
    char name[64];
    (void)snprintf(name, sizeof name, "parallel.%s", key);
    const char *given = lathe_args_override(args, name);
    if (given) {
        n = strtoll(given, NULL, 10);
    } else if (lathe_toml_load_file(args->words[0], &arena, &root) == LATHE_OK) {
        const lathe_toml_node *found = lathe_toml_find(lathe_toml_find(root, "parallel"), key);
        n = found && found->kind == LATHE_TOML_INT ? found->i : 0;
    }
    lathe_error_clear(); /* of the file: the ranks say what is wrong with it */
    lathe_arena_fini(&arena);
    return n;
}

/* Takes away what a failure has cost: a rank, the ranks that divide the state with it
 * (parallel.shard_ranks), or an island with all its ranks. Keeps both numbers if fewer than
 * `min_ranks` ranks would be left. */
static void lose_one(int64_t min_ranks, int64_t shard_ranks, int64_t *n, int64_t *islands)
{
    const int64_t group = shard_ranks > 1 && *n % shard_ranks == 0 ? shard_ranks : 1;
    const int64_t lost = *islands > 1 && *n % *islands == 0 ? *n / *islands : group;
    if (*n - lost < min_ranks || *n <= lost)
        return;
    *n -= lost;
    *islands -= *islands > 1;
}

/* Processors that this process may use. */
static int processors(void)
{
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

/* Whether checkpoint.resume is "restart", on the command line or in the run file. */
static int begins_anew(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_toml_node *root = NULL;
    const char *value = lathe_args_override(args, "checkpoint.resume");
    if (!value && lathe_toml_load_file(args->words[0], &arena, &root) == LATHE_OK) {
        const lathe_toml_node *found =
            lathe_toml_find(lathe_toml_find(root, "checkpoint"), "resume");
        value = found && found->kind == LATHE_TOML_STRING ? found->s : NULL;
    }
    const int result = value && strcmp(value, "restart") == 0;
    lathe_error_clear(); /* of the file: the ranks say what is wrong with it */
    lathe_arena_fini(&arena);
    return result;
}

/* The arguments of each rank. goes_on: after a failure the run goes on, also if it began anew. The
 * processors are divided among them, and progress is in lines: mpirun gives each rank a terminal of
 * its own, whose output is cut into lines here. */
static lathe_status train_arguments(const lathe_args *args, int32_t n_ranks, int64_t islands,
                                    int goes_on, lathe_arena *arena, char ***out)
{
    static const char *const passed[] = {"--trace", "--trace-steps"};
    int32_t n = 0;
    char **list = lathe_arena_alloc(arena, (args->n_overrides + FIXED) * (int64_t)sizeof *list);
    if (list == NULL)
        return LATHE_E_NOMEM;
    list[n++] = lathe_arena_strdup(arena, "train");
    list[n++] = lathe_arena_printf(arena, "%s%s", args->words[0][0] == '-' ? "./" : "",
                                   args->words[0]); /* no option */
    for (int32_t i = 0; i < args->n_overrides; i++)
        if (!(islands > 0 && strcmp(args->overrides[i].key, "parallel.diloco_islands") == 0) &&
            !(goes_on && strcmp(args->overrides[i].key, "checkpoint.resume") == 0))
            list[n++] = lathe_arena_printf(arena, "--%s=%s", args->overrides[i].key,
                                           args->overrides[i].value);
    if (islands > 0)
        list[n++] = lathe_arena_printf(arena, "--parallel.diloco_islands=%lld", (long long)islands);
    if (goes_on)
        list[n++] = lathe_arena_strdup(arena, "--checkpoint.resume=auto");
    if (!sets(args, "log", "progress"))
        list[n++] = lathe_arena_strdup(arena, "--log.progress=plain");
    if (!sets(args, "train", "threads")) {
        const int threads = processors() / n_ranks;
        list[n++] = lathe_arena_printf(arena, "--train.threads=%d", threads > 1 ? threads : 1);
    }
    for (int i = 0; i < 2; i++)
        if (lathe_args_value(args, passed[i]) != NULL) {
            list[n++] = lathe_arena_strdup(arena, passed[i]);
            list[n++] = lathe_arena_strdup(arena, lathe_args_value(args, passed[i]));
        }
    for (int32_t i = 0; i < n; i++)
        if (list[i] == NULL)
            return LATHE_E_NOMEM;
    list[n] = NULL;
    *out = list;
    return LATHE_OK;
}

/* Checks the run file once, without the device and the data: otherwise every rank reports its
 * errors.
 */
static int refuses(const lathe_args *args, int32_t n_ranks, int *out_code)
{
    lathe_diags diags = {0};
    const lathe_status status =
        lathe_run_check(&(lathe_run_source){args->words[0], &args->edits, NULL},
                        LATHE_OPEN_CHECK_ELSEWHERE, n_ranks, NULL, &diags, NULL);
    if (status != LATHE_OK)
        *out_code = lathe_cli_tell_refusal(args, &diags, status);
    lathe_error_clear();
    lathe_diags_fini(&diags);
    return status != LATHE_OK;
}

/* Starts jobs until one ends well, the user stops it, or no restart is left. */
static lathe_status launch(const lathe_args *args, int64_t n, int64_t restarts, int64_t min_ranks,
                           int *out_code)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *mpirun = NULL;
    int64_t islands = number_of(args, "diloco_islands");
    const int64_t shard_ranks = number_of(args, "shard_ranks");
    sigset_t taken;
    lathe_status status = lathe_launch_find(&arena, &mpirun);
    lathe_launch_take_signals(&taken);
    for (int64_t start = 0; status == LATHE_OK; start++) {
        lathe_launch_end end;
        char **train = NULL;
        status = train_arguments(args, (int32_t)n, islands, start > 0 && begins_anew(args), &arena,
                                 &train);
        if (status == LATHE_OK)
            status = lathe_launch_run(mpirun, (int32_t)n, train, &taken, &end);
        if (status != LATHE_OK)
            break;
        *out_code = end.code;
        if (end.why[0] != '\0')
            lathe_print_to(stderr, "lathe launch: %s\n", end.why);
        if (end.code == LATHE_EXIT_OK || end.code == LATHE_EXIT_USAGE || end.stopped != 0)
            break;
        if (start == restarts) {
            if (restarts > 0)
                lathe_print_to(stderr, "lathe launch: failed with %d; no restart is left\n",
                               end.code);
            break;
        }
        char in[48] = "";
        lose_one(min_ranks, shard_ranks, &n, &islands);
        if (islands > 0)
            (void)snprintf(in, sizeof in, " in %lld island%s", (long long)islands,
                           islands == 1 ? "" : "s");
        lathe_print_to(
            stderr,
            "lathe launch: failed with %d; restart %lld of %lld with %lld rank%s%s, from "
            "the last checkpoint if there is one\n",
            end.code, (long long)(start + 1), (long long)restarts, (long long)n, n == 1 ? "" : "s",
            in);
    }
    lathe_arena_fini(&arena);
    return status;
}

/* Reads the numbers of processes: -n, --restarts and --min-ranks. */
static lathe_status read_numbers(const lathe_args *args, int64_t *n, int64_t *restarts,
                                 int64_t *min_ranks)
{
    LATHE_TRY(lathe_args_int(args, "--ranks", 1, MAX_RANKS, 0, n));
    if (*n == 0)
        return lathe_error(LATHE_E_ARG, "-n is missing: the number of processes");
    LATHE_TRY(lathe_args_int(args, "--restarts", 0, MAX_RESTARTS, 0, restarts));
    LATHE_TRY(lathe_args_int(args, "--min-ranks", 1, MAX_RANKS, *n, min_ranks));
    if (*min_ranks > *n)
        return lathe_error(LATHE_E_ARG, "--min-ranks is %lld, expected at most -n = %lld",
                           (long long)*min_ranks, (long long)*n);
    if (*min_ranks < *n && *restarts == 0)
        return lathe_error(LATHE_E_ARG,
                           "--min-ranks has no effect without --restarts: give both, or neither");
    return LATHE_OK;
}

static int run_command(const lathe_args *args)
{
    int64_t n = 0, restarts = 0, min_ranks = 0;
    int code = LATHE_EXIT_OK;
    if (lathe_cli_is_rank())
        return lathe_cli_fail_ranks(
            "lathe launch: another launcher (mpirun, srun) has started this "
            "process, and launch starts mpirun itself: run it alone, or "
            "lathe train under the launcher\n",
            LATHE_E_ARG, lathe_args_code);
    lathe_status status = read_numbers(args, &n, &restarts, &min_ranks);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    if (refuses(args, (int32_t)n, &code))
        return code;
    status = launch(args, n, restarts, min_ranks, &code);
    return status == LATHE_OK ? code : lathe_args_fail(args, status);
}

const lathe_command lathe_cmd_launch = {
    .name = "launch",
    .arguments = "-n N RUN.toml",
    .summary = "train on several processes of this machine",
    .details =
        "Starts N processes of `lathe train` through mpirun, each a rank of the run, and divides\n"
        "the processors among them unless train.threads is set. Lines of ranks other than 0\n"
        "begin with their number. Ctrl-C, SIGTERM and SIGHUP go to every rank, so that the run\n"
        "writes its checkpoint. The exit code is that of the first rank that failed; errors\n"
        "in the command line or the run file (2) and stops by the user are not restarted.\n",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .prints_progress = 1,
    .takes_overrides = 1,
    .run = run_command,
};

/* lathe plugin check: the conformance suite of a .so, in a child process that may crash. */
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/commands.h"
#include "app/conformance/conformance.h"
#include "base/error.h"
#include "plug/kind.h"
#include "plug/select.h"
#include "plug/so.h"

extern char **environ;

enum { CHECK_SECONDS = 300 };

/* Name before, result after: what a crash leaves unfinished names itself. */
static void print_begin(void *arg, const char *check)
{
    (void)arg;
    printf("  %-34s ", check);
    (void)fflush(stdout);
}

static void print_end(void *arg, int32_t result, const char *text)
{
    static const char *const words[] = {"ok", "FAIL", "skipped"};
    (void)arg;
    printf("%s%s%s\n", words[result], text[0] ? "  " : "", text);
    (void)fflush(stdout);
}

/* The kind is the folder's name, or else what the plugin says. */
static lathe_status find_kind(const char *path, int32_t *out_kind)
{
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    const char *name = strrchr(folder, '/');
    *out_kind = name ? lathe_kind_id(name + 1) : 0;
    if (*out_kind != 0)
        return LATHE_OK;
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (so == NULL)
        return lathe_error(LATHE_E_PLUGIN, "%s", dlerror());
    const lathe_plugin *plugin = dlsym(so, LATHE_PLUGIN_ENTRY_NAME);
    if (plugin == NULL)
        return lathe_error(LATHE_E_PLUGIN, "%s: does not export %s", path, LATHE_PLUGIN_ENTRY_NAME);
    *out_kind =
        plugin->kind; /* every version has it at this place; lathe_so_open checks the rest */
    return LATHE_OK;
}

static lathe_status open_file(const char *path, lathe_component *out)
{
    char name[NAME_MAX + 1];
    int32_t kind;
    LATHE_TRY(find_kind(path, &kind));
    (void)snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
    char *dot = strstr(name, ".so");
    if (dot != NULL)
        *dot = '\0';
    out->path = path;
    return lathe_so_open(path, kind, name, NULL, &out->plugin);
}

/* What --device names, among the plugins that are found. */
static lathe_status find_device(const lathe_args *args, lathe_registry **registry,
                                lathe_arena *arena, const lathe_component **out)
{
    const char *name = lathe_args_value(args, "--device");
    *out = NULL;
    if (name == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_registry_create(registry));
    return lathe_select_device(*registry, name, arena, out, NULL);
}

static int check_on(const lathe_args *args, const lathe_component *component,
                    const lathe_component *device, const lathe_report *report)
{
    lathe_conformance_totals totals;
    if (lathe_conformance_run(component, device, report, &totals) != LATHE_OK)
        return lathe_args_fail(args, LATHE_E_STATE);
    printf("%s/%s%s%s: %d ok, %d failed, %d skipped\n", lathe_kind_name(component->plugin->kind),
           component->plugin->name, device ? " on " : "", device ? device->plugin->name : "",
           totals.ok + 1, totals.failed, totals.skipped);
    return totals.failed > 0 ? LATHE_EXIT_FAILED : LATHE_EXIT_OK;
}

/* The suite itself, in this process. */
static int check_here(const lathe_args *args, const char *path)
{
    lathe_component component;
    lathe_registry *registry = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component *device;
    const lathe_report report = {print_begin, print_end, NULL};
    print_begin(NULL, "loads");
    lathe_status status = open_file(path, &component);
    if (status != LATHE_OK) {
        print_end(NULL, LATHE_CHECK_FAILED, lathe_error_message());
        return LATHE_EXIT_FAILED;
    }
    print_end(NULL, LATHE_CHECK_OK, "");
    status = find_device(args, &registry, &arena, &device);
    const int code = status == LATHE_OK ? check_on(args, &component, device, &report)
                                        : lathe_args_fail(args, status);
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
    return code;
}

static int report_end(const char *path, int status)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    const int number = WTERMSIG(status);
    if (number == SIGALRM)
        printf("FAIL  still running after %d s\n", CHECK_SECONDS);
    else
        printf("FAIL  crashed: %s\n", strsignal(number));
    printf("%s: failed\n", path);
    return LATHE_EXIT_FAILED;
}

static int check_in_child(const lathe_args *args, char *path)
{
    char program[] = "/proc/self/exe", plugin[] = "plugin", check[] = "check", here[] = "--here";
    char option[] = "--device", name[NAME_MAX + 1];
    const char *device = lathe_args_value(args, "--device");
    (void)snprintf(name, sizeof name, "%s", device ? device : "");
    char *const argv[] = {program, plugin, check, here, path, device ? option : NULL, name, NULL};
    pid_t child;
    int status;
    (void)fflush(stdout);
    const int code = posix_spawn(&child, program, NULL, NULL, argv, environ);
    if (code != 0)
        return lathe_args_fail(
            args, lathe_error(LATHE_E_IO, "cannot start a process: %s", strerror(code)));
    if (waitpid(child, &status, 0) < 0)
        return lathe_args_fail(args, lathe_error(LATHE_E_IO, "lost the process of the check"));
    return report_end(path, status);
}

static int run(const lathe_args *args)
{
    char path[PATH_MAX];
    if (realpath(args->words[0], path) == NULL)
        return lathe_args_fail(args,
                               lathe_error(LATHE_E_NOT_FOUND, "%s: no such file", args->words[0]));
    if (lathe_args_value(args, "--here") == NULL)
        return check_in_child(args, path);
    (void)alarm(CHECK_SECONDS);
    return check_here(args, path);
}

static const lathe_option options[] = {
    {"--device", "NAME", "on this device: \"cuda\", another plugin's name, or \"auto\""},
    {"--here", NULL, "in this process and not in a child, for a debugger"},
};

const lathe_command lathe_cmd_plugin_check = {
    .name = "plugin check",
    .arguments = "FILE.so",
    .summary = "run the conformance suite of its kind over a plugin",
    .details =
        "Prints one line per check: ok, FAIL with the reason, or skipped with the reason. The\n"
        "plugin runs in a child process; a crash is a failure of the check it happened in.\n"
        "With --device, what a plugin computes runs on that device: an optimizer's or codec's "
        "image\n"
        "through launch() and queue(), against its host code bit for bit; an attention backend; "
        "and\n"
        "the kernels of what adapters, stages and matrix updates build.\n"
        "Exit 0: all passed. Exit 1: some failed.",
    .options = options,
    .n_options = 2,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};

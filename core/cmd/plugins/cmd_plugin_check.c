/* lathe plugin check: runs the conformance suite of a .so, in a child process that may crash or
 * hang. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "base/toml.h"
#include "cmd/line/plugin_faults.h"
#include "cmd/plugins/check_child.h"
#include "cmd/plugins/check_report.h"
#include "cmd/plugins/plug_commands.h"
#include "plug/kind.h"
#include "plug/schema_check.h"
#include "plug/schema_value.h"
#include "plug/select.h"
#include "plug/so.h"

enum { CHECK_SECONDS = 120, MAX_WORDS = 60 };

/* Opens the file. The kind is the name of its folder if that is a kind, else the kind that the
 * plugin declares. */
static lathe_status open_file(const char *path, lathe_component *out)
{
    char folder[PATH_MAX], name[NAME_MAX + 1];
    (void)snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    const char *last = strrchr(folder, '/');
    const int32_t kind = last != NULL ? lathe_kind_id(last + 1) : 0;
    (void)snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
    char *dot = strstr(name, ".so");
    if (dot != NULL)
        *dot = '\0';
    out->path = path;
    return lathe_so_open(path, kind, name, NULL, &out->plugin);
}

/* Finds the device that --device names among the installed plugins. */
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

/* ---- values of keys ---- */

/* Checks that the plugin has the key, and that the value fits it. */
static lathe_status check_key(const lathe_plugin *plugin, const lathe_toml_node *node,
                              lathe_arena *arena)
{
    const int32_t i = lathe_schema_index(plugin->fields, plugin->n_fields, node->key);
    const char *suggestion = NULL;
    char why[512];
    lathe_value value;
    if (i < 0)
        return lathe_error(LATHE_E_CONFIG, "%s has no key '%s'; lathe show %s/%s lists its keys",
                           plugin->name, node->key, lathe_kind_name(plugin->kind), plugin->name);
    const lathe_status status = lathe_value_from_toml(&plugin->fields[i], node, arena, &value, why,
                                                      sizeof why, &suggestion);
    return status == LATHE_E_CONFIG
               ? lathe_error_suggest(lathe_error(LATHE_E_CONFIG, "%s %s", node->key, why),
                                     suggestion)
               : status;
}

/* Reads --config: a file with only the plugin's keys, or a run file with a table of the plugin's
 * kind. */
static lathe_status read_config(const char *path, const lathe_plugin *plugin, lathe_arena *arena,
                                lathe_toml_node *settings)
{
    lathe_toml_node *file;
    LATHE_TRY(lathe_toml_load_file(path, arena, &file));
    const lathe_toml_node *table = lathe_toml_find(file, lathe_kind_name(plugin->kind));
    if (table == NULL || table->kind != LATHE_TOML_TABLE)
        table = file;
    for (int64_t i = 0; i < table->n_children; i++) {
        if (strcmp(table->children[i]->key, "name") == 0)
            continue;
        lathe_status status = check_key(plugin, table->children[i], arena);
        if (status != LATHE_OK)
            return lathe_error_from(status, path, table->children[i]->key_line,
                                    table->children[i]->key_column);
        LATHE_TRY(lathe_toml_set(settings, table->children[i], arena));
    }
    return LATHE_OK;
}

/* Reads "key=value". A value that is not TOML is a string, as in other commands. */
static lathe_status read_set(const char *text, const lathe_plugin *plugin, lathe_arena *arena,
                             lathe_toml_node *settings)
{
    const char *equals = strchr(text, '=');
    lathe_toml_node *node = NULL;
    if (equals == NULL || equals == text)
        return lathe_error(LATHE_E_ARG, "--set %s: expected key=value", text);
    if (lathe_toml_literal(equals + 1, arena, &node) != LATHE_OK) {
        lathe_error_clear();
        node = lathe_arena_alloc(arena, (int64_t)sizeof *node);
        if (node == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for --set");
        *node = (lathe_toml_node){.kind = LATHE_TOML_STRING,
                                  .s = lathe_arena_strdup(arena, equals + 1)};
    }
    node->key = lathe_arena_strndup(arena, text, equals - text);
    node->origin = "--set";
    if (node->key == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for --set");
    const lathe_status status = check_key(plugin, node, arena);
    if (status != LATHE_OK)
        return lathe_error_context(status, "--set %s", text);
    return lathe_toml_set(settings, node, arena);
}

static lathe_status read_settings(const lathe_args *args, const lathe_plugin *plugin,
                                  lathe_arena *arena, lathe_toml_node **out)
{
    const char *config = lathe_args_value(args, "--config"), *text;
    LATHE_TRY(lathe_toml_load("settings", "", 0, arena, out));
    if (config != NULL)
        LATHE_TRY(read_config(config, plugin, arena, *out));
    for (int32_t k = 0; (text = lathe_args_each(args, "--set", k)) != NULL; k++)
        LATHE_TRY(read_set(text, plugin, arena, *out));
    return LATHE_OK;
}

/* ---- the checks ---- */

/* Writes a title such as "optimizer/lion on cuda". */
static void title_of(const lathe_component *component, const lathe_component *device, char *out,
                     size_t bytes)
{
    (void)snprintf(out, bytes, "%s/%s%s%s", lathe_kind_name(component->plugin->kind),
                   component->plugin->name, device ? " on " : "",
                   device ? device->plugin->name : "");
}

/* Opens the device, reads the settings and runs the suite. title: gets the name of what was
 * checked. */
static lathe_status check_opened(const lathe_args *args, const lathe_component *component,
                                 const lathe_report *report, lathe_conformance_totals *totals,
                                 char *title, size_t title_bytes)
{
    lathe_registry *registry = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_toml_node *settings = NULL;
    lathe_conformance_setup setup = {0};
    lathe_status status = find_device(args, &registry, &arena, &setup.device);
    if (status == LATHE_OK)
        status = read_settings(args, component->plugin, &arena, &settings);
    setup.settings = settings;
    setup.first_failure = lathe_args_value(args, "--first-failure") != NULL;
    if (status == LATHE_OK)
        status = lathe_conformance_run(component, &setup, report, totals);
    title_of(component, setup.device, title, title_bytes);
    totals->ok++; /* counts the check "loads" */
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
    return status;
}

/* Runs the suite in this process. fd: pipe to a parent process, which prints the totals; -1: there
 * is none. */
static int check_here(const lathe_args *args, const char *path, lathe_check_report *shown, int fd)
{
    const int in_child = fd >= 0;
    const lathe_report told = in_child ? lathe_check_child_report(fd) : shown->calls;
    if (in_child)
        lathe_cli_leave_faults();
    const lathe_report *report = &told;
    lathe_component component;
    lathe_conformance_totals totals = {0};
    char title[256] = "";
    lathe_check_report_divert(shown);
    report->begin(report->arg, "loads");
    if (open_file(path, &component) != LATHE_OK) {
        report->end(report->arg, LATHE_CHECK_FAILED, lathe_error_message());
        totals.failed = 1;
        (void)snprintf(title, sizeof title, "%.200s", path);
    } else {
        report->end(report->arg, LATHE_CHECK_OK, "");
        const lathe_status status =
            check_opened(args, &component, report, &totals, title, sizeof title);
        if (status != LATHE_OK) {
            lathe_check_report_restore(shown);
            const int code = lathe_args_fail(args, status);
            if (in_child)
                lathe_check_child_refused(code);
            return code;
        }
    }
    if (!in_child)
        return lathe_check_report_end(shown, title, &totals);
    lathe_check_child_done(&totals, title);
    return totals.failed > 0 ? LATHE_EXIT_FAILED : LATHE_EXIT_OK;
}

/* Builds the command line of the child: this program with every option that was given. */
static lathe_status child_words(const lathe_args *args, const char *path, lathe_arena *arena,
                                char **out)
{
    static const char *const passed[] = {"--device", "--config"};
    const char *words[MAX_WORDS] = {"/proc/self/exe", "plugin", "check", "--here", path};
    int n = 5;
    const char *text;
    for (int i = 0; i < 2; i++)
        if (lathe_args_value(args, passed[i]) != NULL) {
            words[n++] = passed[i];
            words[n++] = lathe_args_value(args, passed[i]);
        }
    if (lathe_args_value(args, "--first-failure") != NULL)
        words[n++] = "--first-failure";
    if (lathe_args_value(args, "--json") != NULL)
        words[n++] = "--json";
    for (int32_t k = 0; (text = lathe_args_each(args, "--set", k)) != NULL; k++) {
        if (n + 3 > MAX_WORDS)
            return lathe_error(LATHE_E_ARG, "more than %d times --set; use --config", (int)k);
        words[n++] = "--set";
        words[n++] = text;
    }
    for (int i = 0; i < n; i++) {
        out[i] = lathe_arena_strdup(arena, words[i]);
        if (out[i] == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for the command line");
    }
    out[n] = NULL;
    return LATHE_OK;
}

static int check_in_child(const lathe_args *args, const char *path, lathe_check_report *shown)
{
    char *words[MAX_WORDS + 1];
    double seconds;
    lathe_check_outcome outcome;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status =
        lathe_args_float(args, "--timeout", 0.1, 86400.0, CHECK_SECONDS, &seconds);
    if (status == LATHE_OK)
        status = child_words(args, path, &arena, words);
    (void)fflush(stdout);
    if (status == LATHE_OK)
        status = lathe_check_child_run(words, seconds, &shown->calls, &outcome);
    lathe_arena_fini(&arena);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    if (outcome.refused != 0)
        return outcome.refused;
    if (!outcome.done && shown->checks == NULL) {
        lathe_print("%s: failed\n", path);
        return LATHE_EXIT_FAILED;
    }
    return lathe_check_report_end(shown, outcome.done ? outcome.title : path, &outcome.totals);
}

/* The first file of "kind/name" in the folders that are searched, without opening it. 0: none. */
static int find_named(const lathe_registry *registry, const char *word, char path[PATH_MAX])
{
    int64_t n = 0;
    char file[PATH_MAX];
    const char *const *folders = lathe_registry_paths(registry, &n);
    for (int64_t i = 0; i < n; i++) {
        (void)snprintf(file, sizeof file, "%.2000s/%.200s.so", folders[i], word);
        if (realpath(file, path) != NULL)
            return 1;
    }
    return 0;
}

/* A file, or the plugin KIND/NAME as in `lathe show`. */
static lathe_status find_file(const char *word, char path[PATH_MAX])
{
    char kind[64];
    const char *slash = strchr(word, '/');
    if (realpath(word, path) != NULL)
        return LATHE_OK;
    (void)snprintf(kind, sizeof kind, "%.*s", slash != NULL ? (int)(slash - word) : 0, word);
    if (slash == NULL || lathe_kind_id(kind) == 0 || !lathe_name_is_valid(slash + 1))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no such file", word);
    lathe_registry *registry = NULL;
    LATHE_TRY(lathe_registry_create(&registry));
    const int found = find_named(registry, word, path);
    lathe_registry_destroy(registry);
    return found ? LATHE_OK
                 : lathe_error(LATHE_E_NOT_FOUND,
                               "%s: neither a file nor a plugin that is found: lathe ls %s lists "
                               "those that are",
                               word, kind);
}

static int check(const lathe_args *args, lathe_check_report *shown)
{
    char path[PATH_MAX];
    int64_t fd;
    lathe_status status = find_file(args->words[0], path);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    if (lathe_args_value(args, "--here") == NULL)
        return check_in_child(args, path, shown);
    status = lathe_args_int(args, "--report-to", 3, 1 << 20, -1, &fd);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    return check_here(args, path, shown, (int)fd);
}

static int run(const lathe_args *args)
{
    lathe_check_report shown;
    lathe_check_report_init(&shown, lathe_args_value(args, "--json") != NULL);
    const int code = check(args, &shown);
    lathe_check_report_fini(&shown);
    return code;
}

static const lathe_option options[] = {
    {"--set", "KEY=VALUE...", "set a key of the plugin; may be given several times"},
    {"--config", "FILE", "read the plugin's keys from a TOML file: the keys alone, or a run file"},
    {"--device", "NAME",
     "run on this device: \"cuda\", the name of another device plugin, or \"auto\""},
    {"--timeout", "SECONDS", "maximum time of one check (default 120)"},
    {"--first-failure", NULL, "stop after the first check that fails"},
    {"--json", NULL,
     "print one object: plugin, passed, ok, failed, skipped, and checks with name, result (pass, "
     "fail or skip) and message"},
    {"--here", NULL, "run in this process instead of a child process, for a debugger"},
    {"--report-to", "FD", "with --here: write events for another program to this file descriptor"},
};

const lathe_command lathe_cmd_plugin_check = {
    .name = "plugin check",
    .arguments = "FILE.so",
    .summary = "run the conformance suite on a plugin",
    .details = "Instead of a file, the plugin KIND/NAME (model/llama) can be given, as for show.\n"
               "Prints one line per check: ok, FAIL with the reason, or skipped with the\n"
               "reason. The plugin runs in a child process: if it crashes, takes too long or\n"
               "exits early, the check that was running has failed. Keys of the plugin have\n"
               "their defaults unless --set or --config changes them. With --device, the\n"
               "plugin's computations run on that device: the image of an optimizer or codec\n"
               "through launch() and queue(), compared bit for bit with its host code; an\n"
               "attention backend; and the kernels of the graphs that adapters, stages and\n"
               "matrix updates build. Exit 0: all checks passed. Exit 1: some failed.\n"
               "docs/plugin-checks.md lists the checks.",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .computes = 0,
    .run = run,
};

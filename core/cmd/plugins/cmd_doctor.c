/* lathe doctor: describes this machine, and says which plugins can use it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/child.h"
#include "base/print.h"
#include "cmd/plugins/doctor.h"
#include "cmd/plugins/plug_commands.h"
#include "cmd/plugins/plugins.h"
#include "config/config.h"
#include "exec/program/precision.h"
#include "lathe/device.h"
#include "lathe/fp8.h"
#include "plug/kind.h"
#include "plug/select.h"

extern const char *lathe_version(void);

static json_t *precisions(uint32_t dtypes)
{
    static const int32_t all[] = {LATHE_F32, LATHE_BF16, LATHE_F16, LATHE_F8_E4M3};
    json_t *out = json_array();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (dtypes & 1u << all[i])
            json_array_append_new(out, json_string(lathe_precision_name(all[i])));
    return out;
}

/* The recipes of fp8 on a device; the one that "auto" chooses is first. */
static json_t *recipes(const lathe_device_info *info)
{
    const int32_t best = lathe_fp8_recipe_on(info, LATHE_FP8_NONE);
    json_t *out = json_array();
    json_array_append_new(out, json_string(lathe_fp8_recipe_name(best)));
    for (int32_t i = 1; i < LATHE_N_FP8; i++)
        if (i != best && info->fp8_recipes & 1u << i)
            json_array_append_new(out, json_string(lathe_fp8_recipe_name(i)));
    return out;
}

/* Adds the precisions of a device that this machine can use: those at full rate, and all. */
static void add_precisions(lathe_config *defaults, const lathe_component *component, json_t *out)
{
    const lathe_device_v1 *device = component->plugin->table;
    lathe_device_info info = {.size = (uint32_t)sizeof info};
    lathe_instance instance;
    const lathe_value *values = NULL;
    lathe_diags diags = {0};
    const lathe_status bound =
        lathe_config_bind(defaults, LATHE_KIND_DEVICE, component, &diags, &values);
    lathe_diags_fini(&diags);
    if (bound != LATHE_OK || lathe_instance_init(&instance, component, values) != LATHE_OK)
        return;
    if (device->info(instance.self, &info) == LATHE_OK) {
        json_object_set_new(out, "full_rate", precisions(info.compute_dtypes));
        json_object_set_new(
            out, "precisions",
            precisions(info.graph_dtypes ? info.graph_dtypes : info.compute_dtypes));
        if (info.fp8_recipes != 0)
            json_object_set_new(out, "fp8_recipes", recipes(&info));
    }
    lathe_instance_fini(&instance);
}

enum { DEVICE_SECONDS = 60 };

typedef struct device_question {
    lathe_config *defaults;
    const lathe_component *component;
} device_question;

/* In a child process: writes a device's description as JSON. A child is used because opening a
 * device runs code of drivers. */
static void ask_device(void *arg, int fd)
{
    const device_question *q = arg;
    const lathe_plugin *plugin = q->component->plugin;
    const lathe_device_v1 *device = plugin->table;
    char why[256] = "";
    const int32_t score = device->score(why, sizeof why);
    why[sizeof why - 1] = '\0';
    json_t *row = json_pack("{s:s, s:i, s:s}", "name", plugin->name, "score", score, "why", why);
    if (score > LATHE_SCORE_NO)
        add_precisions(q->defaults, q->component, row);
    char *text = json_dumps(row, JSON_COMPACT);
    if (text != NULL)
        lathe_child_write(fd, text, (int64_t)strlen(text));
    free(text);
    json_decref(row);
}

static json_t *device_row(lathe_config *defaults, const lathe_component *component)
{
    device_question question = {defaults, component};
    lathe_buffer answer = LATHE_BUFFER_INIT;
    lathe_child_end end;
    char how[128] = "cannot be asked";
    json_t *row = NULL;
    if (lathe_child_run(ask_device, &question, DEVICE_SECONDS, &answer, &end) == LATHE_OK) {
        lathe_child_end_text(&end, DEVICE_SECONDS, how, sizeof how);
        if (end.how == LATHE_CHILD_DONE && answer.data != NULL)
            row = json_loads(answer.data, 0, NULL);
    }
    lathe_buffer_fini(&answer);
    if (row == NULL)
        row = json_pack("{s:s, s:i, s:s+}", "name", component->plugin->name, "score",
                        LATHE_SCORE_NO, "why", how, " when it is opened");
    return row;
}

/* {"folders", "found": {kind: [names]}, "devices": [{name, score, why, full_rate, precisions,
 * fp8_recipes}], "refused": [..]} */
static lathe_status plugins_json(lathe_registry *registry, lathe_config *defaults,
                                 lathe_arena *arena, json_t *out)
{
    json_t *folders = json_array(), *found = json_object();
    json_t *devices = json_array(), *refused = json_array();
    int64_t n;
    json_object_set_new(out, "folders", folders);
    json_object_set_new(out, "found", found);
    json_object_set_new(out, "devices", devices);
    json_object_set_new(out, "refused", refused);
    LATHE_TRY(lathe_registry_scan(registry, 0));
    const char *const *paths = lathe_registry_paths(registry, &n);
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(folders, json_string(paths[i]));
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++) {
        const lathe_component **items;
        json_t *names = json_array();
        json_object_set_new(found, lathe_kind_name(kind), names);
        LATHE_TRY(lathe_registry_list(registry, kind, arena, &items, &n));
        for (int64_t i = 0; i < n; i++) {
            const char *name = items[i]->plugin->name;
            json_array_append_new(names, json_string(name));
            if (kind != LATHE_KIND_DEVICE)
                continue;
            json_array_append_new(devices, device_row(defaults, items[i]));
        }
    }
    const lathe_refusal *refusals = lathe_registry_refusals(registry, &n);
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(refused,
                              json_pack("{s:s, s:s, s:b}", "path", refusals[i].path, "reason",
                                        refusals[i].reason, "note", refusals[i].is_note));
    return LATHE_OK;
}

static lathe_status collect(lathe_registry *registry, lathe_arena *arena, json_t *out)
{
    json_t *plugins = json_object();
    json_object_set_new(out, "version", json_string(lathe_version()));
    json_object_set_new(out, "cpu", lathe_doctor_cpu());
    json_object_set_new(out, "memory", lathe_doctor_memory());
    json_object_set_new(out, "onednn", lathe_doctor_onednn());
    json_object_set_new(out, "cuda", json_null()); /* reserves its position; filled in below */
    json_object_set_new(out, "plugins", plugins);
    lathe_diags diags = {0};
    lathe_config *defaults =
        NULL; /* devices get the settings of a run that says nothing about devices */
    lathe_status status =
        lathe_config_load(NULL, NULL, 0, 1u << LATHE_KIND_DEVICE, registry, &diags, &defaults);
    if (status == LATHE_OK)
        status = plugins_json(registry, defaults, arena, plugins);
    /* After the plugins: a child cannot use CUDA once its parent does. */
    json_object_set_new(out, "cuda", lathe_doctor_cuda());
    lathe_config_destroy(defaults);
    lathe_diags_fini(&diags);
    return status;
}

static const char *text_of(const json_t *object, const char *key, const char *missing)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : missing;
}

static double gib(const json_t *object, const char *key)
{
    return (double)json_integer_value(json_object_get(object, key)) / (double)(1 << 30);
}

static void print_list(const char *title, const json_t *list)
{
    const json_t *item;
    size_t i;
    if (json_array_size(list) == 0)
        return;
    lathe_print("  %-12s", title);
    json_array_foreach(list, i, item) lathe_print(" %s", json_string_value(item));
    lathe_print("\n");
}

static void print_machine(const json_t *all)
{
    const json_t *cpu = json_object_get(all, "cpu"), *memory = json_object_get(all, "memory");
    const json_t *cuda = json_object_get(all, "cuda"), *device;
    size_t i;
    lathe_print("lathe %s\n\ncpu           %s\n", text_of(all, "version", ""),
                text_of(cpu, "model", ""));
    lathe_print("  %-12s %lld of %lld CPUs allowed, %lld threads\n", "threads",
                (long long)json_integer_value(json_object_get(cpu, "allowed")),
                (long long)json_integer_value(json_object_get(cpu, "cpus")),
                (long long)json_integer_value(json_object_get(cpu, "threads")));
    print_list("features", json_object_get(cpu, "features"));
    print_list("os enables", json_object_get(cpu, "os_enabled"));
    print_list("switched off", json_object_get(cpu, "features_off_in_the_system"));
    lathe_print("memory        %.1f GiB, %.1f GiB available", gib(memory, "total_bytes"),
                gib(memory, "available_bytes"));
    if (json_is_integer(json_object_get(memory, "limit_bytes")))
        lathe_print(", limited to %.1f GiB", gib(memory, "limit_bytes"));
    lathe_print("\noneDNN        %s\n", text_of(all, "onednn", "not found"));
    lathe_print("cuda driver   %s%s%s\n", text_of(cuda, "driver", "none"),
                json_object_get(cuda, "why") ? ": " : "", text_of(cuda, "why", ""));
    json_array_foreach(json_object_get(cuda, "devices"), i, device) lathe_print(
        "  gpu %-8zu %s, sm_%lld, %.1f GiB\n", i, text_of(device, "name", ""),
        (long long)json_integer_value(json_object_get(device, "sm")), gib(device, "memory_bytes"));
    if (json_array_size(json_object_get(cuda, "libraries")) == 0)
        lathe_print(
            "cuda libraries  none: cuBLASLt and cuDNN are not found (LD_LIBRARY_PATH, ldconfig)\n");
    json_array_foreach(json_object_get(cuda, "libraries"), i, device)
        lathe_print("  %-12s %s  %s\n", text_of(device, "name", ""), text_of(device, "version", ""),
                    text_of(device, "path", ""));
    lathe_print("cuda toolkit  %s\n", text_of(cuda, "toolkit", "none"));
}

static void print_plugins(const json_t *plugins)
{
    const json_t *item;
    const char *kind;
    json_t *names;
    size_t i;
    lathe_print("\nplugins\n");
    print_list("folders", json_object_get(plugins, "folders"));
    json_object_foreach((json_t *)(uintptr_t)json_object_get(plugins, "found"), kind, names)
        print_list(kind, names);
    lathe_print("\ndevices by score\n");
    json_array_foreach(json_object_get(plugins, "devices"), i, item)
    {
        lathe_print("  %-16s %4lld  %s\n", text_of(item, "name", ""),
                    (long long)json_integer_value(json_object_get(item, "score")),
                    text_of(item, "why", ""));
        print_list("  precisions", json_object_get(item, "precisions"));
        print_list("  full rate", json_object_get(item, "full_rate"));
        print_list("  fp8 scales", json_object_get(item, "fp8_recipes"));
    }
    if (json_array_size(json_object_get(plugins, "refused")) > 0)
        lathe_print("\nrefused\n");
    json_array_foreach(json_object_get(plugins, "refused"), i, item)
        lathe_print("  %s%s\n", text_of(item, "reason", ""),
                    json_is_true(json_object_get(item, "note")) ? " (no fault)" : "");
}

static int run(const lathe_args *args)
{
    lathe_registry *registry = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *all = json_object();
    lathe_status status = lathe_registry_create(&registry);
    if (status == LATHE_OK)
        status = collect(registry, &arena, all);
    if (status == LATHE_OK && lathe_args_value(args, "--json")) {
        lathe_print_json(stdout, all, JSON_INDENT(2));
    } else if (status == LATHE_OK) {
        print_machine(all);
        print_plugins(json_object_get(all, "plugins"));
    }
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    json_decref(all);
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
    return code;
}

static const lathe_option options[] = {{"--json", NULL, "print everything as one object"}};

const lathe_command lathe_cmd_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "show the hardware of this machine and which plugins can use it",
    .details = "Prints CPU features and whether the operating system enables them, threads,\n"
               "memory, oneDNN, CUDA driver and toolkit, the plugins found, the devices with\n"
               "their scores, and the refused plugin files with the reasons.",
    .options = options,
    .n_options = 1,
    .run = run,
};

/* lathe ls: lists the plugins that are found. */
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/print.h"
#include "cmd/plugins/plug_commands.h"
#include "cmd/plugins/plugin_devices.h"
#include "cmd/plugins/plugins.h"
#include "graph/ir/op_info.h"
#include "plug/kind.h"
#include "view/wrap.h"

static lathe_status print_json(lathe_registry *registry, const lathe_component *const *items,
                               int64_t n, lathe_buffer *out)
{
    lathe_buffer_puts(out, "[");
    for (int64_t i = 0; i < n; i++) {
        const lathe_plugin *p = items[i]->plugin;
        const char *const pairs[][2] = {{"kind", lathe_kind_name(p->kind)},
                                        {"name", p->name},
                                        {"version", p->version},
                                        {"path", items[i]->path},
                                        {"summary", p->summary}};
        lathe_buffer_puts(out, i ? ",\n  {" : "\n  {");
        for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
            lathe_buffer_printf(out, "%s\"%s\": ", k ? ", " : "", pairs[k][0]);
            lathe_buffer_json_string(out, pairs[k][1] ? pairs[k][1] : "");
        }
        const char *devices[LATHE_DEVICES_MOST];
        LATHE_TRY(lathe_plugin_devices(registry, items[i], devices));
        lathe_buffer_puts(out, ", \"devices\": [");
        for (int k = 0; k < LATHE_DEVICES_MOST && devices[k]; k++) {
            lathe_buffer_puts(out, k ? ", " : "");
            lathe_buffer_json_string(out, devices[k]);
        }
        lathe_buffer_puts(out, "]}");
    }
    lathe_buffer_puts(out, n ? "\n]\n" : "]\n");
    return out->status;
}

enum { MIN_SUMMARY = 30 }; /* columns; with fewer, a summary is on separate lines */

/* Puts the row of one plugin: its columns and its summary, wrapped to the terminal's width. */
static void put_row(const char *name, int width, const lathe_plugin *p, const char *devices,
                    int32_t columns, lathe_buffer *out)
{
    const char *version = p->version ? p->version : "", *summary = p->summary ? p->summary : "";
    const int at = width + 2 + 8 + 2 + 8 + 2;
    if (columns > 0 && columns < at + MIN_SUMMARY) {
        char text[512];
        (void)snprintf(text, sizeof text, "%s, %s: %s", version, devices, summary);
        lathe_buffer_printf(out, "%s\n    ", name);
        lathe_wrap_text(out, text, 4, 4, columns);
    } else {
        lathe_buffer_printf(out, "%-*s  %-8s  %-8s  ", width, name, version, devices);
        lathe_wrap_text(out, summary, at, at, columns);
    }
    lathe_buffer_puts(out, "\n");
}

static lathe_status print_table(lathe_registry *registry, const lathe_component *const *items,
                                int64_t n, lathe_buffer *out)
{
    const int32_t columns = lathe_wrap_columns();
    int width = 0;
    for (int64_t i = 0; i < n; i++) {
        const lathe_plugin *p = items[i]->plugin;
        const int w = (int)(strlen(lathe_kind_name(p->kind)) + 1 + strlen(p->name));
        width = w > width ? w : width;
    }
    for (int64_t i = 0; i < n; i++) {
        const lathe_plugin *p = items[i]->plugin;
        char devices[64], name[128];
        LATHE_TRY(lathe_plugin_devices_text(registry, items[i], devices, sizeof devices));
        (void)snprintf(name, sizeof name, "%s/%s", lathe_kind_name(p->kind), p->name);
        put_row(name, width, p, devices, columns, out);
    }
    return out->status;
}

/* Puts the names of the core's ops, which are no plugins. */
static void put_core_ops(lathe_buffer *out)
{
    static const char title[] = "of the core: ";
    lathe_buffer names = LATHE_BUFFER_INIT;
    for (int32_t op = 0; op < LATHE_N_OPS; op++)
        lathe_buffer_printf(&names, "%s%s", op > 0 ? " " : "", lathe_op_info_get(op)->name);
    lathe_buffer_puts(out, title);
    lathe_wrap_text(out, names.data ? names.data : "", (int)sizeof title - 1, 4,
                    lathe_wrap_columns());
    lathe_buffer_puts(out, "\n");
    lathe_buffer_fini(&names);
}

static int run(const lathe_args *args)
{
    lathe_registry *registry = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer out = LATHE_BUFFER_INIT;
    const lathe_component **items = NULL;
    int64_t n = 0;
    int32_t kind = 0;
    int code = LATHE_EXIT_OK;
    const int as_json = lathe_args_value(args, "--json") != NULL;
    lathe_status status = LATHE_OK;
    if (args->n_words > 0 && (status = lathe_plugcmd_kind(args->words[0], &kind)) != LATHE_OK)
        goto out;
    if ((status = lathe_registry_create(&registry)) != LATHE_OK)
        goto out;
    if ((status = lathe_registry_scan(registry, kind)) != LATHE_OK)
        goto out;
    if ((status = lathe_registry_list(registry, kind, &arena, &items, &n)) != LATHE_OK)
        goto out;
    status = as_json ? print_json(registry, items, n, &out) : print_table(registry, items, n, &out);
    if (status != LATHE_OK)
        goto out;
    if (kind == LATHE_KIND_OP && !as_json)
        put_core_ops(&out);
    lathe_print_text(stdout, out.data ? out.data : "");
    lathe_plugcmd_print_refusals(registry, 0);
out:
    if (status != LATHE_OK)
        code = lathe_args_fail(args, status);
    lathe_buffer_fini(&out);
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
    return code;
}

static const lathe_option options[] = {
    {"--json", NULL, "print an array of objects: kind, name, version, path, summary, devices"},
};

const lathe_command lathe_cmd_ls = {
    .name = "ls",
    .arguments = "[KIND]",
    .summary = "list the installed plugins",
    .details =
        "KIND is one of optimizer scheduler quant adapter stage attention device model reward\n"
        "renderer reader collective op. The third column is the devices that a plugin works on: "
        "cpu,\n"
        "cuda or both; any: it has no code for a device; -: none. Lathe searches for plugins in\n"
        "LATHE_PLUGIN_PATH (absolute folders, separated by colons), in\n"
        "~/.local/lib/lathe/plugins, in lathe/plugins next to liblathe.so, and in\n"
        "../lib/lathe/plugins relative to the folder of the lathe program; each file is named\n"
        "<kind>/<name>.so. For a refused file the reason is printed on stderr. A file that\n"
        "Lathe has not seen before is first loaded in a child process.",
    .options = options,
    .n_options = 1,
    .max_words = 1,
    .run = run,
};

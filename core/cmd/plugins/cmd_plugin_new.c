/* lathe plugin new: makes a folder that can be built from the template of a kind. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/new_folder.h"
#include "base/print.h"
#include "cmd/plugins/plug_commands.h"
#include "cmd/plugins/plugins.h"
#include "plug/kind.h"
#include "plug/registry.h"

#define PLACEHOLDER "@NAME@"

/* Checks a plugin's name: [a-z][a-z0-9_]*, at most 48 characters. */
static lathe_status check_name(const char *name)
{
    size_t n = 0;
    if (islower((unsigned char)name[0]))
        while (islower((unsigned char)name[n]) || isdigit((unsigned char)name[n]) || name[n] == '_')
            n++;
    if (n == 0 || name[n] != '\0' || n > 48)
        return lathe_error(LATHE_E_ARG,
                           "the name '%s' must be a lower-case letter, then lower-case letters, "
                           "digits and _, at most 48",
                           name);
    return LATHE_OK;
}

/* Finds the folder of templates: near the installed command, or in the source tree in which it was
 * built. */
static lathe_status find_templates(const char *kind, lathe_arena *arena, const char **out_folder,
                                   const char **out_prefix)
{
    static const char *const places[] = {"../share/lathe/plugin_template",
                                         "../../examples/plugin_template"};
    char exe[PATH_MAX], real[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return lathe_error(LATHE_E_IO, "cannot tell where this program is: /proc/self/exe");
    exe[n] = '\0';
    *strrchr(exe, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *folder = lathe_arena_printf(arena, "%s/%s/%s", exe, places[i], kind);
        if (folder == NULL)
            return LATHE_E_NOMEM;
        if (!lathe_path_is_dir(folder))
            continue;
        const char *up = lathe_arena_printf(arena, "%s/..", exe);
        *out_folder = folder;
        *out_prefix = up && i == 0 && realpath(up, real) ? lathe_arena_strdup(arena, real) : NULL;
        return LATHE_OK;
    }
    return lathe_error(LATHE_E_NOT_FOUND, "no template for a plugin of kind %s in %s/%s or %s/%s",
                       kind, exe, places[0], exe, places[1]);
}

/* Appends text and replaces every placeholder. */
static void substitute(const char *text, const char *name, lathe_buffer *out)
{
    for (;;) {
        const char *at = strstr(text, PLACEHOLDER);
        if (at == NULL)
            break;
        lathe_buffer_append(out, text, at - text);
        lathe_buffer_puts(out, name);
        text = at + strlen(PLACEHOLDER);
    }
    lathe_buffer_puts(out, text);
}

/* Copies one file of the template from template/relative to folder/relative. `place`: the name that
 * the folder gets. */
static lathe_status copy_file(const char *from, const char *relative, const char *folder,
                              const char *place, const char *name)
{
    lathe_buffer path = LATHE_BUFFER_INIT, text = LATHE_BUFFER_INIT;
    char *data = NULL;
    int64_t bytes = 0;
    lathe_status status = lathe_file_read(from, 1 << 20, &data, &bytes);
    if (status != LATHE_OK)
        goto out;
    lathe_buffer_printf(&path, "%s/", folder);
    substitute(relative, name, &path);
    substitute(data, name, &text);
    status = path.status != LATHE_OK ? path.status : text.status;
    if (status != LATHE_OK)
        goto out;
    char *slash = strrchr(path.data, '/');
    *slash = '\0';
    status = lathe_dir_create(path.data);
    *slash = '/';
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(path.data, text.data, text.len);
    if (status == LATHE_OK)
        lathe_print("  %s%s\n", place, path.data + strlen(folder));
out:
    free(data);
    lathe_buffer_fini(&path);
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status fill_folder(const char *template, const char *folder, const char *place,
                                const char *name, lathe_arena *arena)
{
    char **paths;
    int64_t n;
    LATHE_TRY(lathe_dir_walk(template, arena, &paths, &n));
    for (int64_t i = 0; i < n; i++) {
        const char *relative = paths[i] + strlen(template);
        relative += strspn(relative, "/");
        LATHE_TRY(copy_file(paths[i], relative, folder, place, name));
    }
    return LATHE_OK;
}

static lathe_status copy_template(const char *template, const char *folder, const char *name,
                                  lathe_arena *arena)
{
    const char *beside = NULL;
    LATHE_TRY(lathe_new_folder_begin(arena, folder, &beside));
    return lathe_new_folder_end(fill_folder(template, beside, folder, name, arena), beside, folder);
}

/* Whether a plugin of this kind and name is installed. */
static lathe_status is_installed(int32_t kind, const char *name, lathe_arena *arena, int *out)
{
    lathe_registry *registry = NULL;
    const char **names = NULL;
    int64_t n = 0;
    *out = 0;
    LATHE_TRY(lathe_registry_create(&registry));
    const lathe_status status = lathe_registry_names(registry, kind, arena, &names, &n);
    for (int64_t i = 0; status == LATHE_OK && i < n; i++)
        *out |= strcmp(names[i], name) == 0;
    lathe_registry_destroy(registry);
    return status;
}

/* How a run uses the plugin. */
static void print_use(const char *folder, const char *kind, const char *name, int is_taken)
{
    const char *here = folder[0] == '/' ? "" : "$PWD/";
    lathe_print("use:    ");
    if (strcmp(kind, "op") == 0) { /* a plugin that builds a graph names it */
        lathe_print("api->op(graph, \"%s\", ..) in a model, an adapter or a stage, with "
                    "LATHE_PLUGIN_PATH=%s%s/build/plugins\n",
                    name, here, folder);
        return;
    }
    if (is_taken) /* a built-in plugin may only be replaced by permission */
        lathe_print("LATHE_PLUGIN_OVERRIDE=%s/%s ", kind, name);
    lathe_print("LATHE_PLUGIN_PATH=%s%s/build/plugins lathe train run.toml ", here, folder);
    if (strcmp(kind, "reader") == 0) /* a file's name decides which reader reads it */
        lathe_print("--data.datasets '[{path = \"FILE.%s\"}]'\n", name);
    else
        lathe_print("--%s.name %s\n", kind, name);
}

static void print_next(const char *folder, const char *kind, const char *name, const char *prefix,
                       int is_taken)
{
    lathe_print("\nbuild:  cmake -S %s -B %s/build%s%s && cmake --build %s/build\n", folder, folder,
                prefix ? " -DCMAKE_PREFIX_PATH=" : "", prefix ? prefix : "", folder);
    if (prefix == NULL)
        lathe_print("        (against an installed Lathe: cmake --install first, and "
                    "-DCMAKE_PREFIX_PATH)\n");
    lathe_print("check:  lathe plugin check %s/build/plugins/%s/%s.so\n", folder, kind, name);
    print_use(folder, kind, name, is_taken);
    lathe_print(
        "keep:   cmake --install %s/build    (~/.local/lib/lathe/plugins: found without the "
        "variable)\n",
        folder);
}

static lathe_status make(const lathe_args *args, lathe_arena *arena)
{
    const char *kind = args->words[0], *name = args->words[1];
    const char *into = lathe_args_value(args, "--into");
    const char *template, *prefix;
    int32_t id;
    LATHE_TRY(lathe_plugcmd_kind(kind, &id));
    LATHE_TRY(check_name(name));
    int is_taken = 0;
    LATHE_TRY(is_installed(id, name, arena, &is_taken));
    LATHE_TRY(find_templates(kind, arena, &template, &prefix));
    const char *folder = into ? lathe_path_join(arena, into, name) : name;
    if (folder == NULL)
        return LATHE_E_NOMEM;
    if (lathe_path_exists(folder))
        return lathe_error(LATHE_E_ARG, "%s exists already", folder);
    lathe_print("a plugin of kind %s:\n", kind);
    LATHE_TRY(copy_template(template, folder, name, arena));
    print_next(folder, kind, name, prefix, is_taken);
    return LATHE_OK;
}

static int run(const lathe_args *args)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = make(args, &arena);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_arena_fini(&arena);
    return code;
}

static const lathe_option options[] = {
    {"--into", "FOLDER", "create the plugin's folder in FOLDER instead of the current folder"},
};

const lathe_command lathe_cmd_plugin_new = {
    .name = "plugin new",
    .arguments = "KIND NAME",
    .summary = "create a plugin from a template: NAME/CMakeLists.txt, plugin.c, test.c",
    .details = "The plugin is built with find_package(lathe), outside the source tree of\n"
               "Lathe, and works at once; then replace its formula with yours. A folder that\n"
               "exists is refused.",
    .options = options,
    .n_options = 1,
    .min_words = 2,
    .max_words = 2,
    .run = run,
};

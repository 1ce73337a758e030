/* lathe validate: everything that is wrong with a run file, at once, before any weight is read. */
#include <stdio.h>

#include "app/commands.h"
#include "base/error.h"
#include "plug/select.h"
#include "run/run_check.h"

/* "auto" and families of devices are settled as a run would settle them. */
static lathe_status check_device(lathe_config *config, lathe_registry *registry, lathe_diags *diags,
                                 lathe_arena *arena)
{
    const lathe_part *part = lathe_config_part(config, LATHE_KIND_DEVICE);
    const lathe_component *device;
    const lathe_value *values;
    if (part->is_none || part->component != NULL)
        return LATHE_OK;
    if (lathe_select_device(registry, part->name, arena, &device, NULL) != LATHE_OK) {
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "device", "name", "%s",
                         lathe_error_message());
        return LATHE_OK;
    }
    const lathe_status status =
        lathe_config_bind(config, LATHE_KIND_DEVICE, device, diags, &values);
    return status == LATHE_E_CONFIG ? LATHE_OK : status; /* diags has it */
}

static void print_diags(const lathe_diags *diags)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_diags_print(diags, &text);
    (void)fputs(text.data ? text.data : "", stderr);
    lathe_buffer_fini(&text);
}

/* The rest of the checks, on a configuration whose keys are right. */
static lathe_status check_parts(lathe_config *config, lathe_registry *registry, lathe_diags *diags)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = lathe_run_check(config, registry, diags);
    if (status == LATHE_OK)
        status = check_device(config, registry, diags, &arena);
    lathe_diags_sort(diags);
    lathe_arena_fini(&arena);
    return status;
}

static int run(const lathe_args *args)
{
    const char *path = args->words[0];
    lathe_registry *registry = NULL;
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    int code = LATHE_EXIT_OK;
    lathe_status status = lathe_registry_create(&registry);
    if (status == LATHE_OK)
        status =
            lathe_config_load(path, args->overrides, args->n_overrides,
                              ((1u << LATHE_N_KINDS) - 2) | LATHE_CONFIG_FILES | LATHE_CONFIG_TRAIN,
                              registry, &diags, &config);
    if (status == LATHE_OK)
        status = check_parts(config, registry, &diags);
    print_diags(&diags);
    if (diags.n_errors > 0) {
        code = LATHE_EXIT_USAGE;
        (void)fprintf(stderr, "%s: %lld error%s\n", path, (long long)diags.n_errors,
                      diags.n_errors == 1 ? "" : "s");
    } else if (status != LATHE_OK) {
        code = lathe_args_fail(args, status);
    } else {
        printf("%s: valid\n", path);
    }
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    lathe_registry_destroy(registry);
    return code;
}

const lathe_command lathe_cmd_validate = {
    .name = "validate",
    .arguments = "RUN.toml",
    .summary = "check a run file: all errors at once, each with its place",
    .details =
        "Exit 0: a run would start. Exit 2: it would not, and stderr says why, one line per\n"
        "error: file:line:column, what was found, what was expected. Reads no weights.",
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = 1,
    .run = run,
};

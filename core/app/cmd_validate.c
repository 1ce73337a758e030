/* lathe validate: everything that is wrong with a run file, at once, before anything is started. */
#include <stdio.h>

#include "app/commands.h"
#include "app/refusal.h"
#include "run/run_check.h"

static const lathe_option options[] = {
    {"--offline", NULL, "leave out what needs this machine (device, memory) or the data"},
    {"--json", NULL, "one JSON object: valid, errors, warnings, each with its place"},
};

static int run(const lathe_args *args)
{
    const char *path = args->words[0];
    lathe_diags diags = {0};
    const lathe_status status =
        lathe_run_check(path, args->overrides, args->n_overrides,
                        lathe_args_value(args, "--offline") != NULL, &diags);
    const int as_json = lathe_args_value(args, "--json") != NULL;
    const int code = as_json ? lathe_app_tell_refusal_json(args, &diags, status)
                             : lathe_app_tell_refusal(args, &diags, status);
    if (code == LATHE_EXIT_OK && !as_json)
        printf("%s: valid\n", path);
    lathe_diags_fini(&diags);
    return code;
}

const lathe_command lathe_cmd_validate = {
    .name = "validate",
    .arguments = "RUN.toml",
    .summary = "check a run file: all errors at once, each with its place",
    .details =
        "Exit 0: lathe train would start. Exit 2: it would not, and stderr says why, one line per\n"
        "error: file:line:column, what was found, what was expected. Does what lathe train does "
        "before\n"
        "it takes memory: it reads the heads of the model's files, opens the device, makes the "
        "plan, and\n"
        "tokenises the data into data.cache_dir, where training finds them. With --offline it "
        "reads\n"
        "neither data nor weights and opens no device: for a file that is to run elsewhere.",
    .min_words = 1,
    .max_words = 1,
    .computes = 1,
    .takes_overrides = 1,
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .run = run,
};

/* lathe new: writes a commented run file of a stage. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/output_file.h"
#include "base/print.h"
#include "newcmd/new_commands.h"
#include "newcmd/run_templates.h"

static const lathe_option options[] = {
    {"--model", "DIR", "the model's folder (default: models/NAME)"},
    {"--data", "PATH", "the data (default: a name that says what it should hold)"},
    {"-o, --output", "RUN.toml",
     "write this new file (default: STAGE.toml; \"-\": standard output)"},
};

/* Appends a text of a template; @MODEL@ and @DATA@ become the paths, in quotes. */
static void fill(const char *text, const char *model, const char *data, lathe_buffer *out)
{
    while (*text) {
        const char *at = strchr(text, '@');
        if (at == NULL) {
            lathe_buffer_puts(out, text);
            return;
        }
        lathe_buffer_append(out, text, at - text);
        const int is_model = strncmp(at, "@MODEL@", 7) == 0;
        lathe_buffer_json_string(out, is_model ? model : data);
        text = at + (is_model ? 7 : 6);
    }
}

static lathe_status write_file(const char *path, const lathe_buffer *text)
{
    if (strcmp(path, "-") == 0) {
        lathe_print_output(stdout, text->data, text->len);
        return ferror(stdout) ? lathe_error(LATHE_E_IO, "standard output cannot be written")
                              : LATHE_OK;
    }
    if (lathe_path_exists(path))
        return lathe_error(LATHE_E_ARG, "%s is there already; name another with -o", path);
    return lathe_file_write_output(path, text->data, text->len);
}

static lathe_status create(const lathe_args *args, const char **out_path, char *room, size_t bytes)
{
    const char *stage = args->words[0];
    const char *model = lathe_args_value(args, "--model"), *data = lathe_args_value(args, "--data");
    const lathe_run_template *t = lathe_run_template_find(stage, model != NULL);
    lathe_buffer names = LATHE_BUFFER_INIT, text = LATHE_BUFFER_INIT;
    lathe_status status = LATHE_OK;
    if (t == NULL) {
        lathe_run_template_names(&names);
        status = lathe_error(LATHE_E_ARG, "no run file of stage \"%s\"; expected one of %s", stage,
                             names.data ? names.data : "");
        lathe_buffer_fini(&names);
        return status;
    }
    (void)snprintf(room, bytes, "%s.toml", t->stage);
    *out_path = lathe_args_value(args, "--output") ? lathe_args_value(args, "--output") : room;
    fill(t->text, model ? model : "models/NAME", data ? data : t->data, &text);
    status = text.status != LATHE_OK ? text.status : write_file(*out_path, &text);
    lathe_buffer_fini(&text);
    return status;
}

static int run(const lathe_args *args)
{
    char room[64];
    const char *path = NULL;
    const lathe_status status = create(args, &path, room, sizeof room);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    if (strcmp(path, "-") != 0)
        lathe_print("%s: edit it, then\n  lathe validate %s\n  lathe train %s\n", path, path, path);
    return LATHE_EXIT_OK;
}

const lathe_command lathe_cmd_new = {
    .name = "new",
    .arguments = "sft|pretrain|dpo|kto|rm|ppo",
    .summary = "write a commented run file to begin with",
    .details =
        "The file names the keys that one usually sets, with a reason beside each; all others\n"
        "have defaults (lathe show SECTION). lathe import makes one of another trainer's file.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .min_words = 1,
    .max_words = 1,
    .run = run,
};

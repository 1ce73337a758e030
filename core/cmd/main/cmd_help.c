/* lathe help: describes a command, in the terminal or as a manual page. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/line/man_page.h"
#include "cmd/main/commands.h"

/* Finds the command whose name the words are. */
static lathe_status find(const lathe_args *args, const lathe_command **out)
{
    char *words[2];
    int covered = 0;
    for (int32_t i = 0; i < args->n_words; i++)
        words[i] = (char *)(uintptr_t)args->words[i];
    *out = lathe_command_match(&lathe_app_commands, args->n_words, words, &covered);
    if (*out && covered == args->n_words)
        return LATHE_OK;
    return lathe_error(LATHE_E_ARG, "there is no command '%s%s%s'; `lathe help` lists them",
                       args->words[0], args->n_words > 1 ? " " : "",
                       args->n_words > 1 ? args->words[1] : "");
}

static lathe_status print_page(const lathe_args *args, const lathe_command *command)
{
    lathe_buffer page = LATHE_BUFFER_INIT;
    lathe_status status;
    if (args->n_words == 1 && strcmp(args->words[0], "run.toml") == 0)
        status = lathe_man_run_file(&page);
    else
        status = command ? lathe_man_command(command, &page)
                         : lathe_man_overview(&lathe_app_commands, &page);
    if (status == LATHE_OK)
        lathe_print_text(stdout, page.data);
    lathe_buffer_fini(&page);
    return status;
}

static int run(const lathe_args *args)
{
    const lathe_command *command = NULL;
    const int as_page = lathe_args_value(args, "--man") != NULL;
    const int is_file = as_page && args->n_words == 1 && strcmp(args->words[0], "run.toml") == 0;
    lathe_status status = LATHE_OK;
    if (args->n_words == 1 && !as_page &&
        lathe_command_is_group(&lathe_app_commands, args->words[0])) {
        char *const words[] = {(char *)(uintptr_t)args->words[0], (char[]){"--help"}};
        return lathe_command_unknown(&lathe_app_commands, 2, words);
    }
    if (args->n_words > 0 && !is_file)
        status = find(args, &command);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    if (as_page)
        status = print_page(args, command);
    else if (command)
        lathe_args_help(command);
    else
        lathe_commands_help(&lathe_app_commands, stdout);
    return status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
}

static const lathe_option options[] = {
    {"--man", NULL,
     "print a manual page in roff, for `man -l -`; `lathe help run.toml --man` describes all keys "
     "of a run file"},
};

const lathe_command lathe_cmd_help = {
    .name = "help",
    .arguments = "[COMMAND]",
    .summary = "describe a command",
    .options = options,
    .n_options = 1,
    .max_words = 2,
    .run = run,
};

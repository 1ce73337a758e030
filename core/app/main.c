/* lathe: finds the command, reads its arguments, runs it.
 *
 * Exit codes: 0 done, 1 failed at run time, 2 wrong usage or configuration.
 */
#include <stdio.h>
#include <string.h>

#include "app/commands.h"
#include "app/patience.h"
#include "base/error.h"
#include "plug/suggest.h"

extern const char *lathe_version(void);

static const lathe_command *const commands[] = {
#define LATHE_X(name) &lathe_cmd_##name,
    LATHE_COMMAND_TABLE(LATHE_X)
#undef LATHE_X
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *to)
{
    (void)fprintf(to, "usage: lathe COMMAND [ARGUMENTS]\n\n"
                      "Trains large language models with interchangeable parts.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        (void)fprintf(to, "  %-18s %s\n", commands[i]->name, commands[i]->summary);
    (void)fprintf(to,
                  "\n`lathe COMMAND --help` tells more. `lathe --version` prints the version.\n");
}

/* First words of the commands, one per line, for completion. */
static void list_commands(void)
{
    const char *last = "";
    for (int i = 0; i < N_COMMANDS; i++) {
        const int n = (int)strcspn(commands[i]->name, " ");
        if (strncmp(commands[i]->name, last, (size_t)n) != 0 || last[n] != ' ')
            printf("%.*s\n", n, commands[i]->name);
        last = commands[i]->name;
    }
}

/* How many of argv's words `name` ("plugin new") covers; 0 when it does not match. */
static int match(const char *name, int argc, char **argv)
{
    const size_t n = strcspn(name, " ");
    if (argc < 1 || strlen(argv[0]) != n || strncmp(argv[0], name, n) != 0)
        return 0;
    if (name[n] == '\0')
        return 1;
    return argc > 1 && strcmp(argv[1], name + n + 1) == 0 ? 2 : 0;
}

/* `word` alone names no command. The commands that begin with it ("plugin"), or a near one. */
static int refuse(int argc, char **argv)
{
    const char *word = argv[0];
    const size_t n = strlen(word);
    const char *names[N_COMMANDS];
    const char *rest[N_COMMANDS];
    int n_rest = 0;
    for (int i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i]->name;
        if (strncmp(names[i], word, n) == 0 && names[i][n] == ' ')
            rest[n_rest++] = names[i] + n + 1;
    }
    if (n_rest > 0) {
        const int help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
        FILE *to = help ? stdout : stderr;
        const char *near = argc > 1 && !help ? lathe_suggest(argv[1], rest, n_rest) : NULL;
        if (near != NULL)
            (void)fprintf(to, "lathe %s: unknown command '%s' (did you mean '%s'?)\n", word,
                          argv[1], near);
        (void)fprintf(to, "usage:\n");
        for (int i = 0; i < N_COMMANDS; i++)
            if (strncmp(names[i], word, n) == 0 && names[i][n] == ' ')
                (void)fprintf(to, "  lathe %s %s\n      %s\n", names[i], commands[i]->arguments,
                              commands[i]->summary);
        return help ? LATHE_EXIT_OK : LATHE_EXIT_USAGE;
    }
    const char *near = lathe_suggest(word, names, N_COMMANDS);
    if (near == NULL && lathe_edit_distance(word, "plugin") <= 2)
        near = "plugin"; /* the first word of two */
    if (near != NULL)
        (void)fprintf(stderr, "lathe: unknown command '%s' (did you mean '%s'?)\n", word, near);
    else
        (void)fprintf(stderr, "lathe: unknown command '%s'; `lathe --help` lists them\n", word);
    return LATHE_EXIT_USAGE;
}

static int run(const lathe_command *command, int argc, char **argv)
{
    lathe_args args;
    int code;
    const lathe_status status = lathe_args_parse(&args, command, argc, argv);
    if (status != LATHE_OK) {
        code = lathe_args_fail(&args, status);
        (void)fprintf(stderr, "try `lathe %s --help`\n", command->name);
    } else if (args.wants_help) {
        lathe_args_help(command);
        code = LATHE_EXIT_OK;
    } else {
        code = command->run(&args);
    }
    lathe_args_fini(&args);
    if (fflush(stdout) != 0 && code == LATHE_EXIT_OK)
        code = LATHE_EXIT_FAILED; /* a full disk or a closed pipe: the answer did not arrive */
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return LATHE_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        (strcmp(argv[1], "help") == 0 && argc == 2)) {
        print_help(stdout);
        return LATHE_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("lathe %s\n", lathe_version());
        return LATHE_EXIT_OK;
    }
    if (strcmp(argv[1], "--list-commands") == 0) {
        list_commands();
        return LATHE_EXIT_OK;
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        const int n = match(commands[i]->name, argc - 1, argv + 1);
        if (n > 0 && commands[i]->computes)
            lathe_app_wait_patiently(argv);
        if (n > 0)
            return run(commands[i], argc - 1 - n, argv + 1 + n);
    }
    return refuse(argc - 1, argv + 1);
}

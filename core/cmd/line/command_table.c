/* A list of commands: matching, help, and answers to unknown words. */
#include "cmd/line/command_table.h"

#include <string.h>

#include "base/print.h"
#include "plug/suggest.h"

/* The number of words of `name` ("plugin new") if argv begins with it, else 0. */
static int match(const char *name, int argc, char *const *argv)
{
    const size_t n = strcspn(name, " ");
    if (argc < 1 || strlen(argv[0]) != n || strncmp(argv[0], name, n) != 0)
        return 0;
    if (name[n] == '\0')
        return 1;
    return argc > 1 && strcmp(argv[1], name + n + 1) == 0 ? 2 : 0;
}

const lathe_command *lathe_command_match(const lathe_command_list *list, int argc,
                                         char *const *argv, int *out_words)
{
    for (int32_t i = 0; i < list->n; i++) {
        *out_words = match(list->all[i]->name, argc, argv);
        if (*out_words > 0)
            return list->all[i];
    }
    return NULL;
}

int lathe_command_is_group(const lathe_command_list *list, const char *word)
{
    const size_t n = strlen(word);
    for (int32_t i = 0; i < list->n; i++)
        if (strncmp(list->all[i]->name, word, n) == 0 && list->all[i]->name[n] == ' ')
            return 1;
    return 0;
}

void lathe_commands_help(const lathe_command_list *list, FILE *to)
{
    lathe_print_to(to, "usage: lathe COMMAND [ARGUMENTS]\n\n"
                       "Trains large language models with interchangeable parts.\n\ncommands:\n");
    for (int32_t i = 0; i < list->n; i++)
        lathe_print_to(to, "  %-18s %s\n", list->all[i]->name, list->all[i]->summary);
    lathe_print_to(
        to, "\n`lathe help COMMAND` describes a command. `lathe --version` prints the version.\n");
}

/* Prints the commands whose first word is argv[0]. Returns the exit code. */
static int group_help(const lathe_command_list *list, int argc, char *const *argv)
{
    const char *word = argv[0], *rest[LATHE_MAX_COMMANDS];
    const size_t n = strlen(word);
    int32_t n_rest = 0;
    for (int32_t i = 0; i < list->n; i++)
        if (strncmp(list->all[i]->name, word, n) == 0 && list->all[i]->name[n] == ' ')
            rest[n_rest++] = list->all[i]->name + n + 1;
    const int help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    FILE *to = help ? stdout : stderr;
    const char *near = argc > 1 && !help ? lathe_suggest(argv[1], rest, n_rest) : NULL;
    if (near != NULL)
        lathe_print_to(to, "lathe %s: unknown command '%s' (did you mean '%s'?)\n", word, argv[1],
                       near);
    lathe_print_to(to, "usage:\n");
    for (int32_t i = 0; i < list->n; i++)
        if (strncmp(list->all[i]->name, word, n) == 0 && list->all[i]->name[n] == ' ')
            lathe_print_to(to, "  lathe %s %s\n      %s\n", list->all[i]->name,
                           list->all[i]->arguments, list->all[i]->summary);
    return help ? LATHE_EXIT_OK : LATHE_EXIT_USAGE;
}

int lathe_command_unknown(const lathe_command_list *list, int argc, char *const *argv)
{
    const char *word = argv[0], *names[LATHE_MAX_COMMANDS];
    if (lathe_command_is_group(list, word))
        return group_help(list, argc, argv);
    for (int32_t i = 0; i < list->n_instead; i++)
        if (strcmp(word, list->instead[i].word) == 0) {
            lathe_print_to(stderr, "lathe: there is no command '%s': %s\n", word,
                           list->instead[i].advice);
            return LATHE_EXIT_USAGE;
        }
    for (int32_t i = 0; i < list->n; i++)
        names[i] = list->all[i]->name;
    const char *near = lathe_suggest(word, names, list->n);
    if (near == NULL && lathe_edit_distance(word, "plugin") <= 2)
        near = "plugin"; /* the first word of commands of two words */
    if (near != NULL)
        lathe_print_to(stderr, "lathe: unknown command '%s' (did you mean '%s'?)\n", word, near);
    else
        lathe_print_to(stderr, "lathe: unknown command '%s'; `lathe --help` lists them\n", word);
    return LATHE_EXIT_USAGE;
}

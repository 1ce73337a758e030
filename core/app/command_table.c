/* The commands as a list. */
#include "app/command_table.h"

#include <string.h>

#include "app/commands.h"
#include "plug/suggest.h"

static const lathe_command *const commands[] = {
#define LATHE_X(name) &lathe_cmd_##name,
    LATHE_COMMAND_TABLE(LATHE_X)
#undef LATHE_X
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

/* Words that users of other tools try, and what Lathe has for them. */
static const char *const instead[][2] = {
    {"export", "each checkpoint is a Hugging Face folder already: copy DIR/step-N as it is"},
    {"save", "each checkpoint is a Hugging Face folder already: copy DIR/step-N as it is"},
    {"merge", "Lathe does not merge adapters; PEFT loads the folder of an adapter as it is"},
    {"convert", "Lathe reads and writes Hugging Face folders; set model.path to one"},
    {"quantize", "a run quantizes its frozen weights when it starts: set quant.name"},
    {"finetune", "use `lathe train RUN.toml` with adapter.name = \"lora\" or \"full\""},
    {"fine-tune", "use `lathe train RUN.toml` with adapter.name = \"lora\" or \"full\""},
    {"sft", "use `lathe train RUN.toml`; the stage is stage.name"},
    {"dpo", "use `lathe train RUN.toml` with stage.name = \"dpo\""},
    {"pretrain", "use `lathe train RUN.toml`; the stage is stage.name"},
    {"run", "use `lathe train RUN.toml`"},
    {"fit", "use `lathe train RUN.toml`"},
    {"resume", "use `lathe train RUN.toml`: it resumes from the latest checkpoint"},
    {"evaluate", "use `lathe eval DIR|RUN.toml`"},
    {"test", "use `lathe eval DIR|RUN.toml`"},
    {"perplexity", "use `lathe eval DIR|RUN.toml`"},
    {"chat", "use `lathe generate DIR --prompt TEXT`"},
    {"infer", "use `lathe generate DIR --prompt TEXT`"},
    {"predict", "use `lathe generate DIR --prompt TEXT`"},
    {"sample", "use `lathe generate DIR --prompt TEXT`"},
    {"serve", "Lathe has no server; `lathe generate DIR --prompt TEXT` continues a text"},
    {"list", "use `lathe ls`"},
    {"plugins", "use `lathe ls`"},
    {"info", "use `lathe show KIND/NAME`, or `lathe doctor` for the machine"},
    {"config", "use `lathe show SECTION`, and `lathe validate RUN.toml`"},
    {"check", "use `lathe validate RUN.toml`, or `lathe plugin check FILE.so`"},
    {"memory", "use `lathe plan RUN.toml`"},
    {"estimate", "use `lathe plan RUN.toml`"},
    {"tensorboard", "set log.tensorboard = true, or use `lathe watch DIR`"},
};

const lathe_command *const *lathe_commands(int32_t *out_n)
{
    *out_n = N_COMMANDS;
    return commands;
}

/* How many of argv's words `name` ("plugin new") covers; 0 when it does not match. */
static int match(const char *name, int argc, char *const *argv)
{
    const size_t n = strcspn(name, " ");
    if (argc < 1 || strlen(argv[0]) != n || strncmp(argv[0], name, n) != 0)
        return 0;
    if (name[n] == '\0')
        return 1;
    return argc > 1 && strcmp(argv[1], name + n + 1) == 0 ? 2 : 0;
}

const lathe_command *lathe_command_match(int argc, char *const *argv, int *out_words)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        *out_words = match(commands[i]->name, argc, argv);
        if (*out_words > 0)
            return commands[i];
    }
    return NULL;
}

int lathe_command_is_group(const char *word)
{
    const size_t n = strlen(word);
    for (int i = 0; i < N_COMMANDS; i++)
        if (strncmp(commands[i]->name, word, n) == 0 && commands[i]->name[n] == ' ')
            return 1;
    return 0;
}

void lathe_commands_help(FILE *to)
{
    (void)fprintf(to, "usage: lathe COMMAND [ARGUMENTS]\n\n"
                      "Trains large language models with interchangeable parts.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        (void)fprintf(to, "  %-18s %s\n", commands[i]->name, commands[i]->summary);
    (void)fprintf(to, "\n`lathe help COMMAND` tells more. `lathe --version` prints the version.\n");
}

/* The commands whose first word is argv[0]. Returns the exit code. */
static int group_help(int argc, char *const *argv)
{
    const char *word = argv[0], *rest[N_COMMANDS];
    const size_t n = strlen(word);
    int n_rest = 0;
    for (int i = 0; i < N_COMMANDS; i++)
        if (strncmp(commands[i]->name, word, n) == 0 && commands[i]->name[n] == ' ')
            rest[n_rest++] = commands[i]->name + n + 1;
    const int help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    FILE *to = help ? stdout : stderr;
    const char *near = argc > 1 && !help ? lathe_suggest(argv[1], rest, n_rest) : NULL;
    if (near != NULL)
        (void)fprintf(to, "lathe %s: unknown command '%s' (did you mean '%s'?)\n", word, argv[1],
                      near);
    (void)fprintf(to, "usage:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        if (strncmp(commands[i]->name, word, n) == 0 && commands[i]->name[n] == ' ')
            (void)fprintf(to, "  lathe %s %s\n      %s\n", commands[i]->name,
                          commands[i]->arguments, commands[i]->summary);
    return help ? LATHE_EXIT_OK : LATHE_EXIT_USAGE;
}

int lathe_command_unknown(int argc, char *const *argv)
{
    const char *word = argv[0], *names[N_COMMANDS];
    if (lathe_command_is_group(word))
        return group_help(argc, argv);
    for (size_t i = 0; i < sizeof instead / sizeof instead[0]; i++)
        if (strcmp(word, instead[i][0]) == 0) {
            (void)fprintf(stderr, "lathe: there is no command '%s': %s\n", word, instead[i][1]);
            return LATHE_EXIT_USAGE;
        }
    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i]->name;
    const char *near = lathe_suggest(word, names, N_COMMANDS);
    if (near == NULL && lathe_edit_distance(word, "plugin") <= 2)
        near = "plugin"; /* the first word of two */
    if (near != NULL)
        (void)fprintf(stderr, "lathe: unknown command '%s' (did you mean '%s'?)\n", word, near);
    else
        (void)fprintf(stderr, "lathe: unknown command '%s'; `lathe --help` lists them\n", word);
    return LATHE_EXIT_USAGE;
}

/* Parses the arguments of a command: words, options, overrides. */
#include "cmd/line/args.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checkpoint_path.h"
#include "base/error.h"
#include "base/print.h"
#include "cmd/line/errors_json.h"
#include "cmd/line/run_folder.h"
#include "plug/suggest.h"

/* The long name of an option: "--output" of "-o, --output". */
static const char *long_name(const lathe_option *option)
{
    return strstr(option->name, "--");
}

/* Index of the option whose short or long name is the first n bytes of `text`; -1: none. */
static int32_t option_index(const lathe_command *command, const char *text, size_t n)
{
    for (int32_t i = 0; i < command->n_options; i++) {
        const char *name = command->options[i].name, *full = long_name(&command->options[i]);
        if ((strncmp(full, text, n) == 0 && full[n] == '\0') ||
            (full != name && n == 2 && strncmp(name, text, 2) == 0))
            return i;
    }
    return -1;
}

static int repeats(const lathe_option *option)
{
    const size_t n = option->value ? strlen(option->value) : 0;
    return n > 3 && strcmp(option->value + n - 3, "...") == 0 && option->value[n - 4] != ',';
}

int32_t lathe_option_value_length(const lathe_option *option)
{
    const int32_t n = option->value ? (int32_t)strlen(option->value) : 0;
    return repeats(option) ? n - 3 : n;
}

static lathe_status unknown_option(const lathe_command *command, const char *text, size_t n)
{
    const char *names[64] = {"--help"};
    int32_t n_names = 1;
    for (int32_t i = 0; i < command->n_options && n_names < 64; i++)
        names[n_names++] = long_name(&command->options[i]);
    char typed[128];
    (void)snprintf(typed, sizeof typed, "%.*s", (int)n, text);
    const char *near = lathe_suggest(typed, names, n_names);
    return lathe_error_suggest(lathe_error(LATHE_E_ARG, "unknown option '%s'", typed), near);
}

/* Takes the value of the option at argv[*i]: the text after its '=', or the next argument. */
static lathe_status take_value(int argc, char **argv, int *i, const char *equals, const char **out)
{
    if (equals != NULL) {
        *out = equals + 1;
        return LATHE_OK;
    }
    if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
        return lathe_error(LATHE_E_ARG, "'%s' needs a value", argv[*i]);
    *out = argv[++*i];
    return LATHE_OK;
}

/* Copies "section.key" of "--section.key=value" to heap memory that the override owns. */
static lathe_status add_override(lathe_args *args, const char *text, size_t n, const char *value)
{
    char *key = strndup(text + 2, n - 2);
    if (key == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for arguments");
    args->overrides[args->n_overrides++] = (lathe_override){key, value};
    lathe_edits_literal(&args->edits, LATHE_BY_COMMAND, key, value);
    return args->edits.status == LATHE_OK ? LATHE_OK
                                          : lathe_error(LATHE_E_NOMEM, "no memory for arguments");
}

static lathe_status take_option(lathe_args *args, int argc, char **argv, int *i)
{
    const char *text = argv[*i];
    const char *equals = strchr(text, '=');
    const size_t n = equals ? (size_t)(equals - text) : strlen(text);
    const char *value = NULL;
    const int32_t index = option_index(args->command, text, n);
    if (index >= 0) {
        if (args->command->options[index].value != NULL) {
            if (args->values[index] != NULL && !repeats(&args->command->options[index]))
                return lathe_error(LATHE_E_ARG, "'%.*s' is given twice", (int)n, text);
            LATHE_TRY(take_value(argc, argv, i, equals, &args->values[index]));
            if (repeats(&args->command->options[index])) {
                args->given_of[args->n_given] = index;
                args->given[args->n_given++] = args->values[index];
            }
            return LATHE_OK;
        }
        if (equals != NULL)
            return lathe_error(LATHE_E_ARG, "'%.*s' takes no value", (int)n, text);
        args->values[index] = "";
        return LATHE_OK;
    }
    const char *dot = memchr(text, '.', n);
    if (!args->command->takes_overrides || dot == NULL || dot == text + 2 || dot == text + n - 1)
        return unknown_option(args->command, text, n);
    LATHE_TRY(take_value(argc, argv, i, equals, &value));
    return add_override(args, text, n, value);
}

static lathe_status check_words(const lathe_args *args)
{
    const lathe_command *c = args->command;
    if (args->n_words < c->min_words)
        return lathe_error(LATHE_E_ARG, "expected %s %s", c->name, c->arguments);
    if (args->n_words > c->max_words)
        return lathe_error(LATHE_E_ARG, "unexpected argument '%s'", args->words[c->max_words]);
    return LATHE_OK;
}

lathe_status lathe_args_parse(lathe_args *args, const lathe_command *command, int argc, char **argv)
{
    const size_t n = (size_t)argc + 1;
    *args = (lathe_args){.command = command, .arena = LATHE_ARENA_INIT};
    args->words = calloc(n, sizeof *args->words);
    args->values = calloc((size_t)command->n_options + 1, sizeof *args->values);
    args->overrides = calloc(n, sizeof *args->overrides);
    args->given = calloc(n, sizeof *args->given);
    args->given_of = calloc(n, sizeof *args->given_of);
    if (args->words == NULL || args->values == NULL || args->overrides == NULL ||
        args->given == NULL || args->given_of == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for arguments");
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            args->wants_help = 1;
            return LATHE_OK;
        }
    int only_words = 0;
    /* --json is read first, so that an error in an argument before it is printed as JSON too. */
    const int32_t json = option_index(command, "--json", strlen("--json"));
    for (int i = 0; json >= 0 && i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            args->values[json] = "";
    for (int i = 0; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0)
            only_words = 1;
        else if (!only_words && strncmp(argv[i], "--", 2) == 0)
            LATHE_TRY(take_option(args, argc, argv, &i));
        else if (!only_words && argv[i][0] == '-' && argv[i][1] != '\0')
            LATHE_TRY(option_index(command, argv[i], strlen(argv[i])) < 0
                          ? unknown_option(command, argv[i], strlen(argv[i]))
                          : take_option(args, argc, argv, &i));
        else
            args->words[args->n_words++] = argv[i];
    }
    LATHE_TRY(check_words(args));
    for (int32_t i = 0; command->names_models && i < args->n_words; i++)
        LATHE_TRY(lathe_pointer_follow(&args->arena, args->words[i], &args->words[i]));
    for (int32_t i = 0; command->names_runs && !args->wants_help && i < args->n_words; i++)
        LATHE_TRY(lathe_cli_run_folder(args->words[i], &args->arena, &args->words[i]));
    return LATHE_OK;
}

void lathe_args_fini(lathe_args *args)
{
    for (int32_t i = 0; i < args->n_overrides; i++)
        free((void *)(uintptr_t)args->overrides[i].key); /* allocated by add_override */
    free((void *)args->words);
    free((void *)args->values);
    free((void *)args->given);
    free(args->given_of);
    free(args->overrides);
    lathe_edits_fini(&args->edits);
    lathe_arena_fini(&args->arena);
    *args = (lathe_args){0};
}

const char *lathe_args_value(const lathe_args *args, const char *name)
{
    const int32_t i = option_index(args->command, name, strlen(name));
    return i < 0 ? NULL : args->values[i];
}

const char *lathe_args_override(const lathe_args *args, const char *key)
{
    const char *value = NULL;
    for (int32_t i = 0; i < args->n_overrides; i++)
        if (strcmp(args->overrides[i].key, key) == 0)
            value = args->overrides[i].value;
    return value;
}

const char *lathe_args_each(const lathe_args *args, const char *name, int32_t k)
{
    const int32_t index = option_index(args->command, name, strlen(name));
    for (int32_t i = 0; i < args->n_given; i++)
        if (args->given_of[i] == index && k-- == 0)
            return args->given[i];
    return NULL;
}

lathe_status lathe_args_int(const lathe_args *args, const char *name, int64_t lo, int64_t hi,
                            int64_t missing, int64_t *out)
{
    const char *text = lathe_args_value(args, name);
    *out = missing;
    if (text == NULL)
        return LATHE_OK;
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < lo || value > hi)
        return lathe_error(LATHE_E_ARG,
                           "%s is '%s', expected a whole number from %" PRId64 " to %" PRId64, name,
                           text, lo, hi);
    *out = value;
    return LATHE_OK;
}

lathe_status lathe_args_float(const lathe_args *args, const char *name, double lo, double hi,
                              double missing, double *out)
{
    const char *text = lathe_args_value(args, name);
    *out = missing;
    if (text == NULL)
        return LATHE_OK;
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < lo || value > hi)
        return lathe_error(LATHE_E_ARG, "%s is '%s', expected a number from %g to %g", name, text,
                           lo, hi);
    *out = value;
    return LATHE_OK;
}

void lathe_args_help(const lathe_command *command)
{
    lathe_print("usage: lathe %s%s%s%s%s\n\n%s\n", command->name, command->arguments[0] ? " " : "",
                command->arguments, command->takes_overrides ? " [--section.key VALUE ...]" : "",
                command->n_options > 0 ? " [OPTIONS]" : "", command->summary);
    if (command->details != NULL)
        lathe_print("\n%s%s", command->details,
                    command->details[strlen(command->details) - 1] == '\n' ? "" : "\n");
    if (command->more_details != NULL) {
        lathe_buffer more = LATHE_BUFFER_INIT;
        command->more_details(&more);
        lathe_print("%s", more.status == LATHE_OK && more.data ? more.data : "");
        lathe_buffer_fini(&more);
    }
    lathe_print("\noptions:\n");
    for (int32_t i = 0; i < command->n_options; i++) {
        const lathe_option *o = &command->options[i];
        char left[64];
        (void)snprintf(left, sizeof left, "%s%s%.*s", o->name, o->value ? " " : "",
                       lathe_option_value_length(o), o->value ? o->value : "");
        lathe_print("  %-24s %s\n", left, o->doc);
    }
    if (command->takes_overrides)
        lathe_print("  %-24s %s\n", "--section.key VALUE",
                    "set a key of the file, as [section] key = VALUE");
    lathe_print("  %-24s %s\n", "--help", "print this");
}

int lathe_args_code(lathe_status status)
{
    if (status == LATHE_OK)
        return LATHE_EXIT_OK;
    return status == LATHE_E_ARG || status == LATHE_E_CONFIG || status == LATHE_E_PARSE ||
                   status == LATHE_E_NOT_FOUND
               ? LATHE_EXIT_USAGE
               : LATHE_EXIT_FAILED;
}

int lathe_args_fail(const lathe_args *args, lathe_status status)
{
    const char *message = lathe_error_message();
    if (!message[0])
        message = lathe_status_text(status);
    if (lathe_args_value(args, "--json") != NULL)
        lathe_cli_print_errors(status);
    (void)fflush(stdout);
    lathe_print_to(stderr, "lathe %s: %s\n", args->command->name, message);
    return lathe_args_code(status);
}

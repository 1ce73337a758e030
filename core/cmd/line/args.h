/* Describes a command of the program, and the arguments that the user typed after its name. */
#ifndef LATHE_CMD_ARGS_H
#define LATHE_CMD_ARGS_H

#include "base/arena.h"
#include "base/buffer.h"
#include "config/config.h"
#include "lathe/status.h"

/* Exit codes of the program. */
enum { LATHE_EXIT_OK = 0, LATHE_EXIT_FAILED = 1, LATHE_EXIT_USAGE = 2 };

typedef struct lathe_option {
    const char *name;  /* "--json"; "-o, --output" has a short form */
    const char *value; /* name of its value in the help ("TEXT"); NULL: it takes none; "TEXT...":
                        * the option may be repeated */
    const char *doc;
} lathe_option;

/** Length of option->value in the help: without the dots of an option that may be repeated, which
 *  would mean that several values follow one option. */
int32_t lathe_option_value_length(const lathe_option *option);

typedef struct lathe_args lathe_args;

typedef struct lathe_command {
    const char *name;      /* "ls", "plugin new" */
    const char *arguments; /* "[KIND]" */
    const char *summary;   /* one line */
    const char *details;   /* more lines of help, or NULL */
    /* Appends lines of help that are not known when the program is compiled; NULL: none. */
    void (*more_details)(lathe_buffer *out);
    const lathe_option *options;
    int32_t n_options;
    int32_t min_words, max_words; /* number of arguments that are not options */
    int32_t evaluates;            /* 1: --data, or the validation data of the run, is evaluated */
    int32_t computes;             /* 1: uses the thread pool for a long time */
    int32_t prints_progress;      /* 1: what it prints is not its result, and may be lost */
    int32_t takes_overrides;      /* 1: --section.key value and --section.key=value */
    int32_t names_models; /* 1: words name folders of models or checkpoints; a file DIR/best or
                           * DIR/latest stands for the checkpoint that it names */
    int32_t names_runs;   /* 1: a word NAME.toml is a run file, and means its checkpoint.dir */
    int (*run)(const lathe_args *args);
} lathe_command;

struct lathe_args {
    const lathe_command *command;
    const char **words;
    const char *
        *values; /* [command->n_options]: NULL, or the value ("" of a flag), the last given */
    const char **given;        /* [n_given] values of options that may be repeated */
    int32_t *given_of;         /* [n_given] index of the option */
    lathe_override *overrides; /* as typed, for commands that pass them on or look for one */
    lathe_edits edits;         /* the same, parsed */
    int32_t n_words, n_overrides, n_given;
    int32_t wants_help; /* 1: --help or -h is among the arguments */
    lathe_arena arena;  /* of words that stood for others */
};

/** Reads the arguments argv[0, argc) after the command's name; borrows their texts. Errors:
 *  LATHE_E_ARG, with a message. Call lathe_args_fini in every case. */
lathe_status lathe_args_parse(lathe_args *args, const lathe_command *command, int argc,
                              char **argv);
void lathe_args_fini(lathe_args *args);

/** The value of an option ("" for a flag), or NULL if it was not given. */
const char *lathe_args_value(const lathe_args *args, const char *name);

/** The value that the command line gives to a key of the run file ("data.validation"), the last
 * one; NULL: none. */
const char *lathe_args_override(const lathe_args *args, const char *key);

/** The k-th value of an option that may be repeated; NULL after the last. */
const char *lathe_args_each(const lathe_args *args, const char *name, int32_t k);

/** Reads an option as a whole number in [lo, hi]; gives `missing` if the option was not given.
 *  LATHE_E_ARG. */
lathe_status lathe_args_int(const lathe_args *args, const char *name, int64_t lo, int64_t hi,
                            int64_t missing, int64_t *out);

/** Reads an option as a finite number in [lo, hi]; gives `missing` if the option was not given.
 *  LATHE_E_ARG. */
lathe_status lathe_args_float(const lathe_args *args, const char *name, double lo, double hi,
                              double missing, double *out);

/** Prints the command's help. */
void lathe_args_help(const lathe_command *command);

/** The exit code for a status: 0; 2 for wrong usage or configuration; else 1. */
int lathe_args_code(lathe_status status);

/** Prints "lathe COMMAND: message" with the thread's error to stderr and returns
 *  lathe_args_code of it. With --json, also prints {"errors": [...]} to stdout,
 *  so that a program that reads stdout always gets one JSON value. Call it only before the command
 *  has printed anything. */
int lathe_args_fail(const lathe_args *args, lathe_status status);

#endif

/* The options of commands that sample: they become keys of [generate]. */
#ifndef LATHE_CMD_SAMPLING_OPTIONS_H
#define LATHE_CMD_SAMPLING_OPTIONS_H

#include "cmd/line/args.h"

/* Rows of a command's list of options. */
#define LATHE_SAMPLING_OPTIONS                                                                     \
    {"--max-new-tokens", "N", "maximum number of tokens to generate"},                             \
        {"--temperature", "X", "temperature of the sampling; 0: always the most likely token"},    \
        {"--top-k", "K", "sample only from the K most likely tokens; 0: from all"},                \
        {"--top-p", "P",                                                                           \
         "sample only from the most likely tokens whose probabilities add up to P; 1: from all"},  \
        {"--min-p", "P",                                                                           \
         "sample only from tokens with at least P times the highest probability; 0: from all"},    \
        {"--repetition-penalty", "X",                                                              \
         "above 1: tokens of the text so far become less likely; 1: off"},                         \
    {                                                                                              \
        "--seed", "N", "seed of the sampling"                                                      \
    }

enum { LATHE_N_SAMPLING_OPTIONS = 7 };

typedef struct lathe_sampling_values {
    /* key and value of each option that is given, then NULL */
    const char *list[2 * LATHE_N_SAMPLING_OPTIONS + 1];
    char values[LATHE_N_SAMPLING_OPTIONS][32]; /* written as TOML */
} lathe_sampling_values;

/** Reads the sampling options, so that they win over the run file and over generation_config.json.
 *  LATHE_E_ARG. */
lathe_status lathe_app_sampling(const lathe_args *args, lathe_sampling_values *out);

#endif

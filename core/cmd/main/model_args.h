/* The arguments of commands that open a model: a word, overrides, --weights, --adapter, --use. */
#ifndef LATHE_CMD_MODEL_ARGS_H
#define LATHE_CMD_MODEL_ARGS_H

#include "cmd/line/args.h"
#include "cmd/line/weights_option.h"
#include "lathe/session.h"

/* Rows of a command's list of options. */
#define LATHE_ADAPTER_OPTIONS                                                                      \
    {"--adapter", "NAME=FOLDER...",                                                                \
     "an adapter for the model in DIR, which is loaded once; repeat it for several "               \
     "(the last one generates, unless --use or a prompt names another)"},                          \
    {                                                                                              \
        "--use", "NAME",                                                                           \
            "the adapter that generates where a prompt names none; base: the model without one"    \
    }

/** Checks the form of --adapter and --use, before anything is read. LATHE_E_ARG. */
lathe_status lathe_app_check_adapters(const lathe_args *args);

/** Opens the model of the command; purpose: LATHE_SESSION_*. settings: further settings as pairs
 *  "key", "value", ended by NULL, which the overrides of the command line replace; NULL: none.
 * data: what is evaluated; NULL: as the session says. */
lathe_status lathe_app_open_session(const lathe_args *args, int32_t purpose,
                                    const char *const *settings, const char *data,
                                    lathe_session **out);

#endif

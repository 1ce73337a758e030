/* The options of commands that generate with several adapters over one base. */
#ifndef LATHE_APP_ADAPTER_OPTIONS_H
#define LATHE_APP_ADAPTER_OPTIONS_H

#include "cli/args.h"
#include "opening/folder_settings.h"
#include "run/named_adapters.h"

/* Rows of a command's list of options. */
#define LATHE_ADAPTER_OPTIONS                                                                      \
    {"--adapter", "NAME=FOLDER...",                                                                \
     "an adapter for the model in DIR, which is loaded once; repeat it for several "               \
     "(the last one generates, unless --use or a prompt names another)"},                          \
    {                                                                                              \
        "--use", "NAME",                                                                           \
            "the adapter that generates where a prompt names none; base: the model without one"    \
    }

/** Whether --adapter was given. LATHE_E_ARG: --use without it. */
lathe_status lathe_app_has_adapters(const lathe_args *args, int32_t *out);

/** Reads --adapter and --use, and adds to `settings` what the folders say about the whole model:
 *  quantization and precision, in which all must agree unless the command line overrides it.
 *  base: the model. *out_tokenizer: tokenizer.path for all of them; NULL: that of a GGUF
 *  file. *out is for lathe_run_open_named.
 *
 *  Errors  LATHE_E_ARG: the form NAME=FOLDER, a name that is given twice or unknown.
 *          LATHE_E_CONFIG: a folder holds no adapter; two folders disagree. */
lathe_status lathe_app_read_adapters(const lathe_args *args, const char *base, lathe_arena *arena,
                                     lathe_setting_list *settings, const char **out_tokenizer,
                                     lathe_named_adapters **out);

#endif

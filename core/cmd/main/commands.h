/* Lists the commands of the program. To add one, add a row here and a cmd_<name>.c that defines
 * `const lathe_command lathe_cmd_<name>`. Commands for plugins are in core/cmd/plugins. */
#ifndef LATHE_CMD_COMMANDS_H
#define LATHE_CMD_COMMANDS_H

#include "cmd/line/command_table.h"
#include "cmd/plugins/plug_commands.h"

/* The commands, in the order of the help. */
#define LATHE_COMMAND_TABLE(X)                                                                     \
    X(new)                                                                                         \
    X(import)                                                                                      \
    X(train)                                                                                       \
    X(launch)                                                                                      \
    X(generate)                                                                                    \
    X(eval)                                                                                        \
    X(watch)                                                                                       \
    X(report)                                                                                      \
    X(plan)                                                                                        \
    X(plot_schedule)                                                                               \
    X(data)                                                                                        \
    X(validate)                                                                                    \
    X(pipeline)                                                                                    \
    X(logprobs)                                                                                    \
    X(quantize)                                                                                    \
    X(merge)                                                                                       \
    X(ls)                                                                                          \
    X(show)                                                                                        \
    X(chat)                                                                                        \
    X(convert)                                                                                     \
    X(chat_template)                                                                               \
    X(tokenizer_train)                                                                             \
    X(tokenizer_add)                                                                               \
    X(tokenizer_encode)                                                                            \
    X(tokenizer_decode)                                                                            \
    X(tokenizer_check)                                                                             \
    X(checkpoint_ls)                                                                               \
    X(checkpoint_verify)                                                                           \
    X(checkpoint_diff)                                                                             \
    X(checkpoint_rm)                                                                               \
    X(lineage)                                                                                     \
    X(plugin_new)                                                                                  \
    X(plugin_check)                                                                                \
    X(doctor)                                                                                      \
    X(completion)                                                                                  \
    X(help)

#define LATHE_X(name) extern const lathe_command lathe_cmd_##name;
LATHE_COMMAND_TABLE(LATHE_X)
#undef LATHE_X

extern const lathe_command_list lathe_app_commands;

#endif

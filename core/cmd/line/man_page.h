/* Writes manual pages in roff from the list of commands and from the schemas. */
#ifndef LATHE_CMD_MAN_PAGE_H
#define LATHE_CMD_MAN_PAGE_H

#include "base/buffer.h"
#include "cmd/line/command_table.h"

/** lathe(1): every command with its summary, exit codes, environment. */
lathe_status lathe_man_overview(const lathe_command_list *commands, lathe_buffer *out);

/** lathe-train(1) and so on: arguments, options, details of one command. */
lathe_status lathe_man_command(const lathe_command *command, lathe_buffer *out);

/** lathe.toml(5): every key of a run file: the core's sections, then those of each plugin found. */
lathe_status lathe_man_run_file(lathe_buffer *out);

#endif

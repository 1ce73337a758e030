/* The commands about texts and data. */
#ifndef LATHE_CMD_TEXT_COMMANDS_H
#define LATHE_CMD_TEXT_COMMANDS_H

#include "cmd/line/args.h"

extern const lathe_command lathe_cmd_data;
extern const lathe_command lathe_cmd_chat_template;
extern const lathe_command lathe_cmd_tokenizer_add;
extern const lathe_command lathe_cmd_tokenizer_train;
extern const lathe_command lathe_cmd_tokenizer_encode;
extern const lathe_command lathe_cmd_tokenizer_decode;
extern const lathe_command lathe_cmd_tokenizer_check;

#endif

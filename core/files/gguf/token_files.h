/* Reads the files of a model that name tokens. */
#ifndef LATHE_FILES_TOKEN_FILES_H
#define LATHE_FILES_TOKEN_FILES_H

#include "files/vocab/token_names.h"

/** Reads the tokens that tokenizer_config.json, special_tokens_map.json and added_tokens.json name;
 * a model may lack any of the files. Errors: as lathe_token_names_of. */
lathe_status lathe_token_names_read(const char *model, lathe_token_names *out);

#endif

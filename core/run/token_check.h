/* Checks that the tokenizer and the model match. */
#ifndef LATHE_RUN_TOKEN_CHECK_H
#define LATHE_RUN_TOKEN_CHECK_H

#include "run/run_state.h"

/** Checks, after model and tokenizer are read but before any weight, that every token has a row in
 * the embedding and that the ids in config.json are tokens. LATHE_E_CONFIG names both files. Warns
 * if config.json and the tokenizer have different end-of-text tokens. */
lathe_status lathe__token_check(const lathe_run *run);

#endif

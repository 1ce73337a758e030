/* Checks that the tokenizer and the model match. */
#ifndef LATHE_RUN_TOKEN_CHECK_H
#define LATHE_RUN_TOKEN_CHECK_H

#include "run/state/run_state.h"

/** Checks, after model and tokenizer are read but before any weight, that every token has a row in
 * the embedding and that the ids in config.json are tokens. LATHE_E_CONFIG names both files. Warns
 * if config.json and the tokenizer have different end-of-text tokens. */
lathe_status lathe__token_check(const lathe_run *run);

/** Refuses raw bytes, at model.path, for a model whose folder has no tokenizer.json and does not
 * say that it reads raw bytes, unless the run chose them (tokenizer.path): the ids 0 to 255 mean
 * something else to such a model. A run that reads no text needs no tokenizer. */
lathe_status lathe__token_check_bytes(const lathe_run *run);

#endif

/* Whether the tokenizer and the model belong together. */
#ifndef LATHE_RUN_TOKEN_CHECK_H
#define LATHE_RUN_TOKEN_CHECK_H

#include "run/run_state.h"

/** After model and tokenizer are read, before any weight: every token has a row of the embedding,
 * and the ids that config.json names are tokens. LATHE_E_CONFIG names both files. Warns when
 * config.json ends a text with another token than the tokenizer does. */
lathe_status lathe__token_check(const lathe_run *run);

#endif

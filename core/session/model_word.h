/* Checks the word of a command that names a model. */
#ifndef LATHE_SESSION_MODEL_WORD_H
#define LATHE_SESSION_MODEL_WORD_H

#include "lathe/status.h"

/** Checks that the word is a folder or a run file that can name a model, not a file of weights.
 *  LATHE_E_CONFIG says what was expected. */
lathe_status lathe_model_word_check(const char *word);

/** Checks that the word is a folder or a GGUF file. LATHE_E_CONFIG. */
lathe_status lathe_model_word_check_weights(const char *word);

#endif

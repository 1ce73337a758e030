/* Checks the word of a command that names a model. */
#ifndef LATHE_APP_MODEL_WORD_H
#define LATHE_APP_MODEL_WORD_H

#include "lathe/status.h"

/** Checks that the word is a folder or a run file that can name a model, not a file of weights.
 *  LATHE_E_CONFIG says what was expected. */
lathe_status lathe_app_check_model_word(const char *word);

#endif

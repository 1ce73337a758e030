/* Which weights of a folder a session takes, and what is said about it. */
#ifndef LATHE_SESSION_WHICH_WEIGHTS_H
#define LATHE_SESSION_WHICH_WEIGHTS_H

#include "checkpoint/state/model_folder.h"

/** lathe_model_folder_find; its errors name the choice of the average, if it was made. */
lathe_status lathe_which_weights_find(const char *word, int32_t which, lathe_arena *arena,
                                      lathe_model_folder *out);

/** Logs which weights are used where a folder has two kinds, once. */
void lathe_which_weights_say(const lathe_model_folder *folder);

#endif

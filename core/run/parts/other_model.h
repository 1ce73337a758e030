/* Checks the folder of another model of a run: a teacher or a reward model. */
#ifndef LATHE_RUN_OTHER_MODEL_H
#define LATHE_RUN_OTHER_MODEL_H

#include "run/state/run_state.h"

/** Refuses at section.key a folder that is not there, and an adapter's, also one that has its model
 *  beside it: that model alone is another one. `what`: "a teacher". */
lathe_status lathe__run_check_whole(const lathe_run *run, const char *section, const char *key,
                                    const char *folder, const char *what);

/** Refuses at section.key the model in `folder`, called `what` ("the teacher"), if its tokenizer is
 *  not the run's, because tokens of the same id have other texts then, or if it has no row for one
 *  of the tokens. More rows, or other numbers of them, fill up an embedding and are taken. A folder
 *  without tokenizer.json and a run without a tokenizer cannot be compared: with exact, the sizes
 * of the vocabularies must then be equal. */
lathe_status lathe__run_check_vocabulary(const lathe_run *run, const char *section, const char *key,
                                         const char *folder, const char *what,
                                         const lathe_model_config *other, int32_t exact);

#endif

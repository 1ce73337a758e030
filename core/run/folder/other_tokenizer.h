/* Compares the tokenizer of a run with that of the model it begins with. */
#ifndef LATHE_RUN_OTHER_TOKENIZER_H
#define LATHE_RUN_OTHER_TOKENIZER_H

#include "run/state/run_state.h"

/** Warns at tokenizer.path if tokens of the model's own tokenizer have another text in the run's,
 * or none: what the model has learnt of them is lost. Tokens that the run's tokenizer adds are no
 *  reason. Needs the run's tokenizer. (tokenizer.train beside a model has a warning of its own.)
 *
 *  Errors  those of reading the tokenizer of model.path.
 */
lathe_status lathe__other_tokenizer_warn(const lathe_run *run);

#endif

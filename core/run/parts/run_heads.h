/* The heads (output matrices) that the run's stage adds to the policy's last hidden states. */
#ifndef LATHE_RUN_RUN_HEADS_H
#define LATHE_RUN_RUN_HEADS_H

#include "run/state/run_state.h"

/** Makes the model that was read a sequence classifier if the stage has a head "score"; refuses a
 *  folder of a sequence classifier for a run that needs a language model. */
lathe_status lathe__run_make_classifier(lathe_run *run);

/** The labels of the sequence classifier that the stage makes of the model; 0: it stays a language
 * model. */
int32_t lathe__run_n_labels(const lathe_run *run);

/** Adds a parameter for each head of the stage. They are rows of the model, in the model's file, or
 *  rows after those of the model, in the adapter's file, if an adapter freezes the model. */
lathe_status lathe__run_add_heads(lathe_run *run);

#endif

/* The reference model, with which stages such as dpo compare the policy: frozen copies of the rows
 * that train, in the same table of parameters and the same store (LATHE_REFERENCE_PREFIX). */
#ifndef LATHE_RUN_REFERENCE_MODEL_H
#define LATHE_RUN_REFERENCE_MODEL_H

#include "lathe/lathe.h"

struct lathe_store;

/** Fills the frozen copies with the current weights. only_model 1: those of the model's own rows.
 */
lathe_status lathe__reference_fill(const struct lathe_store *store, int only_model);

/** Fills a reference that is the model's folder with an adapter of its own
 *  (model.reference_adapter), while the rows of the model are those of the folder. */
lathe_status lathe__reference_fill_adapted(lathe_run *run);

#endif

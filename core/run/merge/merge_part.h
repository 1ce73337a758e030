/* An adapter that is merged into a model, beside others. */
#ifndef LATHE_RUN_MERGE_PART_H
#define LATHE_RUN_MERGE_PART_H

#include "checkpoint/state/saved_state.h"

enum { LATHE_MOST_MERGED = 8 };

/* How several adapters are combined. */
enum { LATHE_COMBINE_CAT = 0, LATHE_COMBINE_LINEAR = 1 };

/** An adapter to merge. */
typedef struct lathe_merge_part {
    const lathe_saved_state *saved; /* of a run over the model, with the adapter's parameters */
    const char *adapter;            /* the folder that they were read from */
    double weight;                  /* of its change */
} lathe_merge_part;

#endif

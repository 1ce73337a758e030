/* Compares two checkpoints. */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_DIFF_H
#define LATHE_CHECKPOINT_CHECKPOINT_DIFF_H

#include "base/arena.h"
#include "lathe/status.h"

enum { LATHE_CHANGED_FILES = 6 };

/** One difference between checkpoints a and b. */
typedef struct lathe_change {
    /* lathe, plugins, config, state: a value; weights, adapter, masters, optimizer, average,
     * gradients: a tensor */
    const char *part;
    const char *name; /* the dotted key, or the tensor's name */
    /* values as JSON; of a tensor, its dtype and shape where these differ; NULL: absent */
    const char *from, *to;
    int64_t n_elements; /* of a tensor; 0: a value */
    int64_t n_differ;   /* elements that differ; -1: the values cannot be compared */
    /* the largest |b - a|, and its ratio to the largest |a|; NAN where n_differ is -1 */
    double max_change, relative;
} lathe_change;

/** Number of tensors of a part that differ. */
typedef struct lathe_changed_file {
    const char *part;
    int64_t n_differ, n;
} lathe_changed_file;

/** All differences: values first, then tensors by part and name. */
typedef struct lathe_checkpoint_changes {
    lathe_arena arena; /* holds the texts and the list */
    lathe_change *list;
    int64_t n, capacity;
    lathe_changed_file files[LATHE_CHANGED_FILES]; /* of the parts with tensors that a or b has */
    int32_t n_files;
} lathe_checkpoint_changes;

/** Compares two checkpoint folders: plugins and versions, configuration, counters of the state, and
 * every tensor. Does not verify the folders first. Call lathe_checkpoint_changes_fini also after an
 * error. LATHE_E_NOT_FOUND, LATHE_E_CORRUPT, LATHE_E_IO: one of the folders cannot be read. */
lathe_status lathe_checkpoint_diff(const char *a, const char *b, lathe_checkpoint_changes *out);
void lathe_checkpoint_changes_fini(lathe_checkpoint_changes *changes);

#endif

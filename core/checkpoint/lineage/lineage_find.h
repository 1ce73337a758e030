/* Finds the folder of a recorded parent: at its path, where it moved together with its child, or by
 * its hashes beside the child. */
#ifndef LATHE_CHECKPOINT_LINEAGE_FIND_H
#define LATHE_CHECKPOINT_LINEAGE_FIND_H

#include <jansson.h>

#include "base/arena.h"
#include "lathe/status.h"

/** Looks for a parent.
 *
 *  parent     as in parents.h
 *  recorded   the child's "folder" when it was written; NULL: unknown
 *  child      the child's folder now
 *  verify     1: compares hashes; 0: sizes
 *  damage     array that gets a message for each file that differs, if no folder has the same ones
 *  out_found  in the arena; NULL: no folder
 *  out_same   1: it has the recorded files
 */
lathe_status lathe__lineage_find(const json_t *parent, const char *recorded, const char *child,
                                 int32_t verify, lathe_arena *arena, json_t *damage,
                                 const char **out_found, int32_t *out_same);

/** Appends a message to an array; a lathe_damage_fn. */
void lathe__lineage_damage(void *array, const char *message);

#endif

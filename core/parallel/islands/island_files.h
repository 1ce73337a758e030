/* The state of islands in a checkpoint (DiLoCo), beside that of the first island, whose files are
 * those of any checkpoint:
 *
 *   state/outer.json                  number of islands, and the counters of each
 *   state/outer.safetensors           start.<parameter>, momentum.<parameter>: f32
 *   state/island-<i>.safetensors      of island i: error.<parameter>; and of i > 0 also
 *                                     slot.<parameter>.<slot>, average.<parameter>, and, within a
 *                                     round, master.<parameter>
 *
 * A run with other islands goes on from it: island i of K takes the state of island i mod K', if
 * there were K'. Islands of a checkpoint without this state begin a round with its weights. */
#ifndef LATHE_PARALLEL_ISLAND_FILES_H
#define LATHE_PARALLEL_ISLAND_FILES_H

#include "checkpoint/state/saved_state.h"
#include "parallel/islands/islands.h"

/** The islands of a run, with what their files are written from and read into. */
typedef struct lathe_outer {
    lathe_islands *islands; /* owned */
    lathe_serving serving;
    const lathe_saved_state *saved; /* of this rank */
    lathe_extra_state extra;        /* for the saved state */
    lathe_served_islands served;
} lathe_outer;

/** Prepares the islands of a run. layout, store and saved outlive *out.
 *  serving: of a store that ranks divide (parallel/ranks/extents.h); NULL: nothing is divided. */
lathe_status lathe_outer_create(const lathe_rank_layout *layout, lathe_store *store,
                                const lathe_island_settings *settings, const lathe_serving *serving,
                                const lathe_saved_state *saved, lathe_outer **out);
/** Frees all, with its memory of the machine. is_abandoned: the ranks have failed
 * (parallel/ranks/ranks.h): then their exchanges stay. NULL is fine. */
void lathe_outer_close(lathe_outer *outer, lathe_machine *m, int32_t is_abandoned);

#endif

/* The outer optimization of DiLoCo, as one rank sees it.
 *
 * Islands of ranks train apart, each by the run's optimizer on its share of every batch. After
 * every `inner_steps` steps, with w0 the weights at the begin of the round and w those of an island
 * now:
 *
 *   d = mean over islands of (w0 - w)       as delta_codec.h encodes it
 *   v = momentum * v + d
 *   w0 = w = w0 - lr * (d + momentum * v)   Nesterov; the same for all islands
 *
 * Sources: arXiv:2311.08105, algorithm 1; torch.optim.SGD(nesterov=True) for the step. With int8
 * and int4 (ours) each island adds to its change what encoding has lost of it in the round before,
 * and the rank that averages a part adds what encoding its mean has lost, times the number of
 * islands.
 *
 * The trained elements of an island are divided among its ranks: each keeps the outer state of its
 * part, and exchanges it with the ranks of other islands that have the same. Its elements are those
 * whose optimizer state it holds, row by row (rank_layout.h):
 *
 *   place 0's elements  | row 0   | row 1 | row 2     |      as one sequence
 *   parts of 2 copies   | copy 0        | copy 1      |      begin at multiples of 256
 */
#ifndef LATHE_PARALLEL_ISLANDS_H
#define LATHE_PARALLEL_ISLANDS_H

#include "exec/store/machine.h"
#include "parallel/islands/delta_codec.h"
#include "parallel/ranks/serving.h"

typedef struct lathe_island_settings {
    int64_t inner_steps; /* 1 or more */
    int64_t max_steps;   /* of the run: the last step ends a round, too; 0: not known */
    double lr, momentum;
    int32_t dtype; /* LATHE_DELTA_* */
    int32_t reserved;
    int64_t bucket_bytes; /* of changes that are exchanged at a time */
} lathe_island_settings;

/* Families of the outer state, counted from LATHE_FAMILY_ISLANDS; all are f32. ERROR: of the
 * island; the others are the same in all islands. */
enum { LATHE_OUTER_START = 0, LATHE_OUTER_MOMENTUM = 1, LATHE_OUTER_ERROR = 2, LATHE_N_OUTER = 3 };

typedef struct lathe_islands lathe_islands;

/** Prepares the exchanges of a store that is laid out. layout and store outlive *out; without the
 *  other ranks (layout->all NULL) it can only be planned, unless there is one island of one rank.
 */
lathe_status lathe_islands_create(const lathe_rank_layout *layout, lathe_store *store,
                                  const lathe_island_settings *settings, lathe_islands **out);
/** Frees what create made; NULL is fine. */
void lathe_islands_destroy(lathe_islands *x);
/** Adds the outer state (LATHE_MEM_OPTIMIZER) and the buffers (LATHE_MEM_STAGING); nothing for
 *  NULL. */
void lathe_islands_bytes(const lathe_islands *x, lathe_mem_bytes *bytes);
lathe_status lathe_islands_place(lathe_islands *x, lathe_machine *m);
void lathe_islands_unplace(lathe_islands *x, lathe_machine *m);

/** Makes the weights those at the begin of the first round; does nothing later. */
void lathe_islands_begin(lathe_islands *x);
/** Call it before each update: islands move apart. max_steps: the run's length, which is known by
 *  then. */
void lathe_islands_enter(lathe_islands *x, int64_t max_steps);

/** Whether a round ends after a step. 0 for NULL. */
int32_t lathe_islands_ends_round(const lathe_islands *x, int64_t step);
/** Ends a round: afterwards the weights of all islands are the same, with their compute copies.
 *  All ranks call it. LATHE_E_NUMERIC: a change is not finite. Allocates nothing. */
lathe_status lathe_islands_end_round(lathe_islands *x);

/** Bytes that this rank has sent in ends of rounds since the last call, and those of them to other
 *  islands. 0 for NULL. */
int64_t lathe_islands_take_sent(lathe_islands *x, int64_t *out_across);

/** Tokens of this island in this round, which its ranks agree on: what the run's counter lacks of
 *  the other islands. stops: a rank of the island was asked to stop. */
void lathe_islands_note(lathe_islands *x, int64_t tokens, int32_t stops);
/** A step of this island updated nothing. */
void lathe_islands_note_skip(lathe_islands *x);
/** Tells all islands; all ranks call it at the end of a round.
 *
 *  skipped_in_row  steps that this island has left out since its last update
 *  out_tokens      tokens of the other islands in the round */
lathe_status lathe_islands_agree(lathe_islands *x, int64_t skipped_in_row, int64_t *out_tokens);
/** Steps that the other islands have left out, as all know since the last round ended. 0 for NULL.
 */
int64_t lathe_islands_skipped(const lathe_islands *x);
/** The most steps that an island had left out in a row when the last round ended, and a rank of
 * that island. */
int64_t lathe_islands_skipped_in_row(const lathe_islands *x, int32_t *out_rank);
/** Whether a rank of any island was asked to stop, as all know since the last round ended. */
int32_t lathe_islands_stop(const lathe_islands *x);

/* ---- for the files of a checkpoint ---- */

int32_t lathe_islands_count(const lathe_islands *x);
const lathe_rank_layout *lathe_islands_layout(const lathe_islands *x);
const lathe_island_settings *lathe_islands_settings(const lathe_islands *x);
int64_t lathe_islands_tokens(const lathe_islands *x);
int32_t lathe_islands_has_error(const lathe_islands *x);

/** lathe_served_islands.part and own; families from 0. */
lathe_extent lathe_islands_part(const void *islands, int32_t family, int32_t row, int32_t copy,
                                int32_t place);
const void *lathe_islands_own(const void *islands, int32_t family, int32_t row);
/** Sets what this rank holds of a row of a family from the whole row; NULL: zeros. */
void lathe_islands_put(lathe_islands *x, int32_t family, int32_t row, const float *whole);
/** Whether islands have weights of their own now. */
int32_t lathe_islands_is_within(const lathe_islands *x);
/** The state was read: begin() keeps it. tokens: of the round so far; skipped: steps that the other
 *  islands have left out so far. */
void lathe_islands_resume(lathe_islands *x, int64_t tokens, int64_t skipped, int32_t is_within);
/** The state is that of weights without one: they begin a round. */
void lathe_islands_restart(lathe_islands *x);

#endif

/* The ranks of a run, as one of them sees them.
 *
 * All ranks call these functions in the same order. Numbers travel as one all-gather, after which
 * every rank computes the same results from the same numbers, in the order of ranks: no rank takes
 * a decision of its own (docs/design/035-ranks.md). Errors of a group are LATHE_E_RANK; after one
 * of them only lathe_ranks_abort and lathe_ranks_close are of use.
 */
#ifndef LATHE_RANKS_RANKS_H
#define LATHE_RANKS_RANKS_H

#include "lathe/collective.h"
#include "plug/instance.h"

/* Numbers that a rank tells the others at a time. */
enum { LATHE_RANK_NUMBERS = 32 };

typedef struct lathe_ranks {
    lathe_instance base; /* of an engine with LATHE_COLLECTIVE_NEEDS_BASE */
    lathe_group *base_group;
    lathe_instance engine;
    const lathe_collective_v1 *table;
    lathe_group *group;
    lathe_group_info info;
    double deadline_seconds; /* of every wait but those for work of unknown length */
    lathe_exchange *gather;
    void *scratch;        /* of gather */
    double *own, *others; /* [LATHE_RANK_NUMBERS]; [n_ranks * LATHE_RANK_NUMBERS] */
} lathe_ranks;

/** Joins the ranks that were started together. *out NULL: there is one rank.
 *
 *  engine            an instance of a collective plugin; taken, also after an error
 *  base              one of the engine under it, if it has LATHE_COLLECTIVE_NEEDS_BASE; taken too.
 *                    NULL: none
 *  deadline_seconds  above 0: the longest wait for another rank
 *  stops, stops_arg  lathe_collective_setup.stops
 *
 *  Errors  those of open() */
lathe_status lathe_ranks_open(lathe_instance *engine, lathe_instance *base, double deadline_seconds,
                              int32_t (*stops)(void *arg), void *stops_arg, lathe_ranks **out);
/** Makes a group of the ranks with the same color, in the order of `key`; all ranks call it. It is
 *  closed before `ranks`. */
lathe_status lathe_ranks_split(lathe_ranks *ranks, int32_t color, int32_t key, lathe_ranks **out);
/** Leaves the group, which all ranks do; NULL is fine. */
void lathe_ranks_close(lathe_ranks *ranks);
/** Frees what the host has, but stays in the group, because the run failed on this rank: the other
 *  ranks wait until lathe_ranks_abort ends them. */
void lathe_ranks_forsake(lathe_ranks *ranks);
int32_t lathe_ranks_are_forsaken(void);
/** Ends the other ranks of a group that was forsaken, because this process exits with exit_code;
 *  its message is printed. Does nothing if there is none. */
void lathe_ranks_abort(int32_t exit_code);

/** All ranks refuse the run for the same reason. Each tells it with `refuses` 1 or 0; if all do,
 *  *out_all is 1, and lathe_ranks_is_silent on all but rank 0, which alone prints the message and
 *  exits with its code. */
lathe_status lathe_ranks_refuse(lathe_ranks *ranks, int32_t refuses, int32_t *out_all);
int32_t lathe_ranks_is_silent(void);

/** Number of this rank, and of ranks; NULL: 0 of 1. */
int32_t lathe_ranks_rank(const lathe_ranks *ranks);
int32_t lathe_ranks_count(const lathe_ranks *ranks);

/** Gives every rank the numbers of all: (*out_all)[rank * LATHE_RANK_NUMBERS + i], borrowed until
 *  the next call.
 *
 *  numbers  [n], n <= LATHE_RANK_NUMBERS
 *  waits    1: the other ranks may take any time to arrive; 0: the deadline holds */
lathe_status lathe_ranks_gather(lathe_ranks *ranks, const double *numbers, int32_t n, int32_t waits,
                                const double **out_all);

/** Gives every rank the text of rank 0 (others pass anything).
 *  text  [bytes] in/out, ends with NUL; longer texts are LATHE_E_ARG on all ranks */
lathe_status lathe_ranks_share_text(lathe_ranks *ranks, char *text, int64_t bytes);

/** Compares a JSON object with that of rank 0. LATHE_E_RANK on all ranks if one differs, with
 *  the first member that differs and both values. */
lathe_status lathe_ranks_compare(lathe_ranks *ranks, const char *json);

/** Runs a prepared exchange and waits for it. args: in, out and scratch. */
lathe_status lathe_ranks_run(lathe_ranks *ranks, lathe_exchange *exchange,
                             const lathe_exchange_args *args, int32_t waits);

#endif

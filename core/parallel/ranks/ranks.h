/* The ranks of a run, as one of them sees them.
 *
 * All ranks call these functions in the same order. Numbers travel as one all-gather, after which
 * every rank computes the same results from the same numbers, in the order of ranks: no rank takes
 * a decision of its own (docs/design/032-ranks.md). Errors of a group are LATHE_E_RANK; after one
 * of them only failure_report.h and lathe_ranks_close are of use.
 */
#ifndef LATHE_PARALLEL_RANKS_H
#define LATHE_PARALLEL_RANKS_H

#include "exec/store/machine.h"
#include "lathe/collective.h"
#include "plug/plugin_instance.h"
#include "plug/registry.h"

/* Numbers that a rank tells the others at a time. */
enum { LATHE_RANK_NUMBERS = 32 };

/** Where exchanges of the run's memory happen: a group whose buffers are the memory of the device.
 */
typedef struct lathe_rank_data {
    lathe_instance engine; /* of a device with memory of its own; else empty */
    const lathe_collective_v1 *table;
    lathe_group *group;
    lathe_stream *stream; /* of the computation; NULL in host memory */
    lathe_group_info info;
} lathe_rank_data;

typedef struct lathe_ranks {
    lathe_instance base; /* of an engine with LATHE_COLLECTIVE_NEEDS_BASE */
    lathe_group *base_group;
    lathe_instance engine; /* in host memory: of numbers, texts and checkpoints */
    const lathe_collective_v1 *table;
    lathe_group *group;
    lathe_group_info info;
    lathe_rank_data data;
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
/** Makes a group of the ranks with the same color, in the order of `key`, with one for the device's
 *  memory if `ranks` has one; all ranks call it. It is closed before `ranks`. */
lathe_status lathe_ranks_split(lathe_ranks *ranks, int32_t color, int32_t key, lathe_ranks **out);
/** Leaves the group, which all ranks do; NULL is fine. */
void lathe_ranks_close(lathe_ranks *ranks);
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

/** Whether no lower rank has this text, so that one rank says what several would. All ranks call
 * it. */
lathe_status lathe_ranks_is_first(lathe_ranks *ranks, const char *text, int32_t *out);

/** Gives every rank the text of rank 0 (others pass anything).
 *  text  [bytes] in/out, ends with NUL; longer texts are LATHE_E_ARG on all ranks */
lathe_status lathe_ranks_share_text(lathe_ranks *ranks, char *text, int64_t bytes);

/** Compares a JSON object with that of rank 0. LATHE_E_RANK on all ranks if one differs, with
 *  the first member that differs and both values. */
lathe_status lathe_ranks_compare(lathe_ranks *ranks, const char *json);

/** Runs an exchange that ranks->table has prepared, in host memory, and waits for it. args: in, out
 *  and scratch. */
lathe_status lathe_ranks_run(lathe_ranks *ranks, lathe_exchange *exchange,
                             const lathe_exchange_args *args, int32_t waits);

/* ---- exchanges of the device's memory ---- */

/** Finds the engine for the memory of a device: `named` if it is for devices; "staged" if it is
 *  another one; the best one if it is NULL. Errors: those of lathe_select_collective. */
lathe_status lathe_ranks_find_data(lathe_registry *registry, const lathe_component *named,
                                   const char *device, lathe_arena *arena,
                                   const lathe_component **out);

/** Joins the ranks once more, by an engine with LATHE_COLLECTIVE_FOR_DEVICES, because the device
 * has memory of its own. engine: taken, also after an error. machine: must outlive ranks. */
lathe_status lathe_ranks_join_data(lathe_ranks *ranks, lathe_instance *engine,
                                   const lathe_machine *machine);

/** Divides that group as *out, a part of `of`, was divided in host memory. */
lathe_status lathe__ranks_split_data(const lathe_ranks *of, int32_t color, int32_t key,
                                     lathe_ranks *out);

/** Leaves that group: one that was joined without waiting for other ranks, also while its parts are
 *  still there; a part of it with the other ranks of the part. */
void lathe__ranks_leave_data(lathe_ranks *ranks);

/** Memory that several exchanges use in turn: the largest needs of all of them. */
typedef struct lathe_exchange_room {
    int64_t scratch_bytes, pinned_bytes;
    void *scratch; /* of the device */
    void *pinned;
} lathe_exchange_room;

/** Whether exchanges that share a room may be under way at the same time. */
int32_t lathe_exchange_room_overlaps(const lathe_exchange_room *room);
/** Adds the bytes of the room to a plan; allocates it; frees it. Bytes that a plan of ranks that
 * are not there has found may be in it. */
void lathe_exchange_room_plan(const lathe_exchange_room *room, const lathe_machine *m,
                              lathe_mem_bytes *planned);
lathe_status lathe_exchange_room_place(lathe_exchange_room *room, lathe_machine *m);
void lathe_exchange_room_fini(lathe_exchange_room *room, lathe_machine *m);

/** Prepares an exchange of the device's memory, and widens the room for it. */
lathe_status lathe_data_prepare(const lathe_ranks *ranks, const lathe_exchange_problem *problem,
                                lathe_exchange_room *room, lathe_exchange **out);
void lathe_data_destroy(const lathe_ranks *ranks, lathe_exchange *exchange);
/** Starts one, after the work that is queued on the machine's stream. */
lathe_status lathe_data_start(const lathe_ranks *ranks, lathe_exchange *exchange,
                              const lathe_exchange_room *room, const void *in, void *out);
/** Goes on with those that are under way. *out_done: 1 if this one is done. */
lathe_status lathe_data_poll(const lathe_ranks *ranks, lathe_exchange *exchange, int32_t *out_done);
/** Waits until one is done; the deadline holds. */
lathe_status lathe_data_wait(const lathe_ranks *ranks, lathe_exchange *exchange);
/** start, then wait. */
lathe_status lathe_data_run(const lathe_ranks *ranks, lathe_exchange *exchange,
                            const lathe_exchange_room *room, const void *in, void *out);
/** Bytes that this rank has sent in exchanges of the device's memory since the start. */
lathe_status lathe_data_sent(const lathe_ranks *ranks, int64_t *out);

#endif

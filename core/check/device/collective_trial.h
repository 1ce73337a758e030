/* Shared by the checks of collectives: the group that the environment gives, and problems with
 * their memory and expected results. */
#ifndef LATHE_CHECK_COLLECTIVE_TRIAL_H
#define LATHE_CHECK_COLLECTIVE_TRIAL_H

#include "check/harness/subject.h"
#include "lathe/collective.h"

enum { LATHE__MAX_RANKS = 64 };

/** A group that is open. */
typedef struct lathe__joined {
    lathe__subject *s;
    lathe_registry *registry; /* of the engine under one that needs another */
    lathe_instance base;
    lathe_group *base_group;
    lathe_instance instance;
    const lathe_collective_v1 *table;
    lathe_group *group;
    lathe_group_info info;
} lathe__joined;

/** A problem with its memory. counts: [n_ranks] of this rank; for ALL_TO_ALL rank a sends
 * pair_count(a, b) elements to rank b. */
typedef struct lathe__trial {
    lathe_exchange_problem problem;
    int64_t counts[LATHE__MAX_RANKS], from[LATHE__MAX_RANKS];
    int64_t size; /* from which the extents follow */
    int64_t n_in, n_out;
    void *in, *out, *kept; /* kept: a copy of in */
    lathe_exchange *exchange;
    lathe_exchange_info info;
    void *scratch, *pinned;
} lathe__trial;

/** An error of a function of the engine, which must have recorded a message. */
lathe_status lathe__collective_failed(const char *what, lathe_status status);

/** Reads and checks the description of a group. */
lathe_status lathe__collective_info(const lathe_collective_v1 *table, const lathe_group *group,
                                    lathe_group_info *out);

/** Opens the group, with the device of the checks for an engine for devices; for an engine that
 * needs another one that of the best installed engine. LATHE__SKIP: the engine, or the other one,
 * is not available here. */
lathe_status lathe__collective_join(lathe__subject *s, lathe__joined *out);
/** Closes the group if `status`, which it returns otherwise, is LATHE_OK. */
lathe_status lathe__collective_leave(lathe__joined *j, lathe_status status);

/** A problem of about n elements; uneven: with extents per rank, where the op has them. */
lathe_exchange_problem lathe__collective_problem(const lathe__joined *j, int32_t op, int32_t dtype,
                                                 int32_t reduce, int64_t n, int uneven,
                                                 lathe__trial *t);
/** Begin of rank q's extent. */
int64_t lathe__collective_extent_begin(const lathe__joined *j, const lathe__trial *t, int32_t q);

/** Whether the engine may refuse it: MAX and MIN of floats; SEND and RECEIVE, if it is for devices.
 */
int lathe__collective_may_refuse(const lathe__joined *j, const lathe_exchange_problem *p);
/** Prepares t->problem, with guarded memory and small integers as the input. LATHE__SKIP: the
 * engine refuses it, and may. */
lathe_status lathe__collective_prepare(const lathe__joined *j, lathe__trial *t);
/** Copies the memory of all trials to the device of the checks, before exchanges are started. */
lathe_status lathe__collective_send(const lathe__joined *j);
/** Starts a run with this input. */
lathe_status lathe__collective_start(const lathe__joined *j, lathe__trial *t, const void *in);
/** Waits for it, and copies the memory of all trials back. */
lathe_status lathe__collective_finish(const lathe__joined *j, lathe__trial *t);
/** Compares the output, and the input with what it was. */
lathe_status lathe__collective_compare(const lathe__joined *j, const lathe__trial *t);
/** All of these, twice, with traffic and heap. */
lathe_status lathe__collective_try(const lathe__joined *j, lathe__trial *t);

#endif

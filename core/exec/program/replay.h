/* Replays of node ranges that run repeatedly: the device captures a range at its second run, and
 * launches the capture as one unit from the third run on.
 *
 * A captured range runs the same kernels on the same memory; everything that differs from run to
 * run is written to device memory before. Used only on devices that offer captures, and only while
 * no caller observes single nodes.
 */
#ifndef LATHE_EXEC_REPLAY_H
#define LATHE_EXEC_REPLAY_H

#include "exec/store/machine.h"

/* Ranges with a capture; others run node by node. Where ranks add gradients during the backward,
 * each bucket ends a range (core/parallel/ranks). */
enum { LATHE_MAX_REPLAYS = 64 };

typedef struct lathe_replay {
    int32_t begin, end, accumulate; /* of lathe_exec_run_range */
    int64_t n_runs;
    lathe_capture *capture; /* NULL: not yet, or never */
} lathe_replay;

typedef struct lathe_replays {
    lathe_machine *m;
    lathe_replay list[LATHE_MAX_REPLAYS];
    int32_t n;
} lathe_replays;

/** Queues the nodes of a range one by one. */
typedef lathe_status (*lathe_range_run_fn)(void *arg, int32_t begin, int32_t end,
                                           int32_t accumulate);

/** Runs a range, by calling `run` or by launching its capture. */
lathe_status lathe_replays_run(lathe_replays *r, int32_t begin, int32_t end, int32_t accumulate,
                               lathe_range_run_fn run, void *arg);
void lathe_replays_fini(lathe_replays *r);

#endif

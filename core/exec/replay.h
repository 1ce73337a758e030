/* Replays: ranges of an executable that are run again and again, captured by the device at their
 * second run and launched as one from the third on.
 *
 * A captured range runs the same kernels on the same memory: what differs from run to run lies in
 * device memory that is filled before. Only on devices that offer captures, and only while nobody
 * looks at single nodes.
 */
#ifndef LATHE_EXEC_REPLAY_H
#define LATHE_EXEC_REPLAY_H

#include "exec/machine.h"

enum { LATHE_MAX_REPLAYS = 8 };

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

/** Runs a range: by `run`, or by launching what was captured of it. */
lathe_status lathe_replays_run(lathe_replays *r, int32_t begin, int32_t end, int32_t accumulate,
                               lathe_range_run_fn run, void *arg);
void lathe_replays_fini(lathe_replays *r);

#endif

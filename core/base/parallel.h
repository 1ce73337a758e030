/* Parallel loops on the process's one thread pool (OpenMP); lathe/host.h defines parallel_for. */
#ifndef LATHE_BASE_PARALLEL_H
#define LATHE_BASE_PARALLEL_H

#include "lathe/host.h"

/** Sets the pool's size; n < 1: one thread per CPU that this process may use. Call it before the
 *  first parallel_for. */
void lathe_parallel_init(int32_t n_threads);
int32_t lathe_parallel_threads(void);
void lathe_parallel_for(int64_t n, int64_t grain, lathe_range_fn fn, void *arg);

/** Runs fn(arg) on the calling thread while the pool's other threads wait for its
 *  lathe_parallel_for calls without sleeping. A loop then starts in about a microsecond; waking
 *  sleeping threads takes tens of microseconds. Use it for many short loops in a row, a few
 *  milliseconds in total. The results are the same as outside. OpenMP regions of other libraries
 *  that fn enters run on the calling thread only. Allocates nothing. */
void lathe_parallel_team(void (*fn)(void *arg), void *arg);

/** From now on the calling thread runs its loops serially. For threads that work in parallel to
 *  the pool: OpenMP would otherwise create another pool for them. */
void lathe_parallel_stay_alone(void);

/** memcpy on all threads of the pool. */
void lathe_parallel_copy(void *to, const void *from, int64_t bytes);

#endif

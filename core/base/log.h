/* The run's log: lines to stderr above a level, or to a sink the application sets. */
#ifndef LATHE_BASE_LOG_H
#define LATHE_BASE_LOG_H

#include "lathe/host.h"

typedef void (*lathe_log_sink)(void *arg, int32_t level, const char *message);

/** Replaces the sink (NULL: stderr, "lathe: warning: ..."); not while other threads log. */
void lathe_log_set_sink(lathe_log_sink sink, void *arg);
void lathe_log_set_level(int32_t level);

/** Hears warnings and errors beside the sink, whatever the level: for a run's record. Those of
 *  before (the last LATHE_LOG_KEPT) are told again at once. NULL: nobody listens. One at a time:
 *  a tap that is set while another listens takes its place. */
enum { LATHE_LOG_KEPT = 32 };
void lathe_log_set_tap(lathe_log_sink tap, void *arg);

/** Gives the warnings that the calling thread logs to `catcher`, instead of to sink and tap, so
 *  that its caller can add the place that they are about. NULL: no longer. The catcher may log
 *  itself. */
void lathe_log_catch_warnings(void (*catcher)(void *arg, const char *message), void *arg);

__attribute__((format(printf, 2, 3))) void lathe_log(int32_t level, const char *format, ...);

#endif

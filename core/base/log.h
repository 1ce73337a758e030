/* The run's log: lines to stderr above a level, or to a sink the application sets. */
#ifndef LATHE_BASE_LOG_H
#define LATHE_BASE_LOG_H

#include "lathe/host.h"

typedef void (*lathe_log_sink)(void *arg, int32_t level, const char *message);

/** Replaces the sink (NULL: stderr, "lathe: warning: ..."); not while other threads log. */
void lathe_log_set_sink(lathe_log_sink sink, void *arg);
void lathe_log_set_level(int32_t level);
__attribute__((format(printf, 2, 3))) void lathe_log(int32_t level, const char *format, ...);

#endif

/* Writes log messages: lines on stderr at or above a level, or calls of a sink that the
 * application sets. */
#ifndef LATHE_BASE_LOG_H
#define LATHE_BASE_LOG_H

#include "lathe/host.h"

typedef void (*lathe_log_sink)(void *arg, int32_t level, const char *message);

/** Replaces the sink (NULL: stderr, "lathe: warning: ..."); not while other threads log. */
void lathe_log_set_sink(lathe_log_sink sink, void *arg);
/** The sink in use, NULL: stderr, and its argument. */
lathe_log_sink lathe_log_get_sink(void **out_arg);
void lathe_log_set_level(int32_t level);

/** Begins every line on stderr with "rank 3: "; below 0: with nothing. */
void lathe_log_set_rank(int32_t rank);

/** Sets a tap, which gets all warnings and errors in addition to the sink, at any log level; for
 *  a run's record. It first gets the last LATHE_LOG_KEPT earlier ones. There is at most one tap:
 *  a new one replaces the old one. NULL removes it. */
enum { LATHE_LOG_KEPT = 32 };
void lathe_log_set_tap(lathe_log_sink tap, void *arg);

/** Gets a warning and the key that it is about; "": none. */
typedef void (*lathe_warning_catcher)(void *arg, const char *key, const char *message);

/** Sends the warnings of the calling thread to `catcher` instead of sink and tap, so that the
 *  caller can add the place that they concern. NULL ends this. The catcher may log, too. */
void lathe_log_catch_warnings(lathe_warning_catcher catcher, void *arg);

/** Logs a warning of a key, of which a catcher knows the table. */
void lathe_log_warn_at(const char *key, const char *message);

__attribute__((format(printf, 2, 3))) void lathe_log(int32_t level, const char *format, ...);
/** Logs a message that every rank of a run has alike, such as one about the data: only a process
 * without a rank (lathe_log_set_rank), which includes rank 0, logs it. */
__attribute__((format(printf, 2, 3))) void lathe_log_alike(int32_t level, const char *format, ...);

#endif

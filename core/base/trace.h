/* A Chrome trace of the process: spans by thread, for chrome://tracing or ui.perfetto.dev.
 *
 *   {"traceEvents": [
 *   {"ph": "M", ...},                                                            names of threads
 *   {"ph": "X", "cat", "name", "pid", "tid", "ts", "dur", "args": {...}}, ...    microseconds
 *   ]}
 *
 * One at a time in a process, like the log. The file is whole JSON whenever the process ends,
 * however it ends: events are appended over the closing brackets, a buffer at a time, at least once
 * a second while spans come. Memory is the one buffer. A file that cannot be written ends the trace
 * with a warning, not the run. Without a trace, a call costs one load.
 *
 * Threads: every entry but begin and end from any thread.
 */
#ifndef LATHE_BASE_TRACE_H
#define LATHE_BASE_TRACE_H

#include "lathe/status.h"

/** Begins a trace in a new file. LATHE_E_IO names it; LATHE_E_STATE: there is one already. */
lathe_status lathe_trace_begin(const char *path);
/** Writes what is left and closes the file. Without a trace, nothing. */
void lathe_trace_end(void);

/** Whether there is a trace. */
int32_t lathe_trace_on(void);

/** Seconds on the clock that spans are given in: CLOCK_MONOTONIC. */
double lathe_trace_now(void);

/** Names the calling thread: "training", "checkpoint writer". The text must live on. */
void lathe_trace_thread(const char *name);

/** A span of the calling thread. args: a JSON object, or NULL. */
void lathe_trace_span(const char *category, const char *name, double begin, double end,
                      const char *args);

/** A span from `begin` to now. */
void lathe_trace_since(const char *category, const char *name, double begin);

#endif

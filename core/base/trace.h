/* A Chrome trace of the process: spans by thread, for chrome://tracing or ui.perfetto.dev.
 *
 *   {"traceEvents": [
 *   {"ph": "M", ...},                                                            names of threads
 *   {"ph": "X", "cat", "name", "pid", "tid", "ts", "dur", "args": {...}}, ...    microseconds
 *   ]}
 *
 * A process has at most one trace. The file is valid JSON at any time, also after a crash: each
 * write of a buffer overwrites the closing brackets and adds them again, at least once a second
 * while spans arrive. The only memory is one buffer. If the file cannot be written, the trace ends
 * with a warning and the run continues. Without a trace, a call costs one load.
 *
 * Threads: all functions except begin and end may be called from any thread.
 */
#ifndef LATHE_BASE_TRACE_H
#define LATHE_BASE_TRACE_H

#include "lathe/status.h"

/** Begins a trace in a new file. LATHE_E_IO names it; LATHE_E_STATE: there is one already. */
lathe_status lathe_trace_begin(const char *path);

/** A process among several whose traces are joined. */
typedef struct lathe_trace_process {
    int32_t number;   /* above 0: the "pid" of its events, and its place in the order */
    const char *name; /* "rank 1 of 4" */
    double origin;    /* the time 0 of its events, on the clock of lathe_trace_now */
} lathe_trace_process;

/** Like lathe_trace_begin, with events of that process. */
lathe_status lathe_trace_begin_as(const char *path, const lathe_trace_process *process);

/** Moves the events of the file `part` into the file `path`, both of traces that have ended, and
 *  removes `part`. LATHE_E_IO, LATHE_E_CORRUPT (not a trace): `path` is as before. */
lathe_status lathe_trace_join(const char *path, const char *part);

/** Writes the rest of the buffer and closes the file. Does nothing without a trace. */
void lathe_trace_end(void);

/** Whether there is a trace. */
int32_t lathe_trace_on(void);

/** Seconds on the clock that spans are given in: CLOCK_MONOTONIC. */
double lathe_trace_now(void);

/** Names the calling thread: "training", "checkpoint writer". The text must stay valid. */
void lathe_trace_thread(const char *name);

/** A span of the calling thread. args: a JSON object, or NULL. */
void lathe_trace_span(const char *category, const char *name, double begin, double end,
                      const char *args);

/** A span from `begin` to now. */
void lathe_trace_since(const char *category, const char *name, double begin);

#endif

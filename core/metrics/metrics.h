/* Writes metrics.jsonl: one JSON object per step, appended and flushed. */
#ifndef LATHE_METRICS_METRICS_H
#define LATHE_METRICS_METRICS_H

#include <stdio.h>

#include "lathe/lathe.h"

typedef struct lathe_metrics {
    FILE *file; /* NULL: no folder to write to */
    char *path;
} lathe_metrics;

/** Opens dir/metrics.jsonl and removes the lines of steps after `step`, which belong to a run that
 * was resumed from an earlier step. dir NULL: metrics are not written. */
lathe_status lathe_metrics_open(lathe_metrics *m, const char *dir, int64_t step);

/** Appends {"step": n, key: value, ...}; values that are not finite become null. LATHE_E_IO names
 * the file, the step and the cause (a full disk). */
lathe_status lathe_metrics_write(lathe_metrics *m, int64_t step, int32_t n, const char *const *keys,
                                 const double *values);

void lathe_metrics_close(lathe_metrics *m);

/** Cuts a file of such lines before the first line whose step is greater, and removes an incomplete
 * last line. Reads a map of the file once and replaces the file by a new one, so a program that
 * follows it sees another file. A missing file is fine. */
lathe_status lathe_lines_cut(const char *path, int64_t step);

/** The step of the last complete line of such a file; -1: there is none, or it cannot be read. */
int64_t lathe_lines_last(const char *path);

/** Writes the complete lines that lathe_lines_cut would remove into the file `to`, atomically.
 * Writes nothing if there are no such lines, or if the file is missing or cannot be mapped. */
lathe_status lathe_lines_copy_after(const char *path, int64_t step, const char *to);

#endif

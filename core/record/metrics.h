/* metrics.jsonl: one JSON object per step, appended and flushed. */
#ifndef LATHE_RECORD_METRICS_H
#define LATHE_RECORD_METRICS_H

#include <stdio.h>

#include "lathe/lathe.h"

typedef struct lathe_metrics {
    FILE *file; /* NULL: no folder to write to */
    char *path;
} lathe_metrics;

/** Opens dir/metrics.jsonl; lines of steps after `step` (of a run that went on from there) are
 * dropped. dir NULL: metrics go nowhere. */
lathe_status lathe_metrics_open(lathe_metrics *m, const char *dir, int64_t step);

/** Appends {"step": n, key: value, ...}; values that are not finite become null. LATHE_E_IO names
 * the file, the step and the cause (a full disk). */
lathe_status lathe_metrics_write(lathe_metrics *m, int64_t step, int32_t n, const char *const *keys,
                                 const double *values);

void lathe_metrics_close(lathe_metrics *m);

/** Cuts a file of such lines before the first whose step is greater, and drops a torn last line:
 * one pass over a map of the file, then a new file in its place (who follows it sees another one).
 * A missing file is fine. */
lathe_status lathe_lines_cut(const char *path, int64_t step);

/** Writes the whole lines that lathe_lines_cut would cut into the file `to`, atomically. Without
 * any, and when the file is missing or none that can be mapped, nothing is written. */
lathe_status lathe_lines_copy_after(const char *path, int64_t step, const char *to);

#endif

/* Shows the progress of data preparation: one rewritten line on a terminal, otherwise a log line
 * every ten seconds. */
#ifndef LATHE_METRICS_DATA_PROGRESS_H
#define LATHE_METRICS_DATA_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

typedef struct lathe_data_progress {
    FILE *out; /* stream of the rewritten line */
    int32_t off;
    int32_t in_place;
    int32_t line_open;
    int64_t begun_bytes; /* bytes that were done when the dataset began: parts that an earlier start
                            prepared */
    double begun, last;  /* times in seconds: start of the dataset, last line */
    const char *path;    /* dataset in preparation */
} lathe_data_progress;

/** mode: LATHE_PROGRESS_*. */
void lathe_data_progress_init(lathe_data_progress *p, FILE *out, int32_t mode);

/** A lathe_shards_progress. */
void lathe_data_progress_show(void *progress, const char *path, int64_t done_bytes,
                              int64_t total_bytes, int64_t n_tokens);

/** Ends an open line. */
void lathe_data_progress_end(lathe_data_progress *p);

#endif

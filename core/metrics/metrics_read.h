/* Reads metrics.jsonl as a stream, and follows a file that grows, has an incomplete last line, or
 * is replaced.
 *
 * A line is one flat JSON object with a whole number "step" >= 0. Its numbers are the figures; null
 * is a figure that was not finite (NAN here); strings and booleans are ignored. Any other line is
 * skipped and counted. A last line without its newline is not read until it is complete.
 */
#ifndef LATHE_METRICS_METRICS_READ_H
#define LATHE_METRICS_METRICS_READ_H

#include "lathe/status.h"

enum {
    LATHE_METRICS_MAX_KEYS = 128, /* per file; figures with further keys are ignored */
    LATHE_METRICS_MAX_LINE = 1 << 16
};

typedef struct lathe_metrics_reader lathe_metrics_reader;

typedef struct lathe_metrics_row {
    int64_t step;
    int32_t n;
    const int32_t *keys; /* [n] indices for lathe_metrics_reader_key */
    const double *values;
} lathe_metrics_row;

/** Called for every line, in order. row NULL: the file was replaced or cut, and all rows so far are
 * invalid. */
typedef void (*lathe_metrics_visit)(void *arg, const lathe_metrics_row *row);

/** The file need not exist yet. Errors LATHE_E_NOMEM. */
lathe_status lathe_metrics_reader_create(const char *path, lathe_metrics_reader **out);
void lathe_metrics_reader_destroy(lathe_metrics_reader *reader);

/** Reports all complete lines that are new since the last call. A missing file counts as empty.
 * LATHE_E_IO. */
lathe_status lathe_metrics_reader_poll(lathe_metrics_reader *reader, lathe_metrics_visit visit,
                                       void *arg);

/** Name of a key. Indices count up from 0, in the order in which keys first appear, and do not
 * change. */
const char *lathe_metrics_reader_key(const lathe_metrics_reader *reader, int32_t index);
int32_t lathe_metrics_reader_n_keys(const lathe_metrics_reader *reader);

/** Lines that were skipped since the file began. */
int64_t lathe_metrics_reader_bad_lines(const lathe_metrics_reader *reader);

#endif

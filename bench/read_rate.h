/* The bandwidth of memory: a buffer that is larger than any cache, read and summed by all threads.
 */
#ifndef LATHE_BENCH_READ_RATE_H
#define LATHE_BENCH_READ_RATE_H

#include <stdint.h>

typedef struct read_rate {
    uint64_t *data; /* in huge pages where the system gives them, as weights are */
    int64_t bytes;
    uint64_t sums[256]; /* [thread] */
} read_rate;

/** Allocates and fills the buffer; bytes: a multiple of 2 MiB. Returns 0 without memory. */
int read_rate_init(read_rate *r, int64_t bytes);
void read_rate_fini(read_rate *r);

/** Reads the buffer once; the caller measures the time with its own clock. */
void read_rate_pass(read_rate *r);

#endif

#include "read_rate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/parallel.h"

#define GRAIN ((int64_t)1 << 20) /* bytes that a thread takes at a time */

int read_rate_init(read_rate *r, int64_t bytes)
{
    memset(r, 0, sizeof *r);
    r->bytes = bytes;
    r->data = aligned_alloc((size_t)2 << 20, (size_t)bytes);
    if (!r->data)
        return 0;
    (void)madvise(r->data, (size_t)bytes, MADV_HUGEPAGE);
    memset(r->data, 1, (size_t)bytes);
    return 1;
}

void read_rate_fini(read_rate *r)
{
    free(r->data);
}

/* Sums a range in lanes, which do not wait for each other. */
static void read_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    read_rate *r = arg;
    uint64_t lanes[16] = {0};
    for (int64_t i = begin / 8; i < end / 8; i += 16)
        for (int64_t j = 0; j < 16; j++)
            lanes[j] += r->data[i + j];
    for (int64_t j = 0; j < 16; j++)
        r->sums[worker & 255] += lanes[j];
}

void read_rate_pass(read_rate *r)
{
    lathe_parallel_for(r->bytes, GRAIN, read_range, r);
}

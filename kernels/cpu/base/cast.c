/* Converts elements from one dtype to another. */
#include "base/cast.h"

#include "base/element.h"

typedef struct cast_job {
    const void *src;
    void *dst;
    int32_t src_dtype, dst_dtype;
    int32_t accumulate;
} cast_job;

static void cast_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const cast_job *job = arg;
    float in[CPU_TILE], out[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *x = tile_in(in, job->src, job->src_dtype, i, n);
        float *y = tile_out(out, job->dst, job->dst_dtype, job->accumulate, i);
        memcpy(y, x, (size_t)n * sizeof *y);
        if (y == out)
            tile_done(out, job->dst, job->dst_dtype, job->accumulate, i, n);
    }
}

void cpu_cast(const lathe_host *host, void *dst, int32_t dst_dtype, const void *src,
              int32_t src_dtype, int64_t n, int accumulate)
{
    cast_job job = {src, dst, src_dtype, dst_dtype, accumulate};
    host->parallel_for(n, CPU_GRAIN, cast_range, &job);
}

/* Elementwise ops: one loop over tiles of floats, one small function per op.
 *
 *   CPU_TILE_FN(tile_add, x[j] + y[j])         z = x + y, element by element
 *   CPU_TILE_OP(ADD, tile_add, 1)              an op without attributes; 0: of one input, 1: of two
 */
#ifndef LATHE_CPU_ELEMENT_LOOPS_H
#define LATHE_CPU_ELEMENT_LOOPS_H

#include "base/cpu.h"
#include "base/element.h"

typedef struct cpu_tile {
    const float *x, *y; /* y: second input, or NULL */
    float *z;
    float alpha, beta;
} cpu_tile;

typedef void (*cpu_tile_fn)(const cpu_tile *t, int64_t n);

typedef struct cpu_tiles_job {
    cpu_tile_fn fn;
    const void *x, *y;
    void *z;
    int32_t x_dtype, y_dtype, z_dtype, accumulate;
    float alpha, beta;
} cpu_tiles_job;

static inline void cpu_tiles_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const cpu_tiles_job *job = arg;
    float b0[CPU_TILE], b1[CPU_TILE], b2[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        float *z = tile_out(b2, job->z, job->z_dtype, job->accumulate, i);
        const cpu_tile t = {tile_in(b0, job->x, job->x_dtype, i, n),
                            job->y == NULL ? NULL : tile_in(b1, job->y, job->y_dtype, i, n), z,
                            job->alpha, job->beta};
        job->fn(&t, n);
        if (z == b2)
            tile_done(b2, job->z, job->z_dtype, job->accumulate, i, n);
    }
}

#define CPU_TILE_FN(name, expression)                                                              \
    static void name(const cpu_tile *t, int64_t n)                                                 \
    {                                                                                              \
        const float *x = t->x, *y = t->y;                                                          \
        float *z = t->z;                                                                           \
        const float alpha = t->alpha, beta = t->beta;                                              \
        (void)y, (void)alpha, (void)beta;                                                          \
        _Pragma("GCC ivdep") for (int64_t j = 0; j < n; j++) z[j] = (expression);                  \
    }

/** z = fn(x), or fn(x, y) with `binary`; added to z if the arguments say so. */
static inline lathe_status cpu_run_tiles(lathe_kernel *k, const lathe_kernel_args *a,
                                         cpu_tile_fn fn, int binary, double alpha, double beta)
{
    cpu_tiles_job job = {fn,
                         a->in[0],
                         binary ? a->in[1] : NULL,
                         a->out[0],
                         k->in[0].dtype,
                         binary ? k->in[1].dtype : 0,
                         k->out[0].dtype,
                         (a->accumulate & 1u) != 0,
                         (float)alpha,
                         (float)beta};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, cpu_tiles_range, &job);
    return LATHE_OK;
}

#define CPU_TILE_OP(op, fn, binary)                                                                \
    static lathe_status run_##fn(lathe_kernel *k, const lathe_kernel_args *a)                      \
    {                                                                                              \
        return cpu_run_tiles(k, a, fn, binary, 0.0, 0.0);                                          \
    }                                                                                              \
    const kernel_op CPU_OP(op) = {NULL, run_##fn, NULL, 1};

#endif

/* Multiplies the columns of a block of logits with factors, and the derivative. */
#include "head/head_scale.h"

#include "base/element.h"

CPU_INLINE void scale_row(const void *l, const float *s, int64_t n, float *out, int32_t dtype)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = s[i] * ld(l, i, dtype);
}

static void scale_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const cpu_head_scaling *c = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        CPU_BY_DTYPE(c->dtype, scale_row, at(c->products, r * c->width, c->dtype), c->s, c->width,
                     c->scaled + r * c->width);
}

enum { COLUMNS = 256 }; /* whose sums are added at a time */

/* Adds a row's g * l to the sums of n columns; l becomes g * s. */
CPU_INLINE void unscale_row(void *l, const float *g, const float *s, int64_t n, double *sums,
                            int32_t dtype)
{
    for (int64_t i = 0; i < n; i++) {
        sums[i] += (double)g[i] * (double)ld(l, i, dtype);
        st(l, i, dtype, 0, g[i] * s[i]);
    }
}

/* Tiles of columns, over the rows in order. */
static void unscale_tiles(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const cpu_head_scaling *c = arg;
    (void)worker;
    for (int64_t tile = begin; tile < end; tile++) {
        const int64_t first = tile * COLUMNS;
        const int64_t n = c->width - first < COLUMNS ? c->width - first : COLUMNS;
        double sums[COLUMNS] = {0.0};
        for (int64_t r = 0; r < c->rows; r++) {
            const int64_t e = r * c->width + first;
            CPU_BY_DTYPE(c->dtype, unscale_row, at_mut(c->products, e, c->dtype), c->scaled + e,
                         c->s + first, n, sums);
        }
        for (int64_t i = 0; c->ds != NULL && i < n; i++)
            st(c->ds, first + i, LATHE_F32, c->adds, (float)sums[i]);
    }
}

void cpu_head_scale(const lathe_host *host, cpu_head_scaling *c)
{
    host->parallel_for(c->rows, 4, scale_rows, c);
}

void cpu_head_unscale(const lathe_host *host, cpu_head_scaling *c)
{
    host->parallel_for((c->width + COLUMNS - 1) / COLUMNS, 1, unscale_tiles, c);
}

/* Computes sums of squares of gradients or weights on the device, one sum per parameter. */
#include "optim/squares.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plug/answers.h"

#define SEGMENT ((int64_t)1 << 16)

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* A family's elements: dtype, size of an element, first byte in the gradients or masters, and total
 * bytes. */
typedef struct family {
    int32_t dtype, size;
    int64_t begin, bytes;
} family;

static int is_of_masters(int32_t which)
{
    return which == LATHE_SQUARES_MASTERS || which == LATHE_SQUARES_MATRICES;
}

static family family_of(const lathe_store *store, int32_t which)
{
    const int64_t wide = store->wide_grad_bytes;
    if (is_of_masters(which))
        return (family){LATHE_F32, 4, 0, store->master_bytes};
    if (which == LATHE_SQUARES_GRADIENTS)
        return (family){LATHE_F32, 4, 0, wide};
    return (family){store->params->grad_dtype, 2, wide, store->grad_bytes - wide};
}

/* Index of the row's first element in the family; -1: the row is not in it. */
static int64_t first_of(const lathe_store *store, int32_t row, int32_t which)
{
    const family f = family_of(store, which);
    const int64_t at = is_of_masters(which) ? store->rows[row].master : store->rows[row].grad;
    if (which == LATHE_SQUARES_MATRICES && store->rows[row].partition != LATHE_PARTITION_MATRIX)
        return -1;
    return at >= f.begin && at < f.begin + f.bytes ? (at - f.begin) / f.size : -1;
}

/* Counts the segments of what this rank updates, and writes them if an output is given. */
static int64_t cut(const lathe_store *store, int32_t which, int64_t *segments, int32_t *rows)
{
    int64_t n = 0;
    for (int32_t i = 0; i < store->n_rows; i++) {
        const int64_t first = first_of(store, i, which);
        const lathe_extent *held = store->rows[i].held;
        const int64_t count = held[LATHE_OF_STATE].n;
        const int64_t skipped =
            held[LATHE_OF_STATE].begin -
            held[is_of_masters(which) ? LATHE_OF_PARAMETER : LATHE_OF_GRADIENT].begin;
        if (!store->params->rows[i]->trainable || first < 0)
            continue;
        for (int64_t from = 0; from < count; from += SEGMENT, n++) {
            if (segments == NULL)
                continue;
            segments[2 * n] = first + skipped + from;
            segments[2 * n + 1] = count - from < SEGMENT ? count - from : SEGMENT;
            rows[n] = i;
        }
    }
    return n;
}

lathe_status lathe_squares_init(lathe_squares *s, lathe_machine *m, const lathe_store *store,
                                int32_t which)
{
    *s = (lathe_squares){.m = m, .n = cut(store, which, NULL, NULL)};
    if (s->n == 0)
        return LATHE_OK;
    s->segments = malloc((size_t)s->n * 2 * sizeof *s->segments);
    s->row = malloc((size_t)s->n * sizeof *s->row);
    if (s->segments == NULL || s->row == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld segments", (long long)s->n);
    (void)cut(store, which, s->segments, s->row);
    const family f = family_of(store, which);
    const lathe_op_attrs attrs = {0};
    const lathe_desc in[2] = {lathe_desc_1d(f.dtype, f.bytes / f.size),
                              lathe_desc_2d(LATHE_I64, s->n, 2)};
    const lathe_desc out = lathe_desc_1d(LATHE_F64, s->n);
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = LATHE_OP_SUM_SQUARES,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &out,
                                          .n_in = 2,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = m->flags,
                                          .n_threads = m->n_threads};
    return lathe_answer_kernel(m->device, &problem, &s->kernel, &s->scratch_bytes);
}

void lathe_squares_fini(lathe_squares *s)
{
    if (s->kernel)
        s->m->dev->kernel_destroy(s->m->device->self, s->kernel);
    free(s->segments);
    free(s->row);
    memset(s, 0, sizeof *s);
}

int64_t lathe_squares_bytes(const lathe_squares *s)
{
    return round_up(16 * s->n) + round_up(8 * s->n) + round_up(s->scratch_bytes);
}

int64_t lathe_squares_staging_bytes(const lathe_squares *s)
{
    return round_up(lathe_view_bytes(s->m, 8 * s->n));
}

lathe_status lathe_squares_place(lathe_squares *s, const lathe_store *store, int32_t which,
                                 void *own, void *staging)
{
    s->own = own;
    s->host = lathe_view_at(s->m, s->own + round_up(16 * s->n), staging);
    s->family =
        (is_of_masters(which) ? store->masters : store->grads) + family_of(store, which).begin;
    return lathe_upload(s->m, own, s->segments, 16 * s->n);
}

lathe_status lathe_squares_queue(lathe_squares *s)
{
    if (s->n == 0)
        return LATHE_OK;
    char *sums = s->own + round_up(16 * s->n);
    const void *const in[2] = {s->family, s->own};
    void *const out[1] = {sums};
    const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                    .in = in,
                                    .out = out,
                                    .scratch = s->scratch_bytes ? sums + round_up(8 * s->n) : NULL,
                                    .stream = s->m->stream};
    LATHE_TRY(s->m->dev->kernel_run(s->m->device->self, s->kernel, &args));
    return lathe_fetch_pinned(s->m, s->host, sums, 8 * s->n);
}

void lathe_squares_read(const lathe_squares *s, double *rows)
{
    for (int64_t k = 0; k < s->n; k++)
        rows[s->row[k]] += s->host[k];
}

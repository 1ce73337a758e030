/* Updates elementwise parameters range by range. */
#include "optim/update_ranges.h"

#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "lathe/kit/elementwise.h"
#include "optim/change_norms.h"

#define MAX_PIECES 64 /* largest number of pieces of one call */
#define CHUNK LATHE_ELEMENTWISE_CHUNK
/* largest number of chunks of a piece, except of large tensors that must not be cut */
#define PIECE_CHUNKS 1024
/* Calls with 8 to 128 chunks take the same processor time; calls with more chunks need fewer
 * barriers. */
#define MIN_ELEMENTS ((int64_t)64 * CHUNK)
#define ELEMENTS_PER_THREAD ((int64_t)4 * CHUNK)

static int64_t unit_of(const lathe_ranges *r, const lathe_optimizer_tensor *t)
{
    return lathe__cut_unit(r->store, r->optimizer, t);
}

int64_t lathe__ranges_capacity(const lathe_ranges *r, int32_t n_threads)
{
    const int64_t wanted = ELEMENTS_PER_THREAD * (n_threads > 1 ? n_threads : 1);
    int64_t all = 0, capacity = wanted > MIN_ELEMENTS ? wanted : MIN_ELEMENTS;
    for (int32_t i = 0; i < r->n_tensors; i++) {
        const int64_t unit = unit_of(r, &r->tensors[i]);
        const int64_t least = unit == 0 ? r->tensors[i].n : unit;
        all += r->tensors[i].n;
        if (least > capacity)
            capacity = least;
    }
    return all < capacity ? all : capacity;
}

/* Elements of tensor t, from `begin` on, that fit in `room`; 0: none. */
static int64_t fitting(const lathe_optimizer_tensor *t, int64_t unit, int64_t begin, int64_t room)
{
    const int64_t left = t->n - begin;
    if (left <= room)
        return left;
    if (unit == 0)
        return 0;
    /* Cut at whole chunks if the unit allows it: then the sums equal those of the uncut tensor. */
    const int64_t step = CHUNK % unit == 0 ? CHUNK : unit;
    return room / step * step;
}

/* The pieces of one call. The copy of piece p is at r->before + at[p]. */
typedef struct batch {
    const lathe_ranges *r;
    lathe_optimizer_tensor piece[MAX_PIECES];
    int64_t at[MAX_PIECES];
    int64_t chunk[MAX_PIECES + 1]; /* first chunk of each piece, and the end */
    int64_t length[MAX_PIECES];    /* of its chunks */
    double *sums;                  /* NULL: copy; else [2 per chunk] */
    int32_t n;
} batch;

static int32_t piece_of(const batch *b, int64_t chunk)
{
    int32_t p = 0;
    while (b->chunk[p + 1] <= chunk)
        p++;
    return p;
}

static void over_chunks(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const batch *b = arg;
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        const int32_t p = piece_of(b, c);
        const lathe_optimizer_tensor *t = &b->piece[p];
        const int64_t from = (c - b->chunk[p]) * b->length[p];
        const int64_t n = t->n - from < b->length[p] ? t->n - from : b->length[p];
        float *was = b->r->before + b->at[p] + from;
        if (b->sums)
            lathe__squares_of_change(t->param + from, was, n, b->sums + 2 * c);
        else
            memcpy(was, t->param + from, (size_t)n * sizeof *was);
    }
}

static lathe_status run_batch(batch *b, const lathe_optimizer_step *whole, double *io_update2,
                              double *io_param2)
{
    const lathe_optimizer_v1 *table = b->r->optimizer->table;
    lathe_optimizer_step step = *whole;
    step.n_tensors = b->n;
    step.tensors = b->piece;
    const int64_t n_chunks = b->chunk[b->n];
    b->sums = NULL;
    lathe_parallel_for(n_chunks, 1, over_chunks, b);
    LATHE_TRY(table->step(b->r->optimizer->self, &step));
    b->sums = b->r->sums;
    lathe_parallel_for(n_chunks, 1, over_chunks, b);
    for (int64_t c = 0; c < n_chunks; c++) {
        *io_update2 += b->sums[2 * c];
        *io_param2 += b->sums[2 * c + 1];
    }
    b->n = 0;
    return LATHE_OK;
}

/* Adds as much of tensor t, from `begin` on, as fits in the batch; returns 0 if nothing fits. */
static int64_t take(batch *b, const lathe_optimizer_tensor *t, int64_t begin, int64_t used)
{
    const lathe_ranges *r = b->r;
    const int64_t unit = unit_of(r, t), n = fitting(t, unit, begin, r->capacity - used);
    int64_t n_chunks = (n + CHUNK - 1) / CHUNK, length = CHUNK;
    if (n_chunks > PIECE_CHUNKS) {
        length = (n + PIECE_CHUNKS - 1) / PIECE_CHUNKS;
        n_chunks = (n + length - 1) / length;
    }
    if (n == 0 || b->n == MAX_PIECES || b->chunk[b->n] + n_chunks > LATHE_RANGES_CHUNKS)
        return 0;
    lathe__cut_piece(r->store, t, unit, begin, n, &b->piece[b->n]);
    b->at[b->n] = used;
    b->length[b->n] = length;
    b->chunk[b->n + 1] = b->chunk[b->n] + n_chunks;
    b->n++;
    return n;
}

lathe_status lathe__ranges_run(const lathe_ranges *r, const lathe_optimizer_step *step,
                               double *io_update2, double *io_param2)
{
    batch b = {.r = r};
    int64_t used = 0;
    for (int32_t i = 0; i < r->n_tensors; i++) {
        const lathe_optimizer_tensor *t = &r->tensors[i];
        for (int64_t begin = 0; begin < t->n;) {
            const int64_t n = take(&b, t, begin, used);
            used += n;
            begin += n;
            if (n > 0)
                continue;
            if (b.n == 0)
                return lathe_error(LATHE_E_STATE, "a tensor of %lld elements does not fit %lld",
                                   (long long)t->n, (long long)r->capacity);
            LATHE_TRY(run_batch(&b, step, io_update2, io_param2));
            used = 0;
        }
    }
    return b.n ? run_batch(&b, step, io_update2, io_param2) : LATHE_OK;
}

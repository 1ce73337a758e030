/* What the other ranks do for rank 0 while it works alone: they send it their extents of tensors
 * for a checkpoint, and take part in its gathers. */
#include <stdlib.h>

#include "base/error.h"
#include "ranks/extents_internal.h"
#include "store/store_io.h"

#define MOST_PIECE ((int64_t)4 << 20) /* bytes of one message to rank 0 */

/* What rank 0 asks for, in the first of its numbers. */
enum { RELEASE = 0, COLLECT = 1, FILL_AVERAGES = 2, GATHER = 3 };

enum { TAG = 1 }; /* of messages to rank 0 */

/* A range of bytes that one rank passes to another, outside of steps. */
static lathe_status pass(const lathe_extents *x, int32_t op, int32_t peer, void *data, int64_t n)
{
    lathe_exchange *exchange = NULL;
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = op,
                                            .dtype = LATHE_U8,
                                            .peer = peer,
                                            .tag = TAG,
                                            .n = n,
                                            .label = "state for a checkpoint"};
    LATHE_TRY(x->ranks->table->prepare(x->ranks->group, &problem, &exchange, &info));
    void *scratch = aligned_alloc(64, ((size_t)info.scratch_bytes + 127) / 64 * 64);
    const lathe_exchange_args args = {.in = op == LATHE_SEND ? data : NULL,
                                      .out = op == LATHE_SEND ? NULL : data,
                                      .scratch = scratch};
    const lathe_status status = scratch ? lathe_ranks_run(x->ranks, exchange, &args, 1)
                                        : lathe_error(LATHE_E_NOMEM, "no memory to pass a piece");
    if (status == LATHE_OK)
        x->ranks->table->exchange_destroy(exchange);
    free(scratch);
    return status;
}

/* Passes pieces on with the place that they have in the whole tensor. */
typedef struct shifted {
    lathe_piece_fn fn;
    void *arg;
    int64_t by;
} shifted;

/* lathe_piece_fn */
static lathe_status shift(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    const shifted *s = arg;
    return s->fn(s->arg, offset + s->by, data, bytes);
}

/* Receives a range of a tensor, piece by piece. */
static lathe_status receive(const lathe_extents *x, int32_t peer, lathe_extent range, char *buffer,
                            lathe_piece_fn fn, void *arg)
{
    for (int64_t at = 0; at < range.n; at += MOST_PIECE) {
        const int64_t n = range.n - at < MOST_PIECE ? range.n - at : MOST_PIECE;
        LATHE_TRY(pass(x, LATHE_RECEIVE, peer, buffer, n));
        LATHE_TRY(fn(arg, range.begin + at, buffer, n));
    }
    return LATHE_OK;
}

/* An error of `fn` ends the run: the others wait in vain for the next request, and are ended. */
lathe_status lathe__extents_collect(void *arg, int32_t family, int32_t row, int32_t slot,
                                    lathe_piece_fn fn, void *fn_arg)
{
    const lathe_extents *x = arg;
    const double ask[4] = {COLLECT, family, row, slot};
    char *buffer = malloc((size_t)MOST_PIECE);
    if (!buffer)
        return lathe_error(LATHE_E_NOMEM, "no memory to receive the state of other ranks");
    lathe_status status = lathe_ranks_gather(x->ranks, ask, 4, 1, NULL);
    for (int32_t q = 0; status == LATHE_OK && q < lathe_ranks_count(x->ranks); q++) {
        const lathe_extent range = lathe_store_family_bytes(x->store, family, row, slot, q);
        shifted own = {fn, fn_arg, range.begin};
        if (range.n == 0)
            continue;
        status = q > 0 ? receive(x, q, range, buffer, fn, fn_arg)
                       : lathe_store_read(x->store, lathe_store_family(x->store, family, row, slot),
                                          range.n, shift, &own);
    }
    free(buffer);
    return status;
}

lathe_status lathe__extents_fill_averages(void *arg)
{
    const lathe_extents *x = arg;
    const double ask = FILL_AVERAGES;
    return lathe_ranks_gather(x->ranks, &ask, 1, 1, NULL);
}

lathe_status lathe__extents_ask_gather(lathe_extents *x, int32_t gather)
{
    const double ask[2] = {GATHER, gather};
    return lathe_ranks_gather(x->ranks, ask, 2, 1, NULL);
}

void lathe_extents_lead(lathe_extents *x)
{
    x->is_alone = 1;
}

lathe_status lathe_extents_release(lathe_extents *x)
{
    x->is_alone = 0;
    const double ask = RELEASE;
    return lathe_ranks_gather(x->ranks, &ask, 1, 1, NULL);
}

/* Sends a piece to rank 0. A lathe_piece_fn. */
static lathe_status send_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    (void)offset;
    for (int64_t at = 0; at < bytes; at += MOST_PIECE) {
        const int64_t n = bytes - at < MOST_PIECE ? bytes - at : MOST_PIECE;
        LATHE_TRY(pass(arg, LATHE_SEND, 0, (char *)(uintptr_t)data + at, n));
    }
    return LATHE_OK;
}

static lathe_status send_held(const lathe_extents *x, int32_t family, int32_t row, int32_t slot)
{
    const lathe_extent range =
        lathe_store_family_bytes(x->store, family, row, slot, lathe_ranks_rank(x->ranks));
    return range.n == 0
               ? LATHE_OK
               : lathe_store_read(x->store, lathe_store_family(x->store, family, row, slot),
                                  range.n, send_piece, (void *)(uintptr_t)x);
}

lathe_status lathe_extents_serve(const lathe_extents *x, lathe_status (*fill)(void *arg), void *arg)
{
    const double here = RELEASE, *all = NULL;
    for (;;) {
        LATHE_TRY(lathe_ranks_gather(x->ranks, &here, 1, 1, &all));
        const int32_t what = (int32_t)all[0];
        if (what == RELEASE)
            return LATHE_OK;
        switch (what) {
        case FILL_AVERAGES:
            LATHE_TRY(fill(arg));
            break;
        case GATHER:
            LATHE_TRY(lathe__gather_serve(x, (int32_t)all[1]));
            break;
        default: /* COLLECT */
            LATHE_TRY(send_held(x, (int32_t)all[1], (int32_t)all[2], (int32_t)all[3]));
        }
    }
}

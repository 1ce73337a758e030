/* Requests of rank 0, and their answers. */
#include "parallel/ranks/serving.h"

#include <stdlib.h>

#include "base/error.h"
#include "exec/store/store_io.h"

#define MAX_PIECE ((int64_t)4 << 20) /* bytes of one message to rank 0 */

/* Requests of rank 0, in the first of its numbers. */
enum { RELEASE = 0, COLLECT = 1, FILL_AVERAGES = 2, GATHER = 3, DESCRIBE = 4 };

enum { TAG = 1 }; /* of messages to rank 0 */

/* A range of bytes that one rank passes to another, outside of steps. */
static lathe_status pass(const lathe_serving *s, int32_t op, int32_t peer, void *data, int64_t n)
{
    lathe_ranks *all = s->layout->all;
    lathe_exchange *exchange = NULL;
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = op,
                                            .dtype = LATHE_U8,
                                            .peer = peer,
                                            .tag = TAG,
                                            .n = n,
                                            .label = "state for a checkpoint"};
    LATHE_TRY(all->table->prepare(all->group, &problem, &exchange, &info));
    void *scratch = aligned_alloc(64, ((size_t)info.scratch_bytes + 127) / 64 * 64);
    const lathe_exchange_args args = {.in = op == LATHE_SEND ? data : NULL,
                                      .out = op == LATHE_SEND ? NULL : data,
                                      .scratch = scratch};
    const lathe_status status = scratch ? lathe_ranks_run(all, exchange, &args, 1)
                                        : lathe_error(LATHE_E_NOMEM, "no memory to pass a piece");
    if (status == LATHE_OK)
        all->table->exchange_destroy(exchange);
    free(scratch);
    return status;
}

/* A request of rank 0. */
typedef struct request {
    int32_t what, family, row, slot, island;
} request;

static lathe_status ask(const lathe_serving *s, const request *r)
{
    const double numbers[5] = {r->what, r->family, r->row, r->slot, r->island};
    return lathe_ranks_gather(s->layout->all, numbers, 5, 1, NULL);
}

/* Bytes of a tensor that a rank of an island sends: of a copy and a place. Of the store's families
 * the first copy has everything. */
static lathe_extent part_of(const lathe_serving *s, const request *r, int32_t copy, int32_t place)
{
    if (r->family >= LATHE_FAMILY_ISLANDS)
        return s->islands->part(s->islands->arg, r->family - LATHE_FAMILY_ISLANDS, r->row, copy,
                                place);
    if (copy > 0)
        return (lathe_extent){0, 0};
    return lathe_store_family_bytes(s->store, r->family, r->row, r->slot, place);
}

static const void *own_of(const lathe_serving *s, const request *r)
{
    return r->family >= LATHE_FAMILY_ISLANDS
               ? s->islands->own(s->islands->arg, r->family - LATHE_FAMILY_ISLANDS, r->row)
               : lathe_store_family(s->store, r->family, r->row, r->slot);
}

/* Calls `each` for every rank of an island that sends a part of a tensor, in the order of the
 * tensor. A tensor that every place has whole comes from the first. */
static lathe_status each_part(const lathe_serving *s, const request *r,
                              lathe_status (*each)(void *arg, int32_t rank, lathe_extent part),
                              void *arg)
{
    const lathe_rank_layout *l = s->layout;
    int64_t at = 0;
    for (int32_t place = 0; place < l->n_shard; place++)
        for (int32_t copy = 0; copy < l->n_copies; copy++) {
            const lathe_extent part = part_of(s, r, copy, place);
            if (part.n == 0 || part.begin < at)
                continue;
            LATHE_TRY(each(arg, lathe_layout_rank(l, r->island, copy, place), part));
            at = part.begin + part.n;
        }
    return LATHE_OK;
}

/* ---- rank 0 ---- */

typedef struct collecting {
    const lathe_serving *s;
    const request *r;
    char *buffer;
    lathe_piece_fn fn;
    void *fn_arg;
    int64_t by; /* first byte of the part in the tensor */
} collecting;

/* Passes pieces on with the place that they have in the whole tensor. A lathe_piece_fn. */
static lathe_status shift(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    const collecting *c = arg;
    return c->fn(c->fn_arg, offset + c->by, data, bytes);
}

static lathe_status collect_part(void *arg, int32_t rank, lathe_extent part)
{
    collecting *c = arg;
    c->by = part.begin;
    if (rank == 0)
        return c->r->family >= LATHE_FAMILY_ISLANDS
                   ? shift(c, 0, own_of(c->s, c->r), part.n)
                   : lathe_store_read(c->s->store, own_of(c->s, c->r), part.n, shift, c);
    for (int64_t at = 0; at < part.n; at += MAX_PIECE) {
        const int64_t n = part.n - at < MAX_PIECE ? part.n - at : MAX_PIECE;
        LATHE_TRY(pass(c->s, LATHE_RECEIVE, rank, c->buffer, n));
        LATHE_TRY(shift(c, at, c->buffer, n));
    }
    return LATHE_OK;
}

lathe_status lathe_serving_collect(const lathe_serving *s, int32_t island, int32_t family,
                                   int32_t row, int32_t slot, lathe_piece_fn fn, void *fn_arg)
{
    const request r = {COLLECT, family, row, slot, island};
    collecting c = {s, &r, malloc((size_t)MAX_PIECE), fn, fn_arg, 0};
    lathe_status status =
        c.buffer ? LATHE_OK
                 : lathe_error(LATHE_E_NOMEM, "no memory to receive the state of other ranks");
    if (status == LATHE_OK && s->layout->all)
        status = ask(s, &r);
    if (status == LATHE_OK)
        status = each_part(s, &r, collect_part, &c);
    free(c.buffer);
    return status;
}

lathe_status lathe_serving_describe(const lathe_serving *s, int32_t island, lathe_buffer *out)
{
    const request r = {.what = DESCRIBE, .island = island};
    const int32_t rank = lathe_layout_rank(s->layout, island, 0, 0);
    int64_t bytes = 0;
    if (s->layout->all)
        LATHE_TRY(ask(s, &r));
    if (rank == 0)
        return s->islands->describe(s->islands->arg, out);
    LATHE_TRY(pass(s, LATHE_RECEIVE, rank, &bytes, (int64_t)sizeof bytes));
    char *text = malloc((size_t)bytes + 1);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the counters of an island");
    const lathe_status status = pass(s, LATHE_RECEIVE, rank, text, bytes);
    if (status == LATHE_OK)
        lathe_buffer_append(out, text, bytes);
    free(text);
    return status == LATHE_OK ? out->status : status;
}

lathe_status lathe_serving_fill_averages(const lathe_serving *s)
{
    return ask(s, &(request){.what = FILL_AVERAGES});
}

lathe_status lathe_serving_gather(const lathe_serving *s, int32_t gather)
{
    return ask(s, &(request){.what = GATHER, .family = gather});
}

lathe_status lathe_serving_release(const lathe_serving *s)
{
    return s->layout->all ? ask(s, &(request){.what = RELEASE}) : LATHE_OK;
}

/* ---- the others ---- */

typedef struct sending {
    const lathe_serving *s;
    const request *r;
} sending;

/* Sends a piece to rank 0. A lathe_piece_fn. */
static lathe_status send_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    const sending *x = arg;
    (void)offset;
    for (int64_t at = 0; at < bytes; at += MAX_PIECE) {
        const int64_t n = bytes - at < MAX_PIECE ? bytes - at : MAX_PIECE;
        LATHE_TRY(pass(x->s, LATHE_SEND, 0, (char *)(uintptr_t)data + at, n));
    }
    return LATHE_OK;
}

static lathe_status send_part(void *arg, int32_t rank, lathe_extent part)
{
    const sending *x = arg;
    if (rank != x->s->layout->all->info.rank)
        return LATHE_OK;
    return x->r->family >= LATHE_FAMILY_ISLANDS
               ? send_piece(arg, 0, own_of(x->s, x->r), part.n)
               : lathe_store_read(x->s->store, own_of(x->s, x->r), part.n, send_piece, arg);
}

static lathe_status send_text(const lathe_serving *s)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_status status = s->islands->describe(s->islands->arg, &text);
    int64_t bytes = text.len;
    if (status == LATHE_OK)
        status = pass(s, LATHE_SEND, 0, &bytes, (int64_t)sizeof bytes);
    if (status == LATHE_OK)
        status = pass(s, LATHE_SEND, 0, text.data, bytes);
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status answer(const lathe_serving *s, const request *r,
                           lathe_status (*fill)(void *arg), void *arg)
{
    const lathe_rank_layout *l = s->layout;
    sending x = {s, r};
    switch (r->what) {
    case FILL_AVERAGES:
        return fill(arg);
    case GATHER: /* rank 0 gathers with those that divide with it */
        return l->island_no == 0 && l->copy_no == 0 && s->gather
                   ? s->gather(s->gather_arg, r->family)
                   : LATHE_OK;
    case DESCRIBE:
        return lathe_layout_rank(l, r->island, 0, 0) == l->all->info.rank ? send_text(s) : LATHE_OK;
    default: /* COLLECT */
        return r->island == l->island_no ? each_part(s, r, send_part, &x) : LATHE_OK;
    }
}

lathe_status lathe_serving_serve(const lathe_serving *s, lathe_status (*fill)(void *arg), void *arg)
{
    const double here = RELEASE, *all = NULL;
    for (;;) {
        LATHE_TRY(lathe_ranks_gather(s->layout->all, &here, 1, 1, &all));
        const request r = {(int32_t)all[0], (int32_t)all[1], (int32_t)all[2], (int32_t)all[3],
                           (int32_t)all[4]};
        if (r.what == RELEASE)
            return LATHE_OK;
        LATHE_TRY(answer(s, &r, fill, arg));
    }
}

/* Prepares exchanges as messages between pairs of ranks. */
#include <string.h>

#include "lathe/kit/collective_kit.h"
#include "shared/peer.h"

enum { MIB = 1 << 20, DIRECT_BYTES = 8 * MIB };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Extents that are as equal as possible: begin of extent q of n elements. */
static int64_t even_begin(int64_t n, int32_t q, int32_t n_ranks)
{
    return n / n_ranks * q + least(q, n % n_ranks);
}

/* Begin of extent q in bytes, for all ops with extents in the order of ranks.
 */
static int64_t begin_of(const lathe_exchange_problem *p, int32_t q, int32_t n_ranks)
{
    const int64_t width = lathe_dtype_bytes(p->dtype);
    if (p->op != LATHE_REDUCE_SCATTER && p->op != LATHE_ALL_GATHER)
        return even_begin(p->n, q, n_ranks) * width;
    return (p->counts != NULL ? lathe_exchange_total(p->counts, q) : p->n / n_ranks * q) * width;
}

static void reduce_phase(lathe_exchange *x, const lathe_exchange_problem *p, peer_phase *phase)
{
    const int32_t n_ranks = x->group->info.n_ranks, rank = x->group->info.rank;
    phase->reduces = phase->from_in = 1;
    phase->piece = lathe_exchange_piece(n_ranks);
    phase->own_at = begin_of(p, rank, n_ranks);
    phase->own_bytes = begin_of(p, rank + 1, n_ranks) - phase->own_at;
    phase->reduced_at = p->op == LATHE_ALL_REDUCE ? phase->own_at : 0;
    for (int32_t q = 0; q < n_ranks; q++) {
        const int64_t begin = begin_of(p, q, n_ranks);
        phase->legs[q] =
            (peer_leg){begin, begin_of(p, q + 1, n_ranks) - begin, 0, phase->own_bytes};
    }
}

/* Every rank sends its extent of the output to all except `none`, and receives
 * the others'. */
static void gather_phase(lathe_exchange *x, const lathe_exchange_problem *p, int32_t none,
                         peer_phase *phase)
{
    const int32_t n_ranks = x->group->info.n_ranks, rank = x->group->info.rank;
    const int64_t own_at = begin_of(p, rank, n_ranks);
    const int64_t own_bytes = begin_of(p, rank + 1, n_ranks) - own_at;
    for (int32_t q = 0; q < n_ranks; q++) {
        const int64_t begin = begin_of(p, q, n_ranks);
        phase->legs[q] = (peer_leg){own_at, q == none ? 0 : own_bytes, begin,
                                    rank == none ? 0 : begin_of(p, q + 1, n_ranks) - begin};
    }
}

static void scatter_phase(lathe_exchange *x, const lathe_exchange_problem *p, peer_phase *phase)
{
    const int32_t n_ranks = x->group->info.n_ranks, rank = x->group->info.rank;
    if (rank != p->peer) {
        const int64_t begin = begin_of(p, rank, n_ranks);
        phase->legs[p->peer].receive_at = begin;
        phase->legs[p->peer].receive_bytes = begin_of(p, rank + 1, n_ranks) - begin;
        return;
    }
    for (int32_t q = 0; q < n_ranks; q++) {
        phase->legs[q].send_at = begin_of(p, q, n_ranks);
        phase->legs[q].send_bytes = begin_of(p, q + 1, n_ranks) - phase->legs[q].send_at;
    }
}

static void all_to_all_phase(lathe_exchange *x, const lathe_exchange_problem *p, peer_phase *phase)
{
    const int64_t width = lathe_dtype_bytes(p->dtype);
    int64_t sent = 0, received = 0;
    phase->from_in = 1;
    for (int32_t q = 0; q < x->group->info.n_ranks; q++) {
        phase->legs[q] =
            (peer_leg){sent * width, p->counts[q] * width, received * width, p->from[q] * width};
        sent += p->counts[q];
        received += p->from[q];
    }
}

/* This rank's own part, which is not sent. */
static void plan_copy(lathe_exchange *x, const lathe_exchange_problem *p)
{
    const int32_t n_ranks = x->group->info.n_ranks, rank = x->group->info.rank;
    const int alone = n_ranks == 1;
    if ((alone && (p->op == LATHE_ALL_REDUCE || p->op == LATHE_REDUCE_SCATTER)) ||
        (p->op == LATHE_BROADCAST && p->peer == rank)) {
        x->copy_bytes = x->in_bytes;
    } else if (p->op == LATHE_ALL_GATHER) {
        x->copy_to = begin_of(p, rank, n_ranks);
        x->copy_bytes = x->in_bytes;
    } else if (p->op == LATHE_ALL_TO_ALL) {
        const int64_t width = lathe_dtype_bytes(p->dtype);
        x->copy_from = lathe_exchange_total(p->counts, rank) * width;
        x->copy_to = lathe_exchange_total(p->from, rank) * width;
        x->copy_bytes = p->counts[rank] * width;
    }
}

static void plan_phases(lathe_exchange *x, const lathe_exchange_problem *p)
{
    const int32_t n_ranks = x->group->info.n_ranks;
    const int64_t width = lathe_dtype_bytes(p->dtype);
    peer_phase *const first = &x->phases[0];
    x->n_phases = n_ranks == 1 ? 0 : 1;
    if (n_ranks == 1)
        return;
    switch (p->op) {
    case LATHE_ALL_REDUCE:
        reduce_phase(x, p, first);
        gather_phase(x, p, -1, &x->phases[x->n_phases++]);
        break;
    case LATHE_REDUCE_SCATTER:
        reduce_phase(x, p, first);
        break;
    case LATHE_ALL_GATHER:
        gather_phase(x, p, -1, first);
        break;
    case LATHE_BROADCAST:
        scatter_phase(x, p, first);
        gather_phase(x, p, p->peer, &x->phases[x->n_phases++]);
        break;
    case LATHE_ALL_TO_ALL:
        all_to_all_phase(x, p, first);
        break;
    case LATHE_SEND:
        first->from_in = 1;
        first->legs[p->peer].send_bytes = p->n * width;
        break;
    case LATHE_RECEIVE:
        first->legs[p->peer].receive_bytes = p->n * width;
        break;
    default: /* BARRIER */
        first->from_in = 1;
        for (int32_t q = 0; q < n_ranks; q++)
            first->legs[q] = (peer_leg){0, 1, q, 1};
        break;
    }
}

/* Counts rounds and bytes, and takes out what a rank would send to itself. */
static void finish_phases(lathe_exchange *x)
{
    const lathe_group_info *g = &x->group->info;
    int64_t max = DIRECT_BYTES;
    if (x->group->world->transport != NULL)
        max = least(max, x->group->world->transport->most_bytes);
    for (int32_t i = 0; i < x->n_phases; i++) {
        peer_phase *const phase = &x->phases[i];
        if (!phase->reduces)
            phase->piece = max;
        phase->legs[g->rank] = (peer_leg){0, 0, 0, 0};
        for (int32_t q = 0; q < g->n_ranks; q++) {
            const peer_leg *const leg = &phase->legs[q];
            const int64_t longest =
                leg->send_bytes > leg->receive_bytes ? leg->send_bytes : leg->receive_bytes;
            const int64_t rounds = (longest + phase->piece - 1) / phase->piece;
            phase->n_rounds = rounds > phase->n_rounds ? rounds : phase->n_rounds;
            x->info.sent_bytes += leg->send_bytes;
            x->info.received_bytes += leg->receive_bytes;
        }
        if (phase->reduces) {
            x->slot_bytes = (least(phase->own_bytes, phase->piece) + 63) / 64 * 64;
            x->info.scratch_bytes = lathe_exchange_scratch(phase->own_bytes, g->n_ranks);
        }
    }
}

/* Memory for a group of n_ranks; NULL members on failure. */
static lathe_status allocate(lathe_exchange *x, int32_t n_ranks)
{
    const lathe_host *const host = x->group->world->host;
    const peer_transport *const transport = x->group->world->transport;
    const int64_t request = transport != NULL ? transport->request_bytes : 1;
    x->phases[0].legs = host->alloc(2 * n_ranks * (int64_t)sizeof(peer_leg));
    x->requests = host->alloc(4 * n_ranks * request);
    x->sources = host->alloc(n_ranks * (int64_t)sizeof *x->sources);
    x->marks = host->alloc(1 + n_ranks);
    if (x->phases[0].legs == NULL || x->requests == NULL || x->sources == NULL || x->marks == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an exchange of %d ranks", n_ranks);
    x->phases[1].legs = x->phases[0].legs + n_ranks;
    return LATHE_OK;
}

lathe_status lathe__peer_build(lathe_group *group, const lathe_exchange_problem *p,
                               lathe_exchange **out)
{
    const lathe_host *const host = group->world->host;
    const lathe_group_info *const g = &group->info;
    const int64_t width = lathe_dtype_bytes(p->dtype);
    LATHE_TRY(lathe_exchange_check(host, p, g->rank, g->n_ranks));
    lathe_exchange *const x = host->alloc((int64_t)sizeof *x);
    if (x == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an exchange");
    x->group = group;
    x->problem = *p;
    x->problem.counts = x->problem.from = NULL;
    x->problem.label = NULL;
    if (p->label != NULL)
        strncpy(x->label, p->label, PEER_LABEL - 1);
    x->info.size = (uint32_t)sizeof x->info;
    x->lane = p->op == LATHE_SEND || p->op == LATHE_RECEIVE;
    x->tag = x->lane ? p->tag : group->next_tag;
    x->in_bytes = lathe_exchange_in(p, g->rank, g->n_ranks) * width;
    x->out_bytes = lathe_exchange_out(p, g->rank, g->n_ranks) * width;
    const lathe_status status = allocate(x, g->n_ranks);
    if (status != LATHE_OK) {
        lathe__peer_exchange_destroy(x);
        return status;
    }
    if (!x->lane && group->world->transport != NULL)
        group->next_tag = group->next_tag == group->world->transport->max_tag ? 0 : x->tag + 1;
    plan_copy(x, p);
    plan_phases(x, p);
    finish_phases(x);
    *out = x;
    return LATHE_OK;
}

void lathe__peer_exchange_destroy(lathe_exchange *x)
{
    if (x == NULL)
        return;
    const lathe_host *const host = x->group->world->host;
    host->free(x->phases[0].legs);
    host->free(x->requests);
    host->free((void *)x->sources);
    host->free(x->marks);
    host->free(x);
}

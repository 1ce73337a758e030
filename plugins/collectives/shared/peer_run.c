/* Runs exchanges as messages between pairs of ranks. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "lathe/kit/sized_copy.h"
#include "shared/peer.h"
#include "shared/reduce.h"

static const double watch_seconds = 0.05;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

lathe_status lathe__peer_info(const lathe_group *group, lathe_group_info *out)
{
    lathe_copy_sized(out, &group->info, sizeof group->info);
    return LATHE_OK;
}

lathe_status lathe__peer_traffic(const lathe_group *group, int64_t *out_sent, int64_t *out_received)
{
    *out_sent = group->world->sent;
    *out_received = group->world->received;
    return LATHE_OK;
}

static unsigned char *request_of(const lathe_exchange *x, int64_t round, int32_t i)
{
    const int64_t bytes = x->group->world->transport->request_bytes;
    return x->requests + ((round & 1) * 2 * x->group->info.n_ranks + i) * bytes;
}

/* Memory for the piece of rank q in a round of a reduction. */
static unsigned char *slot_of(const lathe_exchange *x, int64_t round, int32_t q)
{
    const int32_t others = x->group->info.n_ranks - 1, i = q - (q > x->group->info.rank);
    return (unsigned char *)x->args.scratch + ((round & 1) * others + i) * x->slot_bytes;
}

/* Bytes of a round of a leg of `bytes`. */
static int64_t piece_of(const peer_phase *phase, int64_t round, int64_t bytes)
{
    const int64_t left = bytes - round * phase->piece;
    return left < phase->piece ? left : phase->piece;
}

/* Posts the messages of a round. Ranks begin with the next higher one, so that
 * not all of them send to the same rank first. */
static lathe_status post(lathe_exchange *x, int64_t round)
{
    const peer_phase *const phase = &x->phases[x->phase];
    const lathe_group_info *const g = &x->group->info;
    peer_world *const world = x->group->world;
    const unsigned char *const base = phase->from_in ? x->args.in : x->args.out;
    int32_t n = 0;
    for (int32_t i = 1; i < g->n_ranks; i++) {
        const int32_t q = (g->rank + g->n_ranks - i) % g->n_ranks;
        const peer_leg *const leg = &phase->legs[q];
        const int64_t bytes = piece_of(phase, round, leg->receive_bytes);
        if (bytes <= 0)
            continue;
        void *const to =
            phase->reduces ? slot_of(x, round, q)
                           : (unsigned char *)x->args.out + leg->receive_at + round * phase->piece;
        LATHE_TRY(world->transport->receive(x->group->link, q, x->lane, x->tag, to, bytes,
                                            request_of(x, round, n++)));
        world->received += bytes;
    }
    for (int32_t i = 1; i < g->n_ranks; i++) {
        const int32_t q = (g->rank + i) % g->n_ranks;
        const peer_leg *const leg = &phase->legs[q];
        const int64_t bytes = piece_of(phase, round, leg->send_bytes);
        if (bytes <= 0)
            continue;
        LATHE_TRY(world->transport->send(x->group->link, q, x->lane, x->tag,
                                         base + leg->send_at + round * phase->piece, bytes,
                                         request_of(x, round, n++)));
        world->sent += bytes;
    }
    x->n_requests[round & 1] = n;
    return LATHE_OK;
}

/* Adds the pieces of a round. */
static void reduce_round(lathe_exchange *x, int64_t round)
{
    const peer_phase *const phase = &x->phases[x->phase];
    const lathe_group_info *const g = &x->group->info;
    const int64_t bytes = piece_of(phase, round, phase->own_bytes), at = round * phase->piece;
    const int64_t size = lathe_dtype_bytes(x->problem.dtype);
    if (bytes <= 0 || size <= 0)
        return;
    for (int32_t q = 0; q < g->n_ranks; q++)
        x->sources[q] = q == g->rank ? (const unsigned char *)x->args.in + phase->own_at + at
                                     : slot_of(x, round, q);
    lathe__reduce(x->group->world->host, x->problem.dtype, x->problem.reduce, x->sources,
                  g->n_ranks, bytes / size, (unsigned char *)x->args.out + phase->reduced_at + at);
}

static void finish(lathe_exchange *x)
{
    lathe_exchange **at = &x->group->world->running;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    x->is_running = 0;
}

/* Goes on as far as messages have arrived. The next round is posted before the
 * last one is added, so that it travels in the meantime. */
static lathe_status advance(lathe_exchange *x)
{
    const peer_transport *const transport = x->group->world->transport;
    while (x->phase < x->n_phases) {
        const peer_phase *const phase = &x->phases[x->phase];
        if (x->round < 0 && phase->n_rounds > 0)
            LATHE_TRY(post(x, 0));
        if (x->round < 0)
            x->round = 0;
        while (x->round < phase->n_rounds) {
            const int64_t round = x->round;
            int32_t done = 1;
            if (x->n_requests[round & 1] > 0)
                LATHE_TRY(transport->test(x->group->link, request_of(x, round, 0),
                                          x->n_requests[round & 1], &done));
            if (!done)
                return LATHE_OK;
            if (round + 1 < phase->n_rounds)
                LATHE_TRY(post(x, round + 1));
            if (phase->reduces)
                reduce_round(x, round);
            x->round = round + 1;
        }
        x->phase++;
        x->round = -1;
    }
    finish(x);
    return LATHE_OK;
}

static lathe_status advance_all(peer_world *world)
{
    lathe_exchange *next;
    if (world->failed != LATHE_OK)
        return lathe_fail(world->host, world->failed,
                          "an exchange has failed before; this rank must end");
    for (lathe_exchange *x = world->running; x != NULL; x = next) {
        next = x->next;
        const lathe_status status = advance(x);
        if (status != LATHE_OK)
            return world->failed = status;
    }
    return LATHE_OK;
}

lathe_status lathe__peer_start(lathe_exchange *x, const lathe_exchange_args *args)
{
    lathe_group *const group = x->group;
    const lathe_host *const host = group->world->host;
    if (x->is_running)
        return lathe_fail(host, LATHE_E_STATE,
                          "an exchange is started before its last run is done");
    x->args = *args;
    if (x->problem.op == LATHE_BARRIER) {
        x->args.in = x->marks;
        x->args.out = x->marks + 1;
    }
    if ((x->args.in == NULL && x->in_bytes > 0) || (x->args.out == NULL && x->out_bytes > 0) ||
        (args->scratch == NULL && x->info.scratch_bytes > 0))
        return lathe_fail(host, LATHE_E_ARG, "an exchange is started without its memory");
    if (x->copy_bytes > 0 && x->args.in != NULL && x->args.out != NULL) {
        const unsigned char *const from = (const unsigned char *)x->args.in + x->copy_from;
        unsigned char *const to = (unsigned char *)x->args.out + x->copy_to;
        if (from != to)
            memcpy(to, from, (size_t)x->copy_bytes);
    }
    x->phase = 0;
    x->round = -1;
    x->is_running = 1;
    x->next = NULL;
    lathe_exchange **at = &group->world->running; /* the oldest first */
    while (*at != NULL)
        at = &(*at)->next;
    *at = x;
    if (!x->lane) {
        peer_board *const board =
            group->boards != NULL ? group->boards[group->info.rank] : &group->own;
        x->number = atomic_fetch_add(&board->n_started, 1) + 1;
    }
    const lathe_status status = advance(x);
    if (status != LATHE_OK)
        group->world->failed = status;
    return status;
}

lathe_status lathe__peer_test(lathe_exchange *x, int32_t *out_done)
{
    if (x->is_running || x->group->world->running != NULL)
        LATHE_TRY(advance_all(x->group->world));
    *out_done = !x->is_running;
    return LATHE_OK;
}

/* Lets other processes run. idle: seconds since data last moved. At first only
 * if one waits for this core, because MPI moves a message in parts, each when
 * both ranks call it; then for longer and longer. */
static void rest(double idle)
{
    if (idle < 0.01) {
        (void)sched_yield();
        return;
    }
    const struct timespec pause = {0, idle < 0.1 ? 50000 : 500000};
    (void)nanosleep(&pause, NULL);
}

#define SUSPENDED 1.0 /* seconds without a watch, after which this process was stopped itself */

lathe_status lathe__peer_wait(lathe_exchange *x, double deadline_seconds)
{
    peer_world *const world = x->group->world;
    const double begin = now();
    double watched = begin, moved_at = begin;
    double ran_at = begin; /* when no other rank of this host was stopped */
    int64_t moved = -1;
    while (x->is_running) {
        LATHE_TRY(advance_all(world));
        if (!x->is_running)
            break;
        const double t = now();
        if (world->sent + world->received != moved)
            moved_at = t;
        moved = world->sent + world->received;
        if (t - watched >= watch_seconds) {
            lathe_status status = lathe__peer_watch(x);
            /* t - watched is long if this process was stopped too */
            if (!lathe__peer_stopped(x) || t - watched > SUSPENDED)
                ran_at = t;
            watched = t;
            if (status == LATHE_OK && world->stops != NULL && world->stops(world->stops_arg)) {
                char name[256];
                (void)lathe__peer_name(x, name, sizeof name);
                status = lathe_fail(world->host, LATHE_E_INTERRUPTED, "%s: interrupted", name);
            }
            if (status == LATHE_OK &&
                (t - begin >= deadline_seconds || t - ran_at >= world->deadline_seconds))
                status = lathe__peer_late(x, t - begin);
            if (status != LATHE_OK)
                return world->failed = status;
        }
        rest(t - moved_at);
    }
    return LATHE_OK;
}

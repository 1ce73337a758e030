/* Exchanges the reasons of a failure between ranks, on a lane (a communicator) of its own, so that
 * exchanges under way do not interfere. */
#include <string.h>
#include <time.h>

#include "shared/peer.h"

enum { LANE = 2 };

/* A call of tell(). The buffers are never freed, because requests may stay under way. */
typedef struct telling {
    lathe_group *group;
    unsigned char *requests; /* [n_ranks][2] [q][0]: receives from rank q; [q][1]: sends to it */
    unsigned char *texts;    /* [1 + n_ranks][LATHE_TOLD_BYTES]: own, then those received */
    unsigned char *pending;  /* [n_ranks][2] 1: the request is pending */
    unsigned char *begun;    /* [n_ranks] 1: rank q is asked */
    int32_t tag;
} telling;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned char *text_of(const telling *x, int32_t q)
{
    return x->texts + (1 + q) * (int64_t)LATHE_TOLD_BYTES;
}

static unsigned char *request_of(const telling *x, int32_t q, int32_t sends)
{
    return x->requests + (2 * q + sends) * x->group->world->transport->request_bytes;
}

static lathe_status prepare(telling *x, const void *own)
{
    peer_world *const world = x->group->world;
    const int64_t n = x->group->info.n_ranks, texts = (n + 1) * LATHE_TOLD_BYTES;
    const int64_t requests = 2 * n * world->transport->request_bytes, bytes = texts + requests;
    x->tag = world->n_tells++;
    x->texts = world->host->alloc(bytes + 3 * n);
    if (x->texts == NULL)
        return lathe_fail(world->host, LATHE_E_NOMEM, "no memory to tell %lld ranks", (long long)n);
    x->requests = x->texts + texts;
    x->pending = x->requests + requests;
    x->begun = x->pending + 2 * n;
    memset(x->texts, 0, (size_t)texts);
    memcpy(x->texts, own, LATHE_TOLD_BYTES);
    memset(x->pending, 0, 3 * (size_t)n);
    return LATHE_OK;
}

/* Begins to receive from rank q and to send to it. */
static lathe_status begin(const telling *x, int32_t q)
{
    const peer_transport *const t = x->group->world->transport;
    LATHE_TRY(t->receive(x->group->link, q, LANE, x->tag, text_of(x, q), LATHE_TOLD_BYTES,
                         request_of(x, q, 0)));
    x->pending[2 * q] = 1;
    LATHE_TRY(
        t->send(x->group->link, q, LANE, x->tag, x->texts, LATHE_TOLD_BYTES, request_of(x, q, 1)));
    x->pending[2 * q + 1] = 1;
    x->begun[q] = 1;
    return LATHE_OK;
}

/* Makes progress on the requests of rank q. Returns whether some are pending. */
static int progress(const telling *x, int32_t q)
{
    const peer_transport *const t = x->group->world->transport;
    for (int32_t sends = 0; sends < 2; sends++) {
        int32_t done = 0;
        if (x->pending[2 * q + sends] &&
            t->test(x->group->link, request_of(x, q, sends), 1, &done) == LATHE_OK && done)
            x->pending[2 * q + sends] = 0;
    }
    return x->pending[2 * q] || x->pending[2 * q + 1];
}

static void wait_for_all(const telling *x, double seconds)
{
    const struct timespec pause = {0, 500000};
    const double begun = now();
    for (;;) {
        const int is_over = now() - begun >= seconds;
        int32_t n_pending = 0;
        for (int32_t q = 0; q < x->group->info.n_ranks; q++) {
            const int32_t has_ended = lathe__peer_has_ended(x->group, q); /* before the last look */
            n_pending += x->begun[q] && progress(x, q) && !has_ended;
        }
        if (n_pending == 0 || is_over)
            return;
        (void)nanosleep(&pause, NULL);
    }
}

lathe_status lathe__peer_tell(lathe_group *group, const void *own, void *all, unsigned char *told,
                              double seconds)
{
    const int32_t n = group->info.n_ranks, rank = group->info.rank;
    telling x = {.group = group};
    lathe_status status = LATHE_OK;
    if (group->world->failed == LATHE_OK)
        group->world->failed = LATHE_E_RANK;
    memset(all, 0, (size_t)n * LATHE_TOLD_BYTES);
    memcpy((unsigned char *)all + rank * (int64_t)LATHE_TOLD_BYTES, own, LATHE_TOLD_BYTES);
    if (n > 1)
        status = prepare(&x, own);
    for (int32_t q = 0; q < n && x.begun != NULL; q++) {
        const lathe_status begun = q != rank && told[q] ? begin(&x, q) : LATHE_OK;
        status = status != LATHE_OK ? status : begun; /* the others are asked all the same */
    }
    if (x.begun != NULL)
        wait_for_all(&x, seconds);
    for (int32_t q = 0; q < n; q++) {
        const int has_told = x.begun != NULL && x.begun[q] && !x.pending[2 * q];
        told[q] = q == rank || has_told;
        if (has_told)
            memcpy((unsigned char *)all + q * (int64_t)LATHE_TOLD_BYTES, text_of(&x, q),
                   LATHE_TOLD_BYTES);
    }
    return status;
}

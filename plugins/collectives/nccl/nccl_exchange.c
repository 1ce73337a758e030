/* Exchanges: what each is in NCCL's calls, and when it is done.
 *
 *   caller's stream   | work | event
 *   own stream                     ^ waits | NCCL's calls | copy of a 1 to the flag in pinned
 * memory host                                                         wait(): polls the flag
 */
#include <stdio.h>
#include <string.h>

#include "lathe/kit/collective_kit.h"
#include "lathe/kit/sized_copy.h"
#include "nccl_internal.h"

struct lathe_exchange {
    lathe_group *group;
    lathe_exchange_problem problem;
    int64_t *counts, *from; /* [n_ranks] of the problem; NULL: equal extents, or none */
    lathe_exchange_info info;
    int32_t is_running;
    int32_t is_even;  /* 1: all extents are equal */
    int32_t is_empty; /* 1: no data of this rank: it is done when it starts */
    int32_t reserved;
    char name[192];
    nccl_page *page;
    _Atomic int64_t *flag; /* pinned */
};

/* ---- preparing ---- */

static lathe_status take_flag(lathe_exchange *x)
{
    nccl_world *const w = x->group->world;
    nccl_page *page = w->pages;
    void *flags = NULL;
    while (page != NULL && memchr(page->used, 0, sizeof page->used) == NULL)
        page = page->next;
    if (page == NULL) {
        page = w->host->alloc((int64_t)sizeof *page);
        if (page == NULL)
            return lathe_fail(w->host, LATHE_E_NOMEM, "no memory for an exchange");
        const lathe_status status = w->device->alloc(
            w->device_self, (int64_t)NCCL_FLAGS * NCCL_FLAG_BYTES, LATHE_MEM_HOST_PINNED, &flags);
        if (status != LATHE_OK) {
            w->host->free(page);
            return status;
        }
        page->flags = flags;
        page->next = w->pages;
        w->pages = page;
    }
    const unsigned char *const free_one = memchr(page->used, 0, sizeof page->used);
    const int64_t i = free_one - page->used;
    page->used[i] = 1;
    x->page = page;
    x->flag = (_Atomic int64_t *)(void *)(page->flags + i * NCCL_FLAG_BYTES);
    return LATHE_OK;
}

static int32_t is_float(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_F64 || dtype == LATHE_BF16 || dtype == LATHE_F16;
}

/* Maxima of NCCL drop NaN. Messages of pairs have no tags there, and would have to be started in
 * one order on both sides. */
static lathe_status check(const lathe_group *group, const lathe_exchange_problem *p)
{
    const lathe_host *const host = group->world->host;
    LATHE_TRY(lathe_exchange_check(host, p, group->info.rank, group->info.n_ranks));
    if (p->reduce != LATHE_REDUCE_SUM && is_float(p->dtype))
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "collective/nccl has no maxima and minima of %s, because NCCL's drop NaN",
                          lathe_dtype_name(p->dtype));
    if (p->op == LATHE_SEND || p->op == LATHE_RECEIVE)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "collective/nccl has no messages of two ranks, because NCCL's have no "
                          "tags");
    return LATHE_OK;
}

/* The base compares what the ranks ask for, with the messages that it has for differences. */
static lathe_status agree(const lathe_group *group, const lathe_exchange_problem *p)
{
    const nccl_world *const w = group->world;
    lathe_exchange *same = NULL;
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    LATHE_TRY(w->base->prepare(group->base, p, &same, &info));
    w->base->exchange_destroy(same);
    return LATHE_OK;
}

/* Bytes of rings: each rank passes on all but one of the R parts, twice for ALL_REDUCE. */
static void count_bytes(lathe_exchange *x)
{
    const lathe_exchange_problem *const p = &x->problem;
    const lathe_group_info *const g = &x->group->info;
    const int64_t width = p->op == LATHE_BARRIER ? 0 : lathe_dtype_bytes(p->dtype);
    int64_t sent = p->n * width / g->n_ranks * (g->n_ranks - 1), received = sent;
    if (p->op == LATHE_ALL_REDUCE)
        sent = received = 2 * sent;
    if (p->op == LATHE_ALL_TO_ALL) {
        sent = (lathe_exchange_total(x->counts, g->n_ranks) - x->counts[g->rank]) * width;
        received = (lathe_exchange_total(x->from, g->n_ranks) - x->from[g->rank]) * width;
    }
    x->info.sent_bytes = sent;
    x->info.received_bytes = received;
}

static void name(lathe_exchange *x, const char *label)
{
    const lathe_exchange_problem *const p = &x->problem;
    const double bytes =
        p->op == LATHE_BARRIER ? 0.0 : (double)(p->n * lathe_dtype_bytes(p->dtype));
    const double unit = bytes >= 1e9 ? 1e9 : bytes >= 1e6 ? 1e6 : bytes >= 1e3 ? 1e3 : 1.0;
    const char *const word = unit == 1e9 ? "GB" : unit == 1e6 ? "MB" : unit == 1e3 ? "kB" : "bytes";
    (void)snprintf(x->name, sizeof x->name, "%s of %.*f %s on the GPU%s%.63s%s",
                   lathe_exchange_name(p->op), unit == 1.0 ? 0 : 1, bytes / unit, word,
                   label != NULL ? " (" : "", label != NULL ? label : "", label != NULL ? ")" : "");
}

static void note_extents(lathe_exchange *x, const lathe_exchange_problem *p)
{
    const int32_t n_ranks = x->group->info.n_ranks;
    x->is_even = 1;
    if (p->counts != NULL)
        memcpy(x->counts, p->counts, (size_t)n_ranks * sizeof *x->counts);
    if (p->from != NULL)
        memcpy(x->from, p->from, (size_t)n_ranks * sizeof *x->from);
    for (int32_t q = 1; p->counts != NULL && q < n_ranks; q++)
        x->is_even &= p->counts[q] == p->counts[0];
    x->is_empty = p->n == 0 && p->op != LATHE_BARRIER;
    if (p->op == LATHE_ALL_TO_ALL)
        x->is_empty = lathe_exchange_total(p->counts, n_ranks) == 0 &&
                      lathe_exchange_total(p->from, n_ranks) == 0;
    x->problem.counts = p->counts != NULL ? x->counts : NULL;
    x->problem.from = p->from != NULL ? x->from : NULL;
    x->problem.label = NULL;
}

lathe_status nccl_prepare(lathe_group *group, const lathe_exchange_problem *problem,
                          lathe_exchange **out, lathe_exchange_info *out_info)
{
    const nccl_world *const w = group->world;
    const int32_t n_ranks = group->info.n_ranks;
    *out = NULL;
    LATHE_TRY(nccl_check_world(w));
    LATHE_TRY(check(group, problem));
    LATHE_TRY(agree(group, problem));
    lathe_exchange *const x = w->host->alloc((int64_t)sizeof *x);
    int64_t *const counts = w->host->alloc(2 * n_ranks * (int64_t)sizeof *counts);
    if (x == NULL || counts == NULL) {
        w->host->free(counts);
        w->host->free(x);
        return lathe_fail(w->host, LATHE_E_NOMEM, "no memory for an exchange");
    }
    x->group = group;
    x->problem = *problem;
    x->info.size = (uint32_t)sizeof x->info;
    x->counts = counts;
    x->from = counts + n_ranks;
    note_extents(x, problem);
    count_bytes(x);
    name(x, problem->label);
    const lathe_status status = take_flag(x);
    if (status != LATHE_OK) {
        w->host->free(counts);
        w->host->free(x);
        return status;
    }
    lathe_copy_sized(out_info, &x->info, sizeof x->info);
    *out = x;
    return LATHE_OK;
}

void nccl_exchange_destroy(lathe_exchange *x)
{
    if (x == NULL)
        return;
    const lathe_host *const host = x->group->world->host;
    x->page->used[((char *)(uintptr_t)x->flag - x->page->flags) / NCCL_FLAG_BYTES] = 0;
    host->free(x->counts);
    host->free(x);
}

/* ---- NCCL's calls ---- */

static ncclDataType_t type_of(int32_t dtype)
{
    switch (dtype) {
    case LATHE_F32:
        return ncclFloat32;
    case LATHE_F64:
        return ncclFloat64;
    case LATHE_BF16:
        return ncclBfloat16;
    case LATHE_F16:
        return ncclFloat16;
    case LATHE_I32:
        return ncclInt32;
    case LATHE_I64:
        return ncclInt64;
    default:
        return ncclUint8;
    }
}

static ncclRedOp_t operation_of(int32_t reduce)
{
    return reduce == LATHE_REDUCE_MAX ? ncclMax : reduce == LATHE_REDUCE_MIN ? ncclMin : ncclSum;
}

/* Extents of different lengths: one reduction, or broadcast, for each. */
static ncclResult_t by_extent(const lathe_exchange *x, const char *in, char *out)
{
    const nccl_library *const nccl = x->group->world->nccl;
    const lathe_exchange_problem *const p = &x->problem;
    const int32_t n_ranks = x->group->info.n_ranks, rank = x->group->info.rank;
    const int64_t width = lathe_dtype_bytes(p->dtype);
    void *const stream = x->group->world->stream;
    ncclResult_t code = nccl->ncclGroupStart();
    for (int32_t q = 0; q < n_ranks && code == ncclSuccess; q++) {
        const size_t n = (size_t)p->counts[q];
        const int64_t at = lathe_exchange_total(p->counts, q) * width;
        if (n == 0)
            continue;
        if (p->op == LATHE_REDUCE_SCATTER)
            code = nccl->ncclReduce(in + at, q == rank ? out : NULL, n, type_of(p->dtype),
                                    operation_of(p->reduce), q, x->group->comm, stream);
        else
            code = nccl->ncclBroadcast(q == rank ? in : out + at, out + at, n, type_of(p->dtype), q,
                                       x->group->comm, stream);
        code = code == ncclInProgress ? ncclSuccess : code; /* of a group: told at its end */
    }
    const ncclResult_t end = nccl->ncclGroupEnd();
    return code == ncclSuccess ? end : code;
}

static ncclResult_t all_to_all(const lathe_exchange *x, const char *in, char *out)
{
    const nccl_library *const nccl = x->group->world->nccl;
    const lathe_exchange_problem *const p = &x->problem;
    const int64_t width = lathe_dtype_bytes(p->dtype);
    void *const stream = x->group->world->stream;
    int64_t sent = 0, received = 0;
    ncclResult_t code = nccl->ncclGroupStart();
    for (int32_t q = 0; q < x->group->info.n_ranks && code == ncclSuccess; q++) {
        if (p->counts[q] > 0)
            code = nccl->ncclSend(in + sent * width, (size_t)p->counts[q], type_of(p->dtype), q,
                                  x->group->comm, stream);
        code = code == ncclInProgress ? ncclSuccess : code;
        if (p->from[q] > 0 && code == ncclSuccess)
            code = nccl->ncclRecv(out + received * width, (size_t)p->from[q], type_of(p->dtype), q,
                                  x->group->comm, stream);
        code = code == ncclInProgress ? ncclSuccess : code;
        sent += p->counts[q];
        received += p->from[q];
    }
    const ncclResult_t end = nccl->ncclGroupEnd();
    return code == ncclSuccess ? end : code;
}

static ncclResult_t call(const lathe_exchange *x, const lathe_exchange_args *args)
{
    const nccl_world *const w = x->group->world;
    const nccl_library *const nccl = w->nccl;
    const lathe_exchange_problem *const p = &x->problem;
    const size_t n = (size_t)p->n, n_each = (size_t)(p->n / x->group->info.n_ranks);
    const ncclDataType_t type = type_of(p->dtype);
    const ncclComm_t comm = x->group->comm;
    char *const barrier = w->words + NCCL_FLAG_BYTES;
    switch (p->op) {
    case LATHE_ALL_REDUCE:
        return nccl->ncclAllReduce(args->in, args->out, n, type, operation_of(p->reduce), comm,
                                   w->stream);
    case LATHE_REDUCE_SCATTER:
        return x->is_even ? nccl->ncclReduceScatter(args->in, args->out, n_each, type,
                                                    operation_of(p->reduce), comm, w->stream)
                          : by_extent(x, args->in, args->out);
    case LATHE_ALL_GATHER:
        return x->is_even ? nccl->ncclAllGather(args->in, args->out, n_each, type, comm, w->stream)
                          : by_extent(x, args->in, args->out);
    case LATHE_BROADCAST:
        return nccl->ncclBroadcast(args->in != NULL ? args->in : args->out, args->out, n, type,
                                   p->peer, comm, w->stream);
    case LATHE_ALL_TO_ALL:
        return all_to_all(x, args->in, args->out);
    default: /* BARRIER */
        return nccl->ncclAllReduce(barrier, barrier, 1, ncclInt32, ncclSum, comm, w->stream);
    }
}

/* ---- running ---- */

static lathe_status queue(lathe_exchange *x, const lathe_exchange_args *args)
{
    nccl_world *const w = x->group->world;
    LATHE_TRY(w->device->event_record(w->device_self, args->stream, &w->event));
    LATHE_TRY(w->device->event_wait(w->device_self, w->stream, w->event));
    LATHE_TRY(nccl_settle(x->group, x->name, call(x, args)));
    void *const flag = (void *)(uintptr_t)x->flag;
    return w->device->copy(w->device_self, w->stream, flag, w->words, (int64_t)sizeof *x->flag,
                           LATHE_COPY_TO_HOST);
}

lathe_status nccl_start(lathe_exchange *x, const lathe_exchange_args *args)
{
    nccl_world *const w = x->group->world;
    const lathe_group_info *const g = &x->group->info;
    const lathe_exchange_problem *const p = &x->problem;
    LATHE_TRY(nccl_check_world(w));
    if (x->is_running)
        return lathe_fail(w->host, LATHE_E_STATE,
                          "an exchange is started before its last run is done");
    if ((args->in == NULL && lathe_exchange_in(p, g->rank, g->n_ranks) > 0) ||
        (args->out == NULL && lathe_exchange_out(p, g->rank, g->n_ranks) > 0))
        return lathe_fail(w->host, LATHE_E_ARG, "an exchange is started without its memory");
    if (x->is_empty)
        return LATHE_OK;
    atomic_store_explicit(x->flag, 0, memory_order_release);
    x->is_running = 1;
    w->sent += x->info.sent_bytes;
    w->received += x->info.received_bytes;
    const lathe_status status = queue(x, args);
    return status == LATHE_OK ? LATHE_OK : nccl_world_failed(w, status);
}

/* Looks at the flag, then at NCCL, which tells of ranks that are gone. */
static lathe_status look(lathe_exchange *x)
{
    const lathe_group *const g = x->group;
    ncclResult_t state = ncclSuccess;
    if (!x->is_running)
        return LATHE_OK;
    if (atomic_load_explicit(x->flag, memory_order_acquire) != 0) {
        x->is_running = 0;
        return LATHE_OK;
    }
    const ncclResult_t asked = g->world->nccl->ncclCommGetAsyncError(g->comm, &state);
    if (asked != ncclSuccess)
        return nccl_failed(g, x->name, asked);
    return state == ncclSuccess || state == ncclInProgress ? LATHE_OK
                                                           : nccl_failed(g, x->name, state);
}

lathe_status nccl_test(lathe_exchange *x, int32_t *out_done)
{
    nccl_world *const w = x->group->world;
    LATHE_TRY(nccl_check_world(w));
    const lathe_status status = look(x);
    if (status != LATHE_OK)
        return nccl_world_failed(w, status);
    *out_done = !x->is_running;
    return LATHE_OK;
}

lathe_status nccl_wait(lathe_exchange *x, double deadline_seconds)
{
    nccl_world *const w = x->group->world;
    const double begin = nccl_now();
    LATHE_TRY(nccl_check_world(w));
    for (;;) {
        lathe_status status = look(x);
        if (status == LATHE_OK && !x->is_running)
            return LATHE_OK;
        const double waited = nccl_now() - begin;
        if (status == LATHE_OK && w->stops != NULL && w->stops(w->stops_arg))
            status = lathe_fail(w->host, LATHE_E_INTERRUPTED, "%s: interrupted", x->name);
        if (status == LATHE_OK && waited >= deadline_seconds)
            status = nccl_late(x->group, x->name, waited);
        if (status != LATHE_OK)
            return nccl_world_failed(w, status);
        nccl_pause(waited);
    }
}

lathe_status nccl_traffic(const lathe_group *group, int64_t *out_sent, int64_t *out_received)
{
    *out_sent = group->world->sent;
    *out_received = group->world->received;
    return LATHE_OK;
}

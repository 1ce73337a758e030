/* Whether the ranks of a group prepare the same exchange, and small exchanges at once. */
#include <stdio.h>
#include <string.h>

#include "lathe/kit/collective_kit.h"
#include "lathe/kit/sized_copy.h"
#include "shared/peer.h"

/* A problem in 64 bytes, as ranks compare it. */
typedef struct summary {
    int32_t op, dtype, reduce, peer;
    int64_t n;
    uint64_t extents; /* hash of counts */
    char label[32];
} summary;
LATHE_ABI_SIZE(summary, 64);

lathe_status lathe__peer_exchange_now(lathe_group *group, const lathe_exchange_problem *problem,
                                      const void *in, void *out)
{
    const lathe_host *const host = group->world->host;
    lathe_exchange *x = NULL;
    LATHE_TRY(lathe__peer_build(group, problem, &x));
    void *const scratch = x->info.scratch_bytes > 0 ? host->alloc(x->info.scratch_bytes) : NULL;
    const lathe_exchange_args args = {
        .size = (uint32_t)sizeof args, .in = in, .out = out, .scratch = scratch};
    const int64_t sent = group->world->sent, received = group->world->received;
    lathe_status status = x->info.scratch_bytes > 0 && scratch == NULL
                              ? lathe_fail(host, LATHE_E_NOMEM, "no memory for an exchange")
                              : lathe__peer_start(x, &args);
    if (status == LATHE_OK)
        status = lathe__peer_wait(x, group->world->deadline_seconds);
    if (status != LATHE_OK && x->is_running)
        return status; /* its memory stays in use */
    group->world->sent = sent;
    group->world->received = received;
    host->free(scratch);
    lathe__peer_exchange_destroy(x);
    return status;
}

static summary summary_of(const lathe_exchange_problem *p, int32_t n_ranks)
{
    summary s;
    memset(&s, 0, sizeof s);
    s.op = p->op;
    s.dtype = p->op == LATHE_BARRIER ? 0 : p->dtype;
    s.reduce = p->reduce;
    s.peer = p->peer;
    s.n = p->n;
    if (p->op == LATHE_REDUCE_SCATTER || p->op == LATHE_ALL_GATHER)
        for (int32_t q = 0; q < n_ranks; q++)
            s.extents = s.extents * UINT64_C(0x9e3779b97f4a7c15) +
                        (uint64_t)lathe_exchange_extent(p, q, n_ranks) + 1;
    if (p->label != NULL)
        strncpy(s.label, p->label, sizeof s.label - 1);
    return s;
}

static void describe(const summary *s, char *text, size_t bytes)
{
    int at = snprintf(text, bytes, "%s", lathe_exchange_name(s->op));
    if (s->op != LATHE_BARRIER && s->op != LATHE_ALL_TO_ALL)
        at += snprintf(text + at, bytes - (size_t)at, " of %lld %s", (long long)s->n,
                       lathe_dtype_name(s->dtype));
    if (s->op == LATHE_ALL_REDUCE || s->op == LATHE_REDUCE_SCATTER)
        at += snprintf(text + at, bytes - (size_t)at, ", %s",
                       s->reduce == LATHE_REDUCE_SUM   ? "sum"
                       : s->reduce == LATHE_REDUCE_MAX ? "max"
                                                       : "min");
    if (s->op == LATHE_BROADCAST)
        at += snprintf(text + at, bytes - (size_t)at, " from rank %d", s->peer);
    if (s->label[0] != '\0')
        (void)snprintf(text + at, bytes - (size_t)at, " (%.31s)", s->label);
}

static lathe_status compare(const lathe_group *group, const summary *all)
{
    const int32_t rank = group->info.rank;
    for (int32_t q = 0; q < group->info.n_ranks; q++) {
        const summary *const a = &all[rank], *const b = &all[q];
        char here[128], there[128];
        if (a->op == b->op && a->dtype == b->dtype && a->reduce == b->reduce &&
            a->peer == b->peer && a->n == b->n && a->extents == b->extents)
            continue;
        describe(a, here, sizeof here);
        describe(b, there, sizeof there);
        return lathe_fail(group->world->host, LATHE_E_RANK,
                          "the ranks ask for different exchanges: rank %d for %s, rank %d for %s%s",
                          rank, here, q, there,
                          strcmp(here, there) == 0 ? ", with other extents" : "");
    }
    return LATHE_OK;
}

/* ALL_TO_ALL: what each rank sends is what the other expects. */
static lathe_status compare_pairs(lathe_group *group, const lathe_exchange_problem *p)
{
    const int32_t n_ranks = group->info.n_ranks;
    const lathe_host *const host = group->world->host;
    int64_t *const ones = host->alloc(2 * n_ranks * (int64_t)sizeof *ones);
    if (ones == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory to compare %d ranks", n_ranks);
    int64_t *const told = ones + n_ranks;
    for (int32_t q = 0; q < n_ranks; q++)
        ones[q] = 1;
    const lathe_exchange_problem ask = {.size = (uint32_t)sizeof ask,
                                        .op = LATHE_ALL_TO_ALL,
                                        .dtype = LATHE_I64,
                                        .counts = ones,
                                        .from = ones,
                                        .label = "agreement"};
    lathe_status status = lathe__peer_exchange_now(group, &ask, p->counts, told);
    for (int32_t q = 0; q < n_ranks && status == LATHE_OK; q++)
        if (told[q] != p->from[q])
            status = lathe_fail(host, LATHE_E_RANK,
                                "all_to_all: rank %d sends %lld elements to rank %d, which expects "
                                "%lld",
                                q, (long long)told[q], group->info.rank, (long long)p->from[q]);
    host->free(ones);
    return status;
}

static lathe_status agree(lathe_group *group, const lathe_exchange_problem *p)
{
    const int32_t n_ranks = group->info.n_ranks;
    const lathe_host *const host = group->world->host;
    summary *const all = host->alloc(n_ranks * (int64_t)sizeof *all);
    if (all == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory to compare %d ranks", n_ranks);
    const summary own = summary_of(p, n_ranks);
    const lathe_exchange_problem ask = {.size = (uint32_t)sizeof ask,
                                        .op = LATHE_ALL_GATHER,
                                        .dtype = LATHE_U8,
                                        .n = n_ranks * (int64_t)sizeof own,
                                        .label = own.label};
    lathe_status status = lathe__peer_exchange_now(group, &ask, &own, all);
    if (status == LATHE_OK)
        status = compare(group, all);
    host->free(all);
    if (status == LATHE_OK && p->op == LATHE_ALL_TO_ALL)
        status = compare_pairs(group, p);
    return status;
}

lathe_status lathe__peer_prepare(lathe_group *group, const lathe_exchange_problem *problem,
                                 lathe_exchange **out, lathe_exchange_info *out_info)
{
    lathe_exchange *x = NULL;
    *out = NULL;
    LATHE_TRY(
        lathe_exchange_check(group->world->host, problem, group->info.rank, group->info.n_ranks));
    const int pairs = problem->op == LATHE_SEND || problem->op == LATHE_RECEIVE;
    if (group->info.n_ranks > 1 && !pairs)
        LATHE_TRY(agree(group, problem));
    LATHE_TRY(lathe__peer_build(group, problem, &x));
    lathe_copy_sized(out_info, &x->info, sizeof x->info);
    *out = x;
    return LATHE_OK;
}

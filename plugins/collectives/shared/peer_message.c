/* Which ranks hold up an exchange, and the messages about it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lathe/kit/collective_kit.h"
#include "shared/peer.h"

int64_t lathe__peer_born(int64_t pid, char *out_state)
{
    char path[64], text[1024];
    *out_state = '\0';
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *at = strrchr(text, ')'); /* the name before may contain anything */
    if (at == NULL || at[1] != ' ' || at[2] == '\0')
        return 0;
    *out_state = at[2];
    at++;
    for (int field = 3; field <= 22; field++) { /* at stands before field 3 */
        at += strspn(at, " ");
        if (field < 22)
            at += strcspn(at, " ");
    }
    return strtoll(at, NULL, 10);
}

/* 'X': the process has ended; 'T': it is stopped; 'R': it runs; '?': not known. */
static char state_of(const lathe_group *group, int32_t q)
{
    char state;
    const peer_board *const board = group->boards != NULL ? group->boards[q] : NULL;
    if (board == NULL || group->sees == NULL || !group->sees[q])
        return '?';
    const int64_t born = lathe__peer_born(board->pid, &state);
    if (born != board->born || state == 'Z' || state == 'X')
        return 'X';
    return state == 'T' || state == 't' ? 'T' : 'R';
}

static int32_t world_rank(const lathe_group *group, int32_t q)
{
    return group->members != NULL ? group->members[q] : q;
}

static int takes_part(const lathe_exchange *x, int32_t q)
{
    return q != x->group->info.rank && (!x->lane || q == x->problem.peer);
}

int64_t lathe__peer_name(const lathe_exchange *x, char *text, int64_t bytes)
{
    const lathe_group *const group = x->group;
    const double max = (double)(x->in_bytes > x->out_bytes ? x->in_bytes : x->out_bytes);
    const double unit = max >= 1e9 ? 1e9 : max >= 1e6 ? 1e6 : max >= 1e3 ? 1e3 : 1.0;
    int64_t at = snprintf(text, (size_t)bytes, "rank %d of %d on %s: %s",
                          world_rank(group, group->info.rank), group->world_ranks,
                          group->info.host_name, lathe_exchange_name(x->problem.op));
    if (x->problem.op != LATHE_BARRIER && at < bytes)
        at += snprintf(text + at, (size_t)(bytes - at), " of %.*f %s", unit == 1.0 ? 0 : 1,
                       max / unit,
                       unit == 1e9   ? "GB"
                       : unit == 1e6 ? "MB"
                       : unit == 1e3 ? "kB"
                                     : "bytes");
    if (x->label[0] != '\0' && at < bytes)
        at += snprintf(text + at, (size_t)(bytes - at), " (%s)", x->label);
    return at < bytes ? at : bytes - 1;
}

int32_t lathe__peer_has_ended(const lathe_group *group, int32_t q)
{
    return state_of(group, q) == 'X';
}

lathe_status lathe__peer_watch(const lathe_exchange *x)
{
    const peer_world *const world = x->group->world;
    const int32_t teller = world->transport != NULL && world->transport->told != NULL
                               ? world->transport->told(world->link)
                               : -1;
    char text[256];
    if (teller >= 0) {
        (void)lathe__peer_name(x, text, sizeof text);
        return lathe_fail(world->host, LATHE_E_RANK, "%s: rank %d has failed", text, teller);
    }
    for (int32_t q = 0; q < x->group->info.n_ranks; q++) {
        if (!takes_part(x, q) || state_of(x->group, q) != 'X')
            continue;
        (void)lathe__peer_name(x, text, sizeof text);
        return lathe_fail(x->group->world->host, LATHE_E_RANK,
                          "%s: rank %d has ended (process %lld)", text, world_rank(x->group, q),
                          (long long)x->group->boards[q]->pid);
    }
    return LATHE_OK;
}

int32_t lathe__peer_stopped(const lathe_exchange *x)
{
    for (int32_t q = 0; q < x->group->info.n_ranks; q++)
        if (takes_part(x, q) && state_of(x->group, q) == 'T')
            return 1;
    return 0;
}

/* 1: rank q has started this exchange; 0: it has not; -1: not known. */
static int has_arrived(const lathe_exchange *x, int32_t q)
{
    peer_board *const board = x->group->boards != NULL ? x->group->boards[q] : NULL;
    if (board == NULL || x->lane)
        return -1;
    return atomic_load(&board->n_started) >= x->number;
}

/* Puts "ranks 1, 5" of those with has_arrived() == wanted. Returns their number. */
static int32_t put_ranks(const lathe_exchange *x, int wanted, char *text, int64_t bytes)
{
    int32_t n = 0, first = 1;
    int64_t at = 0;
    for (int32_t q = 0; q < x->group->info.n_ranks; q++)
        n += takes_part(x, q) && has_arrived(x, q) == wanted;
    at = snprintf(text, (size_t)bytes, n == 1 ? "rank" : "ranks");
    for (int32_t q = 0; q < x->group->info.n_ranks && at < bytes - 32; q++) {
        if (!takes_part(x, q) || has_arrived(x, q) != wanted)
            continue;
        at += snprintf(text + at, (size_t)(bytes - at), "%s %d", first ? "" : ",",
                       world_rank(x->group, q));
        first = 0;
        if (state_of(x->group, q) == 'T')
            at += snprintf(text + at, (size_t)(bytes - at), " (stopped by a signal)");
    }
    if (at >= bytes - 32)
        (void)snprintf(text + at, (size_t)(bytes - at), ", ...");
    return n;
}

lathe_status lathe__peer_late(const lathe_exchange *x, double seconds)
{
    const lathe_host *const host = x->group->world->host;
    char name[192], ranks[192];
    (void)lathe__peer_name(x, name, sizeof name);
    if (put_ranks(x, 0, ranks, sizeof ranks) > 0)
        return lathe_fail(host, LATHE_E_RANK, "%s: timed out after %.1f s; %s did not arrive", name,
                          seconds, ranks);
    if (put_ranks(x, -1, ranks, sizeof ranks) > 0)
        return lathe_fail(host, LATHE_E_RANK,
                          "%s: timed out after %.1f s; no answer from %s or the network", name,
                          seconds, ranks);
    (void)put_ranks(x, 1, ranks, sizeof ranks);
    return lathe_fail(host, LATHE_E_RANK,
                      "%s: timed out after %.1f s, although %s arrived: the transfer takes longer, "
                      "or a rank hangs in it",
                      name, seconds, ranks);
}

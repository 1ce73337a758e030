/* The group of one rank: exchanges are copies. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lathe/kit/instance.h"
#include "lathe/kit/launcher_kit.h"
#include "shared/peer.h"

typedef struct local {
    const lathe_host *host;
} local;

/* A group, and the world of the one that open() gave. */
typedef struct local_group {
    lathe_group group;
    peer_world world;
} local_group;

static int32_t local_score(const lathe_collective_probe *probe, char *why, int64_t why_bytes)
{
    if (probe != NULL && !probe->host_memory) {
        (void)snprintf(why, (size_t)why_bytes, "a group of one rank; %s has memory of its own",
                       probe->device);
        return LATHE_SCORE_NO;
    }
    (void)snprintf(why, (size_t)why_bytes, "a group of one rank");
    return LATHE_SCORE_PORTABLE;
}

static void describe(lathe_group *group, peer_world *world)
{
    group->world = world;
    group->world_ranks = 1;
    group->info = (lathe_group_info){.size = (uint32_t)sizeof group->info,
                                     .n_ranks = 1,
                                     .n_local = 1,
                                     .n_hosts = 1,
                                     .flags = LATHE_GROUP_DETERMINISTIC | LATHE_GROUP_RANK_ORDER,
                                     .engine = "local"};
    if (gethostname(group->info.host_name, sizeof group->info.host_name - 1) != 0)
        (void)snprintf(group->info.host_name, sizeof group->info.host_name, "this host");
}

static lathe_status local_open(void *self, const lathe_collective_setup *setup, lathe_group **out)
{
    const local *const x = self;
    int32_t n_ranks;
    const lathe_launcher *const launcher = lathe_launcher_find(&n_ranks);
    *out = NULL;
    if (launcher != NULL && n_ranks != 1)
        return lathe_fail(x->host, LATHE_E_CONFIG,
                          "%s has started this process as one of several (%s is %s), and "
                          "collective/local is a group of one; use collective/mpi (lathe ls "
                          "collective), or start one process",
                          launcher->name, launcher->n_ranks, getenv(launcher->n_ranks));
    local_group *const g = x->host->alloc((int64_t)sizeof *g);
    if (g == NULL)
        return lathe_fail(x->host, LATHE_E_NOMEM, "no memory for a group");
    g->world = (peer_world){.host = x->host,
                            .deadline_seconds = setup->deadline_seconds,
                            .stops = setup->stops,
                            .stops_arg = setup->stops_arg};
    describe(&g->group, &g->world);
    *out = &g->group;
    return LATHE_OK;
}

static lathe_status local_split(lathe_group *group, int32_t color, int32_t key, lathe_group **out)
{
    const lathe_host *const host = group->world->host;
    (void)key;
    *out = NULL;
    if (color < -1)
        return lathe_fail(host, LATHE_E_ARG, "split by the color %d, expected -1 or more", color);
    if (color < 0)
        return LATHE_OK;
    lathe_group *const part = host->alloc((int64_t)sizeof *part);
    if (part == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a group");
    describe(part, group->world);
    *out = part;
    return LATHE_OK;
}

static lathe_status local_close(lathe_group *group)
{
    if (group != NULL)
        group->world->host->free(group); /* local_group begins with its group */
    return LATHE_OK;
}

static void local_abort(lathe_group *group, int32_t exit_code)
{
    (void)group;
    (void)exit_code;
}

LATHE_INSTANCE_PLAIN(local)

static const lathe_collective_v1 local_table = {
    .size = (uint32_t)sizeof local_table,
    .revision = LATHE_COLLECTIVE_REVISION,
    .score = local_score,
    .open = local_open,
    .info = lathe__peer_info,
    .split = local_split,
    .close = local_close,
    .prepare = lathe__peer_prepare,
    .exchange_destroy = lathe__peer_exchange_destroy,
    .start = lathe__peer_start,
    .test = lathe__peer_test,
    .wait = lathe__peer_wait,
    .traffic = lathe__peer_traffic,
    .abort = local_abort,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE_PLAIN(local),
    .kind = LATHE_KIND_COLLECTIVE,
    .revision = LATHE_COLLECTIVE_REVISION,
    .version = "1.0.0",
    .summary = "the group of one rank",
    .source = "ours",
    .license = "Apache-2.0",
};

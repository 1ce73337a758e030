/* Ranks that mpirun or srun has started, on any number of hosts, with data in host memory.
 *
 * MPI is reached through a shim, a library of its own (mpi_shim.c): this plugin can then be opened,
 * and says what is missing, on a host without MPI. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lathe/kit/instance.h"
#include "lathe/kit/launcher_kit.h"
#include "mpi_shim.h"

#define SHIM_FILE_NAME "mpi-shim.so" /* beside the plugin */

typedef struct mpi {
    const lathe_host *host;
} mpi;

/* A group with its world, which the group of open() owns. */
typedef struct mpi_group {
    lathe_group group; /* first */
    peer_world world;
    const mpi_shim *shim;
    unsigned char *sees; /* [n_ranks] 1: /proc of this process shows that rank's process */
} mpi_group;

/* ---- the shim ---- */

/* Opens the library that holds the shim, which stays open. MPI's own plugins look for its symbols
 * among the global ones. */
static const mpi_shim *find_shim(const lathe_host *host)
{
    static const char here = 0; /* its address lies in the plugin, whose folder dladdr() gives */
    static const char advice[] =
        "install Open MPI (Debian: apt install libopenmpi-dev openmpi-bin), then configure, build "
        "and install Lathe again";
    Dl_info info;
    char path[4096] = "";
    if (dladdr(&here, &info) != 0 && info.dli_fname != NULL && strrchr(info.dli_fname, '/') != NULL)
        (void)snprintf(path, sizeof path, "%.*s/%s",
                       (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname,
                       SHIM_FILE_NAME);
    if (access(path, F_OK) != 0) {
        (void)lathe_fail(host, LATHE_E_NOT_FOUND,
                         "several ranks need MPI, and this Lathe was built without it; %s", advice);
        return NULL;
    }
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *const error = library == NULL ? dlerror() : NULL;
    const mpi_shim *const shim = library != NULL ? dlsym(library, "lathe_mpi_shim") : NULL;
    if (shim != NULL && shim->version == MPI_SHIM_VERSION)
        return shim;
    (void)lathe_fail(host, LATHE_E_NOT_FOUND,
                     "MPI, with which this Lathe was built, cannot be loaded (%.200s); %s",
                     error != NULL ? error : SHIM_FILE_NAME " is of another version", advice);
    return NULL;
}

/* ---- groups ---- */

/* Without a launcher there is one rank, which needs no MPI. Answers from the environment alone: the
 * shim, and with it MPI, is loaded only by open(). */
static int32_t mpi_score(const lathe_collective_probe *probe, char *why, int64_t why_bytes)
{
    int32_t n_ranks;
    const lathe_launcher *const launcher = lathe_launcher_find(&n_ranks);
    if (launcher == NULL)
        (void)snprintf(why, (size_t)why_bytes, "no launcher (mpirun, srun) started this process");
    else if (n_ranks == 1)
        (void)snprintf(why, (size_t)why_bytes, "%s started one process", launcher->name);
    else if (!probe->host_memory)
        (void)snprintf(why, (size_t)why_bytes, "it reaches host memory only, and %s has its own",
                       probe->device);
    else
        (void)snprintf(why, (size_t)why_bytes, "%s started this process (%s)", launcher->name,
                       launcher->n_ranks);
    return launcher != NULL && n_ranks != 1 && probe->host_memory ? LATHE_SCORE_VENDOR
                                                                  : LATHE_SCORE_NO;
}

/* world: that of the group of open(), or NULL to make this group the one that owns it. */
static lathe_status make(const lathe_host *host, const mpi_shim *shim, const mpi_place *place,
                         peer_world *world, mpi_group **out)
{
    mpi_group *const g = host->alloc((int64_t)sizeof *g);
    unsigned char *const sees = host->alloc(place->n_ranks);
    if (g == NULL || sees == NULL) {
        host->free(g);
        host->free(sees);
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a group");
    }
    g->shim = shim;
    g->sees = sees;
    g->group.world = world != NULL ? world : &g->world;
    g->group.link = place->link;
    g->group.members = place->members;
    g->group.boards = place->boards;
    g->group.info = (lathe_group_info){.size = (uint32_t)sizeof g->group.info,
                                       .rank = place->rank,
                                       .n_ranks = place->n_ranks,
                                       .local_rank = place->local_rank,
                                       .n_local = place->n_local,
                                       .host = place->host,
                                       .n_hosts = place->n_hosts,
                                       .flags = LATHE_GROUP_DETERMINISTIC | LATHE_GROUP_RANK_ORDER};
    (void)snprintf(g->group.info.engine, sizeof g->group.info.engine, "%s", place->engine);
    if (gethostname(g->group.info.host_name, sizeof g->group.info.host_name - 1) != 0)
        (void)snprintf(g->group.info.host_name, sizeof g->group.info.host_name, "this host");
    *out = g;
    return LATHE_OK;
}

/* Waits for all ranks of the group, until the deadline. label: names the place in an error. */
static lathe_status wait_for_all(lathe_group *group, const char *label)
{
    const lathe_exchange_problem barrier = {
        .size = (uint32_t)sizeof barrier, .op = LATHE_BARRIER, .label = label};
    return lathe__peer_exchange_now(group, &barrier, NULL, NULL);
}

/* Tells the others the number of this process, and notes whose processes /proc shows: all ranks of
 * the host are alive now, so one that is not there is in another namespace. */
static lathe_status introduce(mpi_group *g)
{
    char state;
    peer_board *const own = g->group.boards[g->group.info.rank];
    own->pid = getpid();
    own->born = lathe__peer_born(own->pid, &state);
    LATHE_TRY(wait_for_all(&g->group, "start"));
    for (int32_t q = 0; q < g->group.info.n_ranks; q++) {
        const peer_board *const board = g->group.boards[q];
        g->sees[q] = board != NULL && board->born != 0 &&
                     lathe__peer_born(board->pid, &state) == board->born;
    }
    LATHE_TRY(wait_for_all(&g->group, "start")); /* nobody ends before all have looked */
    g->group.sees = g->sees;
    return LATHE_OK;
}

static lathe_status mpi_open(void *self, const lathe_collective_setup *setup, lathe_group **out)
{
    const lathe_host *const host = ((const mpi *)self)->host;
    const mpi_shim *const shim = find_shim(host);
    mpi_place place;
    mpi_group *g = NULL;
    int32_t n_ranks;
    const lathe_launcher *const launcher = lathe_launcher_find(&n_ranks);
    *out = NULL;
    if (shim == NULL)
        return LATHE_E_NOT_FOUND;
    if (launcher != NULL && n_ranks == 0)
        return lathe_fail(host, LATHE_E_CONFIG, "%s is \"%s\", expected a number of ranks",
                          launcher->n_ranks, getenv(launcher->n_ranks));
    LATHE_TRY(shim->join(host, &place));
    /* a launcher of another MPI starts N processes that each find themselves alone: N runs would
     * write one folder */
    lathe_status status =
        launcher == NULL || place.n_ranks == n_ranks
            ? make(host, shim, &place, NULL, &g)
            : lathe_fail(host, LATHE_E_CONFIG,
                         "%s has started %d processes (%s), and %s finds %d; start them with the "
                         "mpirun of that MPI, or with srun --mpi=pmix",
                         launcher->name, n_ranks, launcher->n_ranks, place.engine, place.n_ranks);
    if (g == NULL)
        return status; /* stays in the group: leaving it would wait for ranks that go on */
    g->group.world_ranks = place.n_ranks;
    g->world = (peer_world){.host = host,
                            .transport = shim->transport,
                            .deadline_seconds = setup->deadline_seconds,
                            .stops = setup->stops,
                            .stops_arg = setup->stops_arg,
                            .link = place.link};
    status = introduce(g);
    if (status == LATHE_OK)
        *out = &g->group;
    return status;
}

static lathe_status mpi_split(lathe_group *group, int32_t color, int32_t key, lathe_group **out)
{
    const mpi_group *const g = (const mpi_group *)(const void *)group;
    const lathe_host *const host = group->world->host;
    mpi_place place;
    mpi_group *part = NULL;
    *out = NULL;
    if (color < -1)
        return lathe_fail(host, LATHE_E_ARG, "split by the color %d, expected -1 or more", color);
    LATHE_TRY(
        wait_for_all(group, "split")); /* with the deadline that MPI_Comm_split does not have */
    LATHE_TRY(g->shim->split(host, group->link, color, key, &place));
    if (place.link == NULL) /* color -1: this rank is in no part */
        return LATHE_OK;
    const lathe_status status = make(host, g->shim, &place, group->world, &part);
    if (part == NULL) {
        g->shim->leave(host, place.link);
        return status;
    }
    part->group.world_ranks = group->world_ranks;
    *out = &part->group;
    return introduce(part);
}

static lathe_status mpi_close(lathe_group *group)
{
    mpi_group *const g = (mpi_group *)(void *)group;
    if (group == NULL)
        return LATHE_OK;
    const lathe_host *const host = group->world->host;
    const lathe_status status =
        group->world->failed == LATHE_OK ? wait_for_all(group, "close") : LATHE_OK;
    if (group->world->failed != LATHE_OK)
        return status; /* memory stays in use, and MPI does not end in order */
    g->shim->leave(host, group->link);
    host->free(g->sees);
    host->free(g);
    return status;
}

/* Ends all ranks, also those that wait in an exchange and would never return. */
static void mpi_abort(lathe_group *group, int32_t exit_code)
{
    ((const mpi_group *)(const void *)group)->shim->abort(exit_code);
}

LATHE_INSTANCE_PLAIN(mpi)

static const lathe_collective_v1 mpi_table = {
    .size = (uint32_t)sizeof mpi_table,
    .revision = LATHE_COLLECTIVE_REVISION,
    .score = mpi_score,
    .open = mpi_open,
    .info = lathe__peer_info,
    .split = mpi_split,
    .close = mpi_close,
    .prepare = lathe__peer_prepare,
    .exchange_destroy = lathe__peer_exchange_destroy,
    .start = lathe__peer_start,
    .test = lathe__peer_test,
    .wait = lathe__peer_wait,
    .traffic = lathe__peer_traffic,
    .abort = mpi_abort,
    .tell = lathe__peer_tell,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE_PLAIN(mpi),
    .kind = LATHE_KIND_COLLECTIVE,
    .revision = LATHE_COLLECTIVE_REVISION,
    .version = "1.0.0",
    .summary = "ranks started by mpirun or srun, with data in host memory",
    .source = "MPI 3.1; reductions in the order of ranks: ours",
    .license = "Apache-2.0",
};

/* Ranks with a GPU each, whose memory NCCL exchanges.
 *
 * Another engine (mpi) has joined the ranks in host memory. It gives NCCL's identity to all,
 * compares what they ask for, and finds out who is missing when an exchange does not end. NCCL's
 * calls do not block, so that every wait has a deadline.
 */
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "lathe/kit/instance.h"
#include "lathe/kit/sized_copy.h"
#include "nccl_internal.h"

typedef struct nccl {
    const lathe_host *host;
    int32_t algorithm; /* index of ALGORITHMS */
} nccl;

#define ALGORITHMS "ring|any"
enum { RING = 0 };

/* Seconds that close() waits for the other ranks, which may end at different times. */
static const double longest_farewell = 2.0;
/* Seconds that the base's barrier waits before it tells who is missing. */
static const double longest_roll_call = 5.0;

double nccl_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void nccl_pause(double waited)
{
    const struct timespec pause = {0, waited < 0.1 ? 20000 : 500000};
    if (waited < 0.002)
        (void)sched_yield();
    else
        (void)nanosleep(&pause, NULL);
}

/* ---- failures ---- */

/* One line of what NCCL says last. */
static void last_error(const lathe_group *group, char *text, size_t bytes)
{
    const nccl_library *const library = group->world->nccl;
    const char *const said = library->ncclGetLastError(group->comm);
    (void)snprintf(text, bytes, "%s%.160s", said != NULL && said[0] != '\0' ? ": " : "",
                   said != NULL ? said : "");
    for (char *at = text; *at != '\0'; at++)
        if (*at == '\n')
            *at = ' ';
}

lathe_status nccl_failed(const lathe_group *group, const char *what, ncclResult_t code)
{
    char text[192];
    last_error(group, text, sizeof text);
    return lathe_fail(group->world->host, LATHE_E_RANK, "rank %d of %d on %s: %s: NCCL: %s%s",
                      group->info.rank, group->info.n_ranks, group->info.host_name, what,
                      group->world->nccl->ncclGetErrorString(code), text);
}

static void abort_all(const nccl_world *w)
{
    for (lathe_group *g = w->groups; g != NULL; g = g->next) {
        if (g->comm != NULL)
            (void)w->nccl->ncclCommAbort(g->comm);
        g->comm = NULL;
    }
}

lathe_status nccl_world_failed(nccl_world *w, lathe_status status)
{
    w->failed = status;
    abort_all(w);
    return status;
}

lathe_status nccl_check_world(const nccl_world *w)
{
    return w->failed == LATHE_OK ? LATHE_OK
                                 : lathe_fail(w->host, w->failed,
                                              "an exchange has failed before; this rank must end");
}

/* Ranks whose exchange did not end meet in the base's barrier; its error names those that do not
 * come. */
lathe_status nccl_late(lathe_group *group, const char *what, double seconds)
{
    const nccl_world *const w = group->world;
    const lathe_exchange_args none = {.size = (uint32_t)sizeof none};
    char line[256];
    (void)snprintf(line, sizeof line, "%.180s: timed out after %.1f s", what, seconds);
    w->host->log(LATHE_LOG_WARN, line);
    const double max =
        w->deadline_seconds < longest_roll_call ? w->deadline_seconds : longest_roll_call;
    if (group->roll_call != NULL) {
        LATHE_TRY(w->base->start(group->roll_call, &none));
        LATHE_TRY(w->base->wait(group->roll_call, max));
    }
    return lathe_fail(
        w->host, LATHE_E_RANK,
        "rank %d of %d on %s: %s: timed out after %.1f s, although all ranks are "
        "there: the transfer takes longer, or it hangs in NCCL (NCCL_DEBUG=INFO tells "
        "more)",
        group->info.rank, group->info.n_ranks, group->info.host_name, what, seconds);
}

lathe_status nccl_settle(lathe_group *group, const char *what, ncclResult_t code)
{
    const nccl_world *const w = group->world;
    const double begin = nccl_now();
    while (code == ncclInProgress) {
        const double waited = nccl_now() - begin;
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = w->nccl->ncclCommGetAsyncError(group->comm, &state);
        code = asked != ncclSuccess ? asked : state;
        if (code != ncclInProgress)
            break;
        if (w->stops != NULL && w->stops(w->stops_arg))
            return lathe_fail(w->host, LATHE_E_INTERRUPTED, "%s: interrupted", what);
        if (waited >= w->deadline_seconds)
            return nccl_late(group, what, waited);
        nccl_pause(waited);
    }
    return code == ncclSuccess ? LATHE_OK : nccl_failed(group, what, code);
}

/* ---- groups ---- */

static int32_t nccl_score(const lathe_collective_probe *probe, char *why, int64_t why_bytes)
{
    if (probe->host_memory || strncmp(probe->device, "cuda", 4) != 0) {
        (void)snprintf(why, (size_t)why_bytes, "it reaches the memory of NVIDIA GPUs, not of %s",
                       probe->device);
        return LATHE_SCORE_NO;
    }
    const nccl_library *const library = nccl_library_open(why, why_bytes);
    if (library == NULL)
        return LATHE_SCORE_NO;
    (void)snprintf(why, (size_t)why_bytes, "NCCL %d.%d.%d", library->version / 10000,
                   library->version / 100 % 100, library->version % 100);
    return LATHE_SCORE_VENDOR;
}

/* Frees a group of which nothing is under way. */
static void free_group(lathe_group *g)
{
    nccl_world *const w = g->world;
    for (lathe_group **at = &w->groups; *at != NULL; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    if (g->comm != NULL)
        (void)w->nccl->ncclCommAbort(g->comm);
    if (g->roll_call != NULL && w->failed == LATHE_OK)
        w->base->exchange_destroy(g->roll_call);
    w->host->free(g);
}

/* A group without a communicator, over a group of the base. Takes the base's group on success. */
static lathe_status make(nccl_world *w, lathe_group *of, lathe_group **out)
{
    const lathe_exchange_problem barrier = {.size = (uint32_t)sizeof barrier,
                                            .op = LATHE_BARRIER,
                                            .label =
                                                "after an exchange of the GPUs that did not end"};
    lathe_exchange_info room = {.size = (uint32_t)sizeof room};
    lathe_group *const g = w->host->alloc((int64_t)sizeof *g);
    if (g == NULL)
        return lathe_fail(w->host, LATHE_E_NOMEM, "no memory for a group");
    g->world = w;
    g->base = of;
    g->info.size = (uint32_t)sizeof g->info;
    lathe_status status = w->base->info(of, &g->info);
    if (status == LATHE_OK)
        status = w->base->prepare(of, &barrier, &g->roll_call, &room);
    if (status == LATHE_OK && room.scratch_bytes > 0)
        status = lathe_fail(w->host, LATHE_E_UNSUPPORTED, "a barrier of %s needs memory",
                            g->info.engine);
    if (status != LATHE_OK) {
        w->host->free(g);
        return status;
    }
    char engine[sizeof g->info.engine];
    (void)snprintf(engine, sizeof engine, "NCCL %d.%d.%d over %.24s", w->nccl->version / 10000,
                   w->nccl->version / 100 % 100, w->nccl->version % 100, g->info.engine);
    memcpy(g->info.engine, engine, sizeof engine);
    /* The only sum of two numbers has one result. */
    g->info.flags = g->info.n_ranks <= 2  ? LATHE_GROUP_DETERMINISTIC | LATHE_GROUP_RANK_ORDER
                    : w->gives_order != 0 ? LATHE_GROUP_DETERMINISTIC
                                          : 0;
    *out = g;
    return LATHE_OK;
}

/* Joins the communicator of a group. */
static lathe_status join(lathe_group *g)
{
    nccl_world *const w = g->world;
    static const char what[] = "joining the ranks";
    ncclUniqueId id;
    ncclConfig_t config = {.size = sizeof config,
                           .magic = NCCL_CONFIG_MAGIC,
                           .version = NCCL_CONFIG_VERSION,
                           .blocking = 0};
    memset(&id, 0, sizeof id);
    ncclResult_t made = ncclSuccess;
    if (g->info.rank == 0)
        made = w->nccl->ncclGetUniqueId(&id);
    LATHE_TRY(nccl_share(w, g->base, g->info.rank, &id, (int64_t)sizeof id));
    if (made != ncclSuccess)
        return nccl_failed(g, what, made);
    /* NCCL reads the variable while it makes a communicator. NOLINTBEGIN(concurrency-mt-unsafe) */
    if (w->sets_ring)
        (void)setenv("NCCL_ALGO", "Ring", 0);
    const ncclResult_t code =
        w->nccl->ncclCommInitRankConfig(&g->comm, g->info.n_ranks, id, g->info.rank, &config);
    g->next = w->groups;
    w->groups = g;
    const lathe_status status = nccl_settle(g, what, code);
    if (w->sets_ring)
        (void)unsetenv("NCCL_ALGO");
    /* NOLINTEND(concurrency-mt-unsafe) */
    return status;
}

/* Memory and stream of the ranks. */
static lathe_status world_init(nccl_world *w)
{
    const lathe_device_v1 *const device = w->device;
    void *words = NULL, *one = NULL;
    LATHE_TRY(device->stream_create(w->device_self, &w->stream));
    LATHE_TRY(device->alloc(w->device_self, 2 * NCCL_FLAG_BYTES, LATHE_MEM_DEVICE, &words));
    w->words = words;
    LATHE_TRY(device->alloc(w->device_self, NCCL_FLAG_BYTES, LATHE_MEM_HOST_PINNED, &one));
    *(int64_t *)one = 1;
    lathe_status status =
        device->copy(w->device_self, w->stream, words, one, NCCL_FLAG_BYTES, LATHE_COPY_TO_DEVICE);
    if (status == LATHE_OK)
        status = device->sync(w->device_self, w->stream);
    device->free(w->device_self, one);
    return status;
}

static void world_fini(const nccl_world *w)
{
    const lathe_device_v1 *const device = w->device;
    if (w->stream != NULL)
        (void)device->sync(w->device_self, w->stream);
    for (nccl_page *page = w->pages, *next; page != NULL; page = next) {
        next = page->next;
        device->free(w->device_self, page->flags);
        w->host->free(page);
    }
    if (w->words != NULL)
        device->free(w->device_self, w->words);
    if (w->event != NULL)
        device->event_destroy(w->device_self, w->event);
    if (w->stream != NULL)
        device->stream_destroy(w->device_self, w->stream);
}

static lathe_status check_setup(const lathe_host *host, const lathe_collective_setup *setup)
{
    const lathe_device_v1 *const d = setup->device;
    if (setup->base == NULL || setup->base_group == NULL)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "collective/nccl needs the group of another engine, and got none");
    if (d == NULL)
        return lathe_fail(
            host, LATHE_E_CONFIG,
            "collective/nccl is for GPUs, and the run's device has the host's memory");
    if (!(LATHE_HAS(d, stream_create) && LATHE_HAS(d, event_record) && LATHE_HAS(d, event_wait) &&
          LATHE_HAS(d, event_destroy) && LATHE_HAS(d, sync)))
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "collective/nccl needs a device with streams and events");
    return LATHE_OK;
}

/* NCCL's rings add in the order of the ring; its other algorithms may not. A user's own value of
 * NCCL_ALGO stays. */
static void choose_algorithm(const nccl *x, nccl_world *w)
{
    const char *const set = getenv("NCCL_ALGO");
    w->sets_ring = set == NULL && x->algorithm == RING;
    w->gives_order = w->sets_ring || (set != NULL && strcasecmp(set, "Ring") == 0);
}

static lathe_status nccl_open(void *self, const lathe_collective_setup *setup, lathe_group **out)
{
    const nccl *const x = self;
    char why[256] = "";
    lathe_group *g = NULL;
    *out = NULL;
    LATHE_TRY(check_setup(x->host, setup));
    nccl_world w = {.host = x->host,
                    .nccl = nccl_library_open(why, sizeof why),
                    .base = setup->base,
                    .device = setup->device,
                    .device_self = setup->device_self,
                    .deadline_seconds = setup->deadline_seconds,
                    .stops = setup->stops,
                    .stops_arg = setup->stops_arg};
    if (w.nccl == NULL)
        return lathe_fail(x->host, LATHE_E_NOT_FOUND, "%s", why);
    choose_algorithm(x, &w);
    LATHE_TRY(nccl_gpus_check(&w, setup->base_group));
    lathe_status status = make(&w, setup->base_group, &g);
    if (status != LATHE_OK || g == NULL)
        return status;
    g->own = w;
    g->world = &g->own;
    status = world_init(&g->own);
    if (status == LATHE_OK)
        status = join(g);
    if (status != LATHE_OK) {
        (void)nccl_world_failed(&g->own, status);
        world_fini(&g->own);
        free_group(g);
        return status;
    }
    *out = g;
    return LATHE_OK;
}

static lathe_status nccl_info(const lathe_group *group, lathe_group_info *out)
{
    lathe_copy_sized(out, &group->info, sizeof group->info);
    return LATHE_OK;
}

/* A communicator of its own, whose identity the base's part spreads. */
static lathe_status nccl_split(lathe_group *group, int32_t color, int32_t key, lathe_group **out)
{
    nccl_world *const w = group->world;
    lathe_group *part = NULL, *g = NULL;
    *out = NULL;
    LATHE_TRY(nccl_check_world(w));
    LATHE_TRY(w->base->split(group->base, color, key, &part));
    if (part == NULL)
        return LATHE_OK;
    lathe_status status = make(w, part, &g);
    if (status != LATHE_OK || g == NULL) {
        (void)w->base->close(part);
        return status;
    }
    g->is_part = 1;
    status = join(g);
    if (status != LATHE_OK)
        return nccl_world_failed(w, status);
    *out = g;
    return LATHE_OK;
}

/* Lets what NCCL has under way come to its end, and frees the communicator. */
static void leave(lathe_group *g)
{
    const nccl_library *const library = g->world->nccl;
    const double begin = nccl_now();
    if (g->comm == NULL)
        return;
    ncclResult_t code = library->ncclCommFinalize(g->comm);
    while (code == ncclInProgress && nccl_now() - begin < longest_farewell) {
        if (library->ncclCommGetAsyncError(g->comm, &code) != ncclSuccess)
            break;
        nccl_pause(nccl_now() - begin);
    }
    if (code == ncclSuccess)
        code = library->ncclCommDestroy(g->comm);
    if (code != ncclSuccess)
        (void)library->ncclCommAbort(g->comm);
    g->comm = NULL;
}

static lathe_status nccl_close(lathe_group *group)
{
    if (group == NULL)
        return LATHE_OK;
    nccl_world *const w = group->world;
    lathe_group *const base = group->base;
    const int32_t is_part = group->is_part;
    leave(group);
    if (!is_part) {
        abort_all(w); /* parts that are still there after an error */
        world_fini(w);
    }
    if (!is_part || w->failed != LATHE_OK) {
        free_group(group);
        return LATHE_OK;
    }
    free_group(group);
    return w->base->close(base);
}

static void nccl_abort(lathe_group *group, int32_t exit_code)
{
    (void)nccl_world_failed(group->world, LATHE_E_RANK);
    group->world->base->abort(group->base, exit_code);
}

/* ---- the plugin ---- */

enum { ALGORITHM };

static const lathe_field fields[] = {
    LATHE_FIELD_STRING("algorithm", "\"ring\"", ALGORITHMS,
                       "how NCCL adds: in rings, which give the same bits in every run, or as it "
                       "finds fastest; the variable NCCL_ALGO overrides it"),
};

static lathe_status read_values(const lathe_host *host, nccl *x, const lathe_value *values)
{
    (void)host;
    x->algorithm = lathe_choice(ALGORITHMS, values[ALGORITHM].s);
    return LATHE_OK;
}

LATHE_INSTANCE(nccl, read_values)

static const lathe_collective_v1 nccl_table = {
    .size = (uint32_t)sizeof nccl_table,
    .revision = LATHE_COLLECTIVE_REVISION,
    .flags =
        LATHE_COLLECTIVE_NEEDS_BASE | LATHE_COLLECTIVE_FOR_DEVICES | LATHE_COLLECTIVE_NEEDS_NO_ROOM,
    .score = nccl_score,
    .open = nccl_open,
    .info = nccl_info,
    .split = nccl_split,
    .close = nccl_close,
    .prepare = nccl_prepare,
    .exchange_destroy = nccl_exchange_destroy,
    .start = nccl_start,
    .test = nccl_test,
    .wait = nccl_wait,
    .traffic = nccl_traffic,
    .abort = nccl_abort,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(nccl),
    .kind = LATHE_KIND_COLLECTIVE,
    .revision = LATHE_COLLECTIVE_REVISION,
    .version = "1.0.0",
    .summary = "ranks with an NVIDIA GPU each, whose memory NCCL exchanges",
    .source = "NCCL 2.14 and later",
    .license = "Apache-2.0",
};

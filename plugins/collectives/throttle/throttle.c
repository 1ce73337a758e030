/* Makes the exchanges of another engine as slow as a link.
 *
 * A rank has one link, whose two directions are independent. An exchange takes the directions in
 * which it has bytes from the moment that both are free, and is done no earlier than
 * rounds * latency + bytes / bandwidth later (lathe/kit/link_kit.h); and not before the other
 * engine has done it. So exchanges that are under way together follow one another, in the order of
 * their starts. The other engine moves and adds the data: bits, traffic and scratch are its own.
 */
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include "lathe/kit/collective_kit.h"
#include "lathe/kit/instance.h"
#include "lathe/kit/link_kit.h"
#include "lathe/kit/sized_copy.h"

/* Seconds between calls of the other engine while an exchange waits for the link. */
static const double longest_pause = 2e-4;

typedef struct throttle {
    const lathe_host *host;
    lathe_link link;
    char text[40]; /* "10Gbit 0.2ms" */
} throttle;

/* The ranks that were started together. */
typedef struct world {
    const throttle *self;
    const lathe_collective_v1 *base;
    double out_free, in_free; /* when each direction of the link is free */
    int32_t (*stops)(void *arg);
    void *stops_arg;
    lathe_status failed; /* not LATHE_OK: only abort() may follow */
} world;

struct lathe_group {
    world *world;
    lathe_group *base;
    lathe_group_info info;
    world own;       /* of the group of open() */
    int32_t is_part; /* 1: made by split() */
};

struct lathe_exchange {
    lathe_group *group;
    lathe_exchange *base;
    lathe_exchange_info info;
    int32_t op, is_running;
    double seconds; /* on the link */
    double due;
    char label[64];
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- groups ---- */

static int32_t throttle_score(const lathe_collective_probe *probe, char *why, int64_t why_bytes)
{
    (void)probe;
    (void)snprintf(why, (size_t)why_bytes, "it slows another engine down: used only by its name");
    return LATHE_SCORE_NO;
}

static lathe_status make(const throttle *self, const lathe_collective_v1 *base, lathe_group *of,
                         lathe_group **out)
{
    lathe_group *const g = self->host->alloc((int64_t)sizeof *g);
    if (g == NULL)
        return lathe_fail(self->host, LATHE_E_NOMEM, "no memory for a group");
    g->base = of;
    g->info.size = (uint32_t)sizeof g->info;
    const lathe_status status = base->info(of, &g->info);
    if (status != LATHE_OK) {
        self->host->free(g);
        return status;
    }
    char engine[sizeof g->info.engine];
    (void)snprintf(engine, sizeof engine, "%s over %.*s", self->text,
                   (int)(sizeof engine - sizeof self->text - 6), g->info.engine);
    memcpy(g->info.engine, engine, sizeof engine);
    *out = g;
    return LATHE_OK;
}

static lathe_status throttle_open(void *self, const lathe_collective_setup *setup,
                                  lathe_group **out)
{
    const throttle *const x = self;
    lathe_group *g = NULL;
    *out = NULL;
    if (setup->base == NULL || setup->base_group == NULL)
        return lathe_fail(x->host, LATHE_E_CONFIG,
                          "collective/throttle slows the group of another engine, and got none");
    const lathe_status status = make(x, setup->base, setup->base_group, &g);
    if (g == NULL)
        return status;
    g->own = (world){
        .self = x, .base = setup->base, .stops = setup->stops, .stops_arg = setup->stops_arg};
    g->world = &g->own;
    *out = g;
    return LATHE_OK;
}

static lathe_status throttle_info(const lathe_group *group, lathe_group_info *out)
{
    lathe_copy_sized(out, &group->info, sizeof group->info);
    return LATHE_OK;
}

static lathe_status throttle_split(lathe_group *group, int32_t color, int32_t key,
                                   lathe_group **out)
{
    world *const w = group->world;
    lathe_group *part = NULL, *g = NULL;
    *out = NULL;
    LATHE_TRY(w->base->split(group->base, color, key, &part));
    if (part == NULL)
        return LATHE_OK;
    const lathe_status status = make(w->self, w->base, part, &g);
    if (g == NULL) {
        (void)w->base->close(part);
        return status;
    }
    g->world = w;
    g->is_part = 1;
    *out = g;
    return LATHE_OK;
}

static lathe_status throttle_close(lathe_group *group)
{
    if (group == NULL)
        return LATHE_OK;
    const world *const w = group->world;
    if (w->failed != LATHE_OK)
        return w->failed; /* an exchange of the other engine may be under way in this memory */
    if (group->is_part)
        LATHE_TRY(w->base->close(group->base));
    w->self->host->free(group);
    return LATHE_OK;
}

static void throttle_abort(lathe_group *group, int32_t exit_code)
{
    group->world->base->abort(group->base, exit_code);
}

static lathe_status throttle_traffic(const lathe_group *group, int64_t *out_sent,
                                     int64_t *out_received)
{
    return group->world->base->traffic(group->base, out_sent, out_received);
}

/* ---- exchanges ---- */

static lathe_status throttle_prepare(lathe_group *group, const lathe_exchange_problem *problem,
                                     lathe_exchange **out, lathe_exchange_info *out_info)
{
    const world *const w = group->world;
    const lathe_host *const host = w->self->host;
    lathe_exchange *const x = host->alloc((int64_t)sizeof *x);
    if (x == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an exchange");
    x->group = group;
    x->op = problem->op;
    x->info.size = (uint32_t)sizeof x->info;
    if (problem->label != NULL)
        strncpy(x->label, problem->label, sizeof x->label - 1);
    const lathe_status status = w->base->prepare(group->base, problem, &x->base, &x->info);
    if (status != LATHE_OK) {
        host->free(x);
        return status;
    }
    const int64_t bytes =
        x->info.sent_bytes > x->info.received_bytes ? x->info.sent_bytes : x->info.received_bytes;
    x->seconds = lathe_link_seconds(
        &w->self->link, lathe_link_rounds(problem->op, group->info.n_ranks), (double)bytes);
    lathe_copy_sized(out_info, &x->info, sizeof x->info);
    *out = x;
    return LATHE_OK;
}

static void throttle_exchange_destroy(lathe_exchange *x)
{
    if (x == NULL)
        return;
    x->group->world->base->exchange_destroy(x->base);
    x->group->world->self->host->free(x);
}

/* Puts an exchange that starts at `begin` on the link, in the directions that it uses. Returns when
 * the link has done it. */
static double take_link(world *w, const lathe_exchange *x, double begin)
{
    const int sends = x->info.sent_bytes > 0, receives = x->info.received_bytes > 0;
    if (sends && w->out_free > begin)
        begin = w->out_free;
    if (receives && w->in_free > begin)
        begin = w->in_free;
    const double end = begin + x->seconds;
    if (sends)
        w->out_free = end;
    if (receives)
        w->in_free = end;
    return end;
}

static lathe_status check_world(const world *w)
{
    return w->failed == LATHE_OK ? LATHE_OK
                                 : lathe_fail(w->self->host, w->failed,
                                              "an exchange has failed before; this rank must end");
}

static lathe_status throttle_start(lathe_exchange *x, const lathe_exchange_args *args)
{
    world *const w = x->group->world;
    LATHE_TRY(check_world(w));
    if (x->is_running)
        return lathe_fail(w->self->host, LATHE_E_STATE,
                          "an exchange is started before its last run is done");
    const double begin = now();
    LATHE_TRY(w->base->start(x->base, args));
    x->due = take_link(w, x, begin);
    x->is_running = 1;
    return LATHE_OK;
}

static lathe_status throttle_test(lathe_exchange *x, int32_t *out_done)
{
    world *const w = x->group->world;
    int32_t is_moved = 0;
    LATHE_TRY(check_world(w));
    const lathe_status status = w->base->test(x->base, &is_moved);
    if (status != LATHE_OK)
        return w->failed = status;
    if (is_moved && now() >= x->due)
        x->is_running = 0;
    *out_done = !x->is_running;
    return LATHE_OK;
}

/* The link needs longer than the deadline. */
static lathe_status late(const lathe_exchange *x, double waited)
{
    const lathe_group_info *const g = &x->group->info;
    return lathe_fail(x->group->world->self->host, LATHE_E_RANK,
                      "rank %d of %d on %s: %s%s%s%s: timed out after %.1f s: the link of "
                      "collective/throttle (%s) needs %.3g s for it, and %.3g s more for it and "
                      "what was before it; raise parallel.deadline_seconds or the bandwidth",
                      g->rank, g->n_ranks, g->host_name, lathe_exchange_name(x->op),
                      x->label[0] ? " (" : "", x->label, x->label[0] ? ")" : "", waited,
                      x->group->world->self->text, x->seconds, x->due - now());
}

static void pause_for(double seconds)
{
    const double s = seconds < longest_pause ? seconds : longest_pause;
    const struct timespec pause = {0, (long)(s * 1e9)};
    if (s > 0.0)
        (void)nanosleep(&pause, NULL);
}

/* Waits for the data, then for the link; other exchanges go on meanwhile. */
static lathe_status throttle_wait(lathe_exchange *x, double deadline_seconds)
{
    world *const w = x->group->world;
    const double begin = now();
    int32_t done = 0;
    LATHE_TRY(check_world(w));
    if (!x->is_running)
        return LATHE_OK;
    const lathe_status status = w->base->wait(x->base, deadline_seconds);
    if (status != LATHE_OK)
        return w->failed = status;
    for (;;) {
        LATHE_TRY(throttle_test(x, &done));
        if (done)
            return LATHE_OK;
        const double t = now();
        if (w->stops != NULL && w->stops(w->stops_arg))
            return w->failed = lathe_fail(w->self->host, LATHE_E_INTERRUPTED, "%s: interrupted",
                                          lathe_exchange_name(x->op));
        if (t - begin >= deadline_seconds)
            return w->failed = late(x, t - begin);
        pause_for(x->due - t);
    }
}

/* ---- the plugin ---- */

enum { BANDWIDTH, LATENCY };

static const lathe_field fields[] = {
    LATHE_FIELD_STRING(
        "bandwidth", "\"10Gbit\"", NULL,
        "of a rank's link, per second in each direction; units: bit to Tbit, B to TB"),
    LATHE_FIELD_STRING("latency", "\"0.1ms\"", NULL,
                       "of each round of an exchange; units: ns, us, ms, s"),
};

static lathe_status read_values(const lathe_host *host, throttle *x, const lathe_value *values)
{
    const char *const bandwidth = values[BANDWIDTH].s, *const latency = values[LATENCY].s;
    const char *wrong = lathe_link_read_bandwidth(bandwidth, strlen(bandwidth), &x->link.bandwidth);
    if (wrong != NULL)
        return lathe_fail_at(host, LATHE_E_CONFIG, "bandwidth", "bandwidth is \"%.40s\"; %s",
                             bandwidth, wrong);
    wrong = lathe_link_read_time(latency, strlen(latency), &x->link.latency);
    if (wrong != NULL)
        return lathe_fail_at(host, LATHE_E_CONFIG, "latency", "latency is \"%.40s\"; %s", latency,
                             wrong);
    (void)snprintf(x->text, sizeof x->text, "%.18s %.18s", bandwidth, latency);
    return LATHE_OK;
}

LATHE_INSTANCE(throttle, read_values)

static const lathe_collective_v1 throttle_table = {
    .size = (uint32_t)sizeof throttle_table,
    .revision = LATHE_COLLECTIVE_REVISION,
    .flags = LATHE_COLLECTIVE_NEEDS_BASE,
    .score = throttle_score,
    .open = throttle_open,
    .info = throttle_info,
    .split = throttle_split,
    .close = throttle_close,
    .prepare = throttle_prepare,
    .exchange_destroy = throttle_exchange_destroy,
    .start = throttle_start,
    .test = throttle_test,
    .wait = throttle_wait,
    .traffic = throttle_traffic,
    .abort = throttle_abort,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(throttle),
    .kind = LATHE_KIND_COLLECTIVE,
    .revision = LATHE_COLLECTIVE_REVISION,
    .version = "1.0.0",
    .summary = "makes the exchanges of another engine as slow as a given link",
    .source = "ours; the alpha-beta model of Hockney",
    .license = "Apache-2.0",
};

/* Exchanges of device memory through host memory, by an engine that reaches only that.
 *
 * A run copies its input into pinned memory, lets the other engine exchange it there, and copies
 * the output to the device:
 *
 *   start  the copy to the host is queued on a stream of its own, after the caller's work
 *   wait   it is waited for; the other engine's exchange; the copy to the device
 *
 * The host has to wait for the first copy before it can begin the exchange, so exchanges that are
 * under way together overlap with computation only by their first copies. The other engine moves
 * and adds the data: bits and traffic are its own.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lathe/kit/collective_kit.h"
#include "lathe/kit/instance.h"
#include "lathe/kit/sized_copy.h"

typedef struct staged {
    const lathe_host *host;
} staged;

/* The ranks that were started together. */
typedef struct world {
    const lathe_host *host;
    const lathe_collective_v1 *base;
    const lathe_device_v1 *device;
    void *device_self;
    lathe_stream *stream;  /* of copies; NULL: the caller's, on devices without events */
    lathe_event *event;    /* orders it after the caller's work */
    lathe_exchange *first; /* those that the other engine has not started, in the order of starts */
    lathe_status failed;   /* not LATHE_OK: only abort() may follow */
} world;

struct lathe_group {
    world *world;
    lathe_group *base;
    lathe_group_info info;
    world own;       /* of the group of open() */
    int32_t is_part; /* 1: made by split() */
};

enum { IDLE = 0, COPIED_OUT = 1, MOVING = 2 };

struct lathe_exchange {
    lathe_group *group;
    lathe_exchange *base;
    lathe_exchange *next; /* of world->first */
    lathe_exchange_info info;
    int64_t in_at, in_bytes;   /* of the input in the pinned memory */
    int64_t out_at, out_bytes; /* of the output there */
    int64_t scratch_at, scratch_bytes;
    int32_t state, reserved;
    lathe_exchange_args args;
};

/* ---- groups ---- */

static int32_t staged_score(const lathe_collective_probe *probe, char *why, int64_t why_bytes)
{
    (void)snprintf(why, (size_t)why_bytes,
                   probe->host_memory ? "%s has the host's memory, which needs no copies"
                                      : "copies between %s and the host's memory",
                   probe->device);
    return probe->host_memory ? LATHE_SCORE_NO : LATHE_SCORE_PORTABLE;
}

static lathe_status make(const world *w, lathe_group *of, lathe_group **out)
{
    lathe_group *const g = w->host->alloc((int64_t)sizeof *g);
    if (g == NULL)
        return lathe_fail(w->host, LATHE_E_NOMEM, "no memory for a group");
    g->base = of;
    g->info.size = (uint32_t)sizeof g->info;
    const lathe_status status = w->base->info(of, &g->info);
    if (status != LATHE_OK) {
        w->host->free(g);
        return status;
    }
    char engine[sizeof g->info.engine];
    (void)snprintf(engine, sizeof engine, "staged over %.50s", g->info.engine);
    memcpy(g->info.engine, engine, sizeof engine);
    *out = g;
    return LATHE_OK;
}

static int has_events(const lathe_device_v1 *device)
{
    return LATHE_HAS(device, stream_create) && LATHE_HAS(device, event_record) &&
           LATHE_HAS(device, event_wait) && LATHE_HAS(device, event_destroy);
}

static void world_fini(const world *w)
{
    if (w->stream != NULL && LATHE_HAS(w->device, sync)) /* copies of exchanges that failed */
        (void)w->device->sync(w->device_self, w->stream);
    if (w->event != NULL)
        w->device->event_destroy(w->device_self, w->event);
    if (w->stream != NULL)
        w->device->stream_destroy(w->device_self, w->stream);
}

static lathe_status staged_open(void *self, const lathe_collective_setup *setup, lathe_group **out)
{
    const staged *const x = self;
    lathe_group *g = NULL;
    *out = NULL;
    if (setup->base == NULL || setup->base_group == NULL)
        return lathe_fail(x->host, LATHE_E_CONFIG,
                          "collective/staged needs the group of another engine, and got none");
    if (setup->device == NULL)
        return lathe_fail(x->host, LATHE_E_CONFIG,
                          "collective/staged is for devices with memory of their own");
    world w = {.host = x->host,
               .base = setup->base,
               .device = setup->device,
               .device_self = setup->device_self};
    if (has_events(w.device))
        LATHE_TRY(w.device->stream_create(w.device_self, &w.stream));
    const lathe_status status = make(&w, setup->base_group, &g);
    if (g == NULL) {
        world_fini(&w);
        return status;
    }
    g->own = w;
    g->world = &g->own;
    *out = g;
    return LATHE_OK;
}

static lathe_status staged_info(const lathe_group *group, lathe_group_info *out)
{
    lathe_copy_sized(out, &group->info, sizeof group->info);
    return LATHE_OK;
}

static lathe_status staged_split(lathe_group *group, int32_t color, int32_t key, lathe_group **out)
{
    world *const w = group->world;
    lathe_group *part = NULL, *g = NULL;
    *out = NULL;
    LATHE_TRY(w->base->split(group->base, color, key, &part));
    if (part == NULL)
        return LATHE_OK;
    const lathe_status status = make(w, part, &g);
    if (g == NULL) {
        (void)w->base->close(part);
        return status;
    }
    g->world = w;
    g->is_part = 1;
    *out = g;
    return LATHE_OK;
}

static lathe_status staged_close(lathe_group *group)
{
    if (group == NULL)
        return LATHE_OK;
    world *const w = group->world;
    const lathe_host *const host = w->host;
    if (group->is_part && w->failed == LATHE_OK)
        LATHE_TRY(w->base->close(group->base));
    if (!group->is_part)
        world_fini(w);
    host->free(group);
    return LATHE_OK;
}

static void staged_abort(lathe_group *group, int32_t exit_code)
{
    group->world->base->abort(group->base, exit_code);
}

static lathe_status staged_traffic(const lathe_group *group, int64_t *out_sent,
                                   int64_t *out_received)
{
    return group->world->base->traffic(group->base, out_sent, out_received);
}

/* ---- exchanges ---- */

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Places input and output in the pinned memory: in one place wherever an exchange may have them in
 * one. Returns the bytes. */
static int64_t place(lathe_exchange *x, const lathe_exchange_problem *p)
{
    const lathe_group_info *const g = &x->group->info;
    const int64_t width = p->op == LATHE_BARRIER ? 0 : lathe_dtype_bytes(p->dtype);
    const int extents = p->op == LATHE_REDUCE_SCATTER || p->op == LATHE_ALL_GATHER;
    int64_t own = 0;
    x->in_bytes = lathe_exchange_in(p, g->rank, g->n_ranks) * width;
    x->out_bytes = lathe_exchange_out(p, g->rank, g->n_ranks) * width;
    for (int32_t q = 0; extents && q < g->rank; q++)
        own += lathe_exchange_extent(p, q, g->n_ranks) * width;
    if (p->op == LATHE_ALL_GATHER)
        x->in_at = own;
    if (p->op == LATHE_REDUCE_SCATTER)
        x->out_at = own;
    if (p->op == LATHE_ALL_TO_ALL)
        x->out_at = round_up(x->in_bytes);
    const int64_t in_end = x->in_at + x->in_bytes, out_end = x->out_at + x->out_bytes;
    return round_up(in_end > out_end ? in_end : out_end);
}

static lathe_status staged_prepare(lathe_group *group, const lathe_exchange_problem *problem,
                                   lathe_exchange **out, lathe_exchange_info *out_info)
{
    const world *const w = group->world;
    *out = NULL;
    LATHE_TRY(lathe_exchange_check(w->host, problem, group->info.rank, group->info.n_ranks));
    lathe_exchange *const x = w->host->alloc((int64_t)sizeof *x);
    if (x == NULL)
        return lathe_fail(w->host, LATHE_E_NOMEM, "no memory for an exchange");
    x->group = group;
    x->info.size = (uint32_t)sizeof x->info;
    const lathe_status status = w->base->prepare(group->base, problem, &x->base, &x->info);
    if (status != LATHE_OK) {
        w->host->free(x);
        return status;
    }
    x->scratch_at = place(x, problem);
    x->scratch_bytes = x->info.scratch_bytes;
    x->info.pinned_bytes = x->scratch_at + round_up(x->scratch_bytes);
    x->info.scratch_bytes = 0;
    lathe_copy_sized(out_info, &x->info, sizeof x->info);
    *out = x;
    return LATHE_OK;
}

static void staged_exchange_destroy(lathe_exchange *x)
{
    if (x == NULL)
        return;
    x->group->world->base->exchange_destroy(x->base);
    x->group->world->host->free(x);
}

static lathe_status check_world(const world *w)
{
    return w->failed == LATHE_OK ? LATHE_OK
                                 : lathe_fail(w->host, w->failed,
                                              "an exchange has failed before; this rank must end");
}

/* The stream on which an exchange copies. */
static lathe_stream *stream_of(const lathe_exchange *x)
{
    const world *const w = x->group->world;
    return w->stream != NULL ? w->stream : x->args.stream;
}

static lathe_status sync(const world *w, lathe_stream *stream)
{
    return LATHE_HAS(w->device, sync) ? w->device->sync(w->device_self, stream) : LATHE_OK;
}

static lathe_status staged_start(lathe_exchange *x, const lathe_exchange_args *args)
{
    world *const w = x->group->world;
    LATHE_TRY(check_world(w));
    if (x->state != IDLE)
        return lathe_fail(w->host, LATHE_E_STATE,
                          "an exchange is started before its last run is done");
    if ((args->in == NULL && x->in_bytes > 0) || (args->out == NULL && x->out_bytes > 0) ||
        (args->pinned == NULL && x->info.pinned_bytes > 0))
        return lathe_fail(w->host, LATHE_E_ARG, "an exchange is started without its memory");
    x->args = *args;
    if (w->stream != NULL) {
        LATHE_TRY(w->device->event_record(w->device_self, args->stream, &w->event));
        LATHE_TRY(w->device->event_wait(w->device_self, w->stream, w->event));
    }
    if (x->in_bytes > 0)
        LATHE_TRY(w->device->copy(w->device_self, stream_of(x), (char *)args->pinned + x->in_at,
                                  args->in, x->in_bytes, LATHE_COPY_TO_HOST));
    x->state = COPIED_OUT;
    x->next = NULL;
    lathe_exchange **at = &w->first;
    while (*at != NULL)
        at = &(*at)->next;
    *at = x;
    return LATHE_OK;
}

/* Lets the other engine start an exchange whose input is in the host's memory. */
static lathe_status move(lathe_exchange *x)
{
    const world *const w = x->group->world;
    char *const pinned = x->args.pinned;
    const lathe_exchange_args args = {.size = (uint32_t)sizeof args,
                                      .in = x->in_bytes > 0 ? pinned + x->in_at : NULL,
                                      .out = x->out_bytes > 0 ? pinned + x->out_at : NULL,
                                      .scratch =
                                          x->scratch_bytes > 0 ? pinned + x->scratch_at : NULL};
    LATHE_TRY(w->base->start(x->base, &args));
    x->state = MOVING;
    return LATHE_OK;
}

/* All ranks start the exchanges of the other engine in the order of their own starts, so those
 * before x start too. */
static lathe_status move_up_to(const lathe_exchange *x)
{
    world *const w = x->group->world;
    LATHE_TRY(sync(w, stream_of(x)));
    while (x->state == COPIED_OUT) {
        lathe_exchange *const first = w->first;
        if (w->stream == NULL) /* it may have been started on another stream than x */
            LATHE_TRY(sync(w, stream_of(first)));
        LATHE_TRY(move(first));
        w->first = first->next;
    }
    return LATHE_OK;
}

/* Whether it is done, without waiting for the device: then the other engine has not begun. */
static lathe_status staged_test(lathe_exchange *x, int32_t *out_done)
{
    world *const w = x->group->world;
    LATHE_TRY(check_world(w));
    *out_done = x->state == IDLE;
    if (x->state != MOVING)
        return LATHE_OK;
    int32_t is_moved = 0; /* its output is not on the device before wait() */
    const lathe_status status = w->base->test(x->base, &is_moved);
    return status == LATHE_OK ? LATHE_OK : (w->failed = status);
}

static lathe_status finish(lathe_exchange *x, double deadline_seconds)
{
    const world *const w = x->group->world;
    LATHE_TRY(move_up_to(x));
    LATHE_TRY(w->base->wait(x->base, deadline_seconds));
    if (x->out_bytes > 0) {
        LATHE_TRY(w->device->copy(w->device_self, stream_of(x), x->args.out,
                                  (const char *)x->args.pinned + x->out_at, x->out_bytes,
                                  LATHE_COPY_TO_DEVICE));
        LATHE_TRY(sync(w, stream_of(x)));
    }
    x->state = IDLE;
    return LATHE_OK;
}

static lathe_status staged_wait(lathe_exchange *x, double deadline_seconds)
{
    world *const w = x->group->world;
    LATHE_TRY(check_world(w));
    if (x->state == IDLE)
        return LATHE_OK;
    const lathe_status status = finish(x, deadline_seconds);
    return status == LATHE_OK ? LATHE_OK : (w->failed = status);
}

/* ---- the plugin ---- */

LATHE_INSTANCE_PLAIN(staged)

static const lathe_collective_v1 staged_table = {
    .size = (uint32_t)sizeof staged_table,
    .revision = LATHE_COLLECTIVE_REVISION,
    .flags = LATHE_COLLECTIVE_NEEDS_BASE | LATHE_COLLECTIVE_FOR_DEVICES,
    .score = staged_score,
    .open = staged_open,
    .info = staged_info,
    .split = staged_split,
    .close = staged_close,
    .prepare = staged_prepare,
    .exchange_destroy = staged_exchange_destroy,
    .start = staged_start,
    .test = staged_test,
    .wait = staged_wait,
    .traffic = staged_traffic,
    .abort = staged_abort,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE_PLAIN(staged),
    .kind = LATHE_KIND_COLLECTIVE,
    .revision = LATHE_COLLECTIVE_REVISION,
    .version = "1.0.0",
    .summary = "exchanges of device memory through the host's, by another engine",
    .source = "ours",
    .license = "Apache-2.0",
};

/* Checks of a device's streams: a copy on a second stream, ordered with the first stream by events
 * only, plain and captured; and the time between two events. */
#include <string.h>

#include "base/error.h"
#include "check/device/device_checks.h"
#include "check/harness/subject.h"
#include "exec/program/exec.h"

enum { N = 1 << 18 }; /* f32: large enough that work without a wait would overtake the copy */

typedef struct streams {
    lathe_instance instance;
    const lathe_device_v1 *table;
    lathe_device_info info;
    lathe_stream *first, *second;
    lathe_event *made, *copied;
    void *device;
    float *from, *to, *next; /* pinned */
} streams;

static lathe_status streams_init(streams *x)
{
    void *const self = x->instance.self;
    void **const memory[] = {(void **)&x->from, (void **)&x->to, (void **)&x->next};
    LATHE_TRY(x->table->info(self, &x->info));
    LATHE_TRY(x->table->stream_create(self, &x->first));
    LATHE_TRY(x->table->stream_create(self, &x->second));
    LATHE_TRY(x->table->alloc(self, N * 4, LATHE_MEM_DEVICE, &x->device));
    for (int i = 0; i < 3; i++)
        LATHE_TRY(x->table->alloc(self, N * 4, LATHE_MEM_HOST_PINNED, memory[i]));
    return LATHE_OK;
}

static void streams_fini(streams *x)
{
    void *const self = x->instance.self;
    void *const memory[] = {x->device, x->from, x->to, x->next};
    lathe_event *const events[] = {x->made, x->copied};
    lathe_stream *const all[] = {x->first, x->second};
    for (int i = 0; i < 4; i++)
        if (memory[i])
            x->table->free(self, memory[i]);
    for (int i = 0; i < 2; i++)
        if (events[i])
            x->table->event_destroy(self, events[i]);
    for (int i = 0; i < 2; i++)
        if (all[i])
            x->table->stream_destroy(self, all[i]);
    lathe_instance_fini(&x->instance);
}

/* Copies `from` to the device, copies it on the second stream to `to`, then copies `next` to the
 * same device memory. */
static lathe_status queue_round(streams *x)
{
    const lathe_device_v1 *t = x->table;
    void *const self = x->instance.self;
    LATHE_TRY(t->copy(self, x->first, x->device, x->from, N * 4, LATHE_COPY_TO_DEVICE));
    LATHE_TRY(t->event_record(self, x->first, &x->made));
    LATHE_TRY(t->event_wait(self, x->second, x->made));
    LATHE_TRY(t->copy(self, x->second, x->to, x->device, N * 4, LATHE_COPY_TO_HOST));
    LATHE_TRY(t->event_record(self, x->second, &x->copied));
    LATHE_TRY(t->event_wait(self, x->first, x->copied));
    return t->copy(self, x->first, x->device, x->next, N * 4, LATHE_COPY_TO_DEVICE);
}

static lathe_status check_round(lathe__subject *s, streams *x, uint64_t seed,
                                lathe_capture *capture)
{
    memcpy(x->from, lathe__random(s, N, seed, 1.0), N * 4);
    memset(x->next, 0x7f, N * 4);
    memset(x->to, 0, N * 4);
    LATHE_TRY(capture ? x->table->capture_launch(x->instance.self, capture, x->first)
                      : queue_round(x));
    LATHE_TRY(x->table->sync(x->instance.self, x->first));
    if (!lathe__same(x->to, x->from, N * 4))
        return lathe_error(LATHE_E_PLUGIN, "a copy on a second stream, %s: events do not order it",
                           capture ? "captured" : "queued");
    return LATHE_OK;
}

static lathe_status check_captured(lathe__subject *s, streams *x)
{
    lathe_capture *capture = NULL;
    LATHE_TRY(x->table->capture_begin(x->instance.self, x->first));
    lathe_status status = queue_round(x);
    if (status == LATHE_OK)
        status = x->table->capture_end(x->instance.self, x->first, &capture);
    else
        (void)x->table->capture_end(x->instance.self, x->first, &capture);
    for (uint64_t seed = 3; seed < 6 && status == LATHE_OK; seed++)
        status = check_round(s, x, seed, capture);
    if (capture)
        x->table->capture_destroy(x->instance.self, capture);
    return status;
}

lathe_status lathe__streams_in_order(lathe__subject *s)
{
    char why[256] = "";
    streams x = {.table = s->table, .info = {.size = sizeof x.info}};
    if (x.table->score(why, sizeof why) == LATHE_SCORE_NO)
        return lathe__skip(s, "not on this machine: %s", why);
    if (!LATHE_HAS(x.table, stream_create) || !LATHE_HAS(x.table, event_record) ||
        !LATHE_HAS(x.table, event_wait))
        return lathe__skip(s, "no streams with events");
    LATHE_TRY(lathe__instance(s, &x.instance));
    lathe_status status = streams_init(&x);
    for (uint64_t seed = 1; seed < 3 && status == LATHE_OK; seed++)
        status = check_round(s, &x, seed, NULL);
    const int captures = LATHE_HAS(x.table, capture_begin) && x.info.capture_events;
    if (status == LATHE_OK && captures)
        status = check_captured(s, &x);
    lathe__note(s, "queued%s", captures ? " and captured" : "");
    streams_fini(&x);
    return status;
}

/* Measures a copy between two events: the time must not be negative, and not longer than the host
 * measures. */
static lathe_status time_a_copy(const lathe_device_v1 *t, streams *x)
{
    void *const self = x->instance.self;
    double seconds = -1.0;
    const double begin = lathe_now();
    LATHE_TRY(t->event_stamp(self, x->first, &x->made));
    LATHE_TRY(t->copy(self, x->first, x->device, x->from, N * 4, LATHE_COPY_TO_DEVICE));
    LATHE_TRY(t->event_stamp(self, x->first, &x->copied));
    LATHE_TRY(t->sync(self, x->first));
    const double around = lathe_now() - begin;
    LATHE_TRY(t->event_seconds(self, x->made, x->copied, &seconds));
    if (!(seconds >= 0.0 && seconds <= around + 1e-3))
        return lathe_error(LATHE_E_NUMERIC, "a copy took %g s, within %g s of the host's clock",
                           seconds, around);
    return LATHE_OK;
}

lathe_status lathe__events_tell_time(lathe__subject *s)
{
    char why[256] = "";
    streams x = {.table = s->table, .info = {.size = sizeof x.info}};
    if (x.table->score(why, sizeof why) == LATHE_SCORE_NO)
        return lathe__skip(s, "not on this machine: %s", why);
    if (!LATHE_HAS(x.table, event_stamp) && !LATHE_HAS(x.table, event_seconds))
        return lathe__skip(s, "it tells no time");
    if (!LATHE_HAS(x.table, event_stamp) || !LATHE_HAS(x.table, event_seconds))
        return lathe_error(LATHE_E_PLUGIN, "event_stamp or event_seconds without the other");
    if (!LATHE_HAS(x.table, stream_create) || !LATHE_HAS(x.table, event_destroy) ||
        !LATHE_HAS(x.table, sync))
        return lathe_error(LATHE_E_PLUGIN, "times without streams, event_destroy and sync");
    LATHE_TRY(lathe__instance(s, &x.instance));
    lathe_status status = streams_init(&x);
    for (int i = 0; i < 2 && status == LATHE_OK;
         i++) /* the second time reuses the events of the first */
        status = time_a_copy(x.table, &x);
    streams_fini(&x);
    return status;
}

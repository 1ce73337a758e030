/* The far device: runs the kernels of the best CPU device from a lazy queue, on memory of its own.
 *
 * Nothing runs before sync(): a core that reads too early, or overwrites what a copy has not yet
 * read, gets wrong numbers. Device memory is PROT_NONE except while the queue runs: a core that
 * reads it gets SIGSEGV. A capture is a stored queue, one for each stream that has joined it by an
 * event. A launch runs them like streams: of the others only what the first waits for, or with
 * `eager` as much as events allow.
 *
 * far_unified has unified memory: it is closed only from the first queued work of the first stream
 * to the next sync() of it.
 *
 * Of several streams, only the one that is waited for runs, and of the others what it waits for by
 * events: work that something needs without waiting for an event is not done yet. With `eager`,
 * every stream except the first runs as far as events allow as soon as work is queued: work that
 * does not wait for what it needs runs too early. `deaf` ignores waits, to show that a test of the
 * order would fail without them.
 *
 * Above 500 lines because streams, events and captures are one state machine over private structs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "far_memory.h"
#include "far_queue.h"
#include "lathe/fp8.h"

/* The CPU device's kernel and the number of its input and output pointers. */
struct lathe_kernel {
    lathe_kernel *real;
    int32_t n_in, n_out;
};

enum { MAX_STREAMS = 4 };

#ifndef FAR_CLOCK /* -1: time runs backwards */
#define FAR_CLOCK 1
#endif
#ifndef FAR_MEMORY
#define FAR_MEMORY LATHE_MEMORY_OWN
#endif
#ifndef FAR_LACKS /* bit (1 << op): the device has no such kernel */
#define FAR_LACKS UINT64_C(0)
#endif

struct lathe_capture {
    struct far_device *device;
    int64_t serial;
    int32_t first; /* stream on which it began */
    far_queue queues[MAX_STREAMS];
};

typedef struct far_stream {
    lathe_stream base;
    struct far_device *device;
    far_queue queue;
    lathe_capture *capture; /* NULL: no capture in progress */
    int32_t is_open;
} far_stream;

/* The position in a stream at its last record. */
struct lathe_event {
    far_stream *stream;
    int64_t n_done;
    int64_t capture;         /* capture in which it was recorded; 0: none */
    struct far_stamp *stamp; /* NULL: no time */
};

/* The time at which a stream passed an event. Lives as long as the device, because the work that
 * sets it may outlive the event. */
typedef struct far_stamp {
    struct far_stamp *next;
    double seconds;
    int32_t is_there;
} far_stamp;

typedef struct far_device {
    const lathe_host *host;
    const lathe_plugin *real;
    const lathe_device_v1 *cpu;
    void *cpu_self;
    far_memory memory;
    far_stream streams[MAX_STREAMS]; /* the first one stands for NULL, before any is created */
    int32_t n_streams;
    int32_t n_events;
    int32_t is_eager, captures_events;
    int64_t n_captures, deaf;
    far_stamp *stamps;
    int64_t free_bytes;
} far_device;

enum {
    FIELD_FREE_BYTES,
    FIELD_INDEX,
    FIELD_MEMORY_LIMIT,
    FIELD_EAGER,
    FIELD_CAPTURE_EVENTS,
    FIELD_DEAF,
    N_FIELDS
};

static const lathe_field fields[N_FIELDS] = {
    {"free_bytes", LATHE_T_INT, 0, "1073741824", 0, 1e18, NULL, "bytes", "memory that is free"},
    {"index", LATHE_T_INT, 0, "0", 0, 0, NULL, NULL, "which of the machine's devices"},
    {"memory_limit", LATHE_T_INT, 0, "0", 0, 1e18, NULL, "bytes",
     "memory that a run may take; 0: all that is free"},
    {"eager", LATHE_T_BOOL, 0, "false", 0, 0, NULL, NULL,
     "streams but the first run as soon as they may"},
    {"capture_events", LATHE_T_BOOL, 0, "true", 0, 0, NULL, NULL, "events may lie within captures"},
    {"deaf", LATHE_T_INT, 0, "0", 0, 1e18, NULL, NULL,
     "4 a + b: stream a does not wait for stream b, counted from 0 as they were made; 0: all do"},
};

static const lathe_plugin *best_cpu(void)
{
    static const char *const names[] = {"cpu_avx512_bf16", "cpu_avx512", "cpu_avx2"};
    char why[128];
    for (int i = 0; i < 3; i++) {
        const lathe_plugin *p = far_real_plugin("device", names[i]);
        if (((const lathe_device_v1 *)p->table)->score(why, sizeof why) > 0)
            return p;
    }
    return NULL;
}

/* ---- events ---- */

typedef struct wait_args {
    far_stream *stream;
    int64_t n_done;
} wait_args;

static lathe_status run_wait(const void *args)
{
    const wait_args *a = args;
    return far_queue_drain(&a->stream->queue, a->n_done);
}

/* Whether the first call of the queue can run now: it is not a wait, or its wait is satisfied. */
static int is_ready(const far_stream *s)
{
    if (s->queue.n == 0)
        return 0;
    const far_item *first = &s->queue.items[s->queue.first];
    const wait_args *a = (const void *)first->args;
    return first->call != run_wait || a->stream->queue.n_done >= a->n_done;
}

/* Runs every stream except the first as far as possible. */
static lathe_status run_eagerly(far_device *d)
{
    lathe_status status = LATHE_OK;
    int moved = d->is_eager;
    far_memory_open(&d->memory);
    while (moved && status == LATHE_OK) {
        moved = 0;
        for (int32_t i = 1; i < MAX_STREAMS; i++) {
            far_stream *s = &d->streams[i];
            while (status == LATHE_OK && is_ready(s)) {
                status = far_queue_drain(&s->queue, s->queue.n_done + 1);
                moved = 1;
            }
        }
    }
    far_memory_close(&d->memory);
    return status;
}

/* ---- the queue ---- */

static lathe_status queue(far_device *d, lathe_stream *stream, far_call call, const void *args,
                          int64_t bytes)
{
    far_stream *s = stream ? (far_stream *)(void *)stream : &d->streams[0];
    if (d->n_streams > 0 && !stream)
        return lathe_fail(d->host, LATHE_E_ARG, "far: queued on no stream, though there is one");
    if (s->capture)
        return far_queue_push(&s->capture->queues[s - d->streams], call, args, bytes);
    if (s == &d->streams[0])
        far_memory_rest(&d->memory, 0);
    LATHE_TRY(far_queue_push(&s->queue, call, args, bytes));
    return d->is_eager && s != &d->streams[0] ? run_eagerly(d) : LATHE_OK;
}

static lathe_status event_record(void *self, lathe_stream *stream, lathe_event **io_event)
{
    far_device *d = self;
    far_stream *s = (far_stream *)(void *)stream;
    if (s->capture && !d->captures_events)
        return lathe_fail(d->host, LATHE_E_STATE, "far: an event within a capture");
    if (!*io_event) {
        *io_event = calloc(1, sizeof **io_event);
        if (!*io_event)
            return lathe_fail(d->host, LATHE_E_NOMEM, "far: no memory for an event");
        d->n_events++;
    }
    const far_queue *q = s->capture ? &s->capture->queues[s - d->streams] : &s->queue;
    **io_event = (lathe_event){
        .stream = s, .n_done = q->n_done + q->n, .capture = s->capture ? s->capture->serial : 0};
    return LATHE_OK;
}

/* In a capture: a stream that waits for an event of the capture belongs to the capture from then
 * on. */
static lathe_status event_wait(void *self, lathe_stream *stream, lathe_event *event)
{
    far_device *d = self;
    far_stream *s = (far_stream *)(void *)stream;
    const wait_args args = {event->stream, event->n_done};
    lathe_capture *const in = event->stream->capture;
    const int64_t there = in ? in->serial : 0;
    if (d->deaf == MAX_STREAMS * (s - d->streams) + (event->stream - d->streams))
        return LATHE_OK;
    if (event->capture && event->capture != there)
        return lathe_fail(d->host, LATHE_E_STATE, "far: waits for a mark of a capture that ended");
    if (!event->capture && s->capture)
        return lathe_fail(d->host, LATHE_E_STATE, "far: a capture waits for what is not in it");
    if (event->capture && s->capture && s->capture != in)
        return lathe_fail(d->host, LATHE_E_STATE, "far: a capture waits for another one");
    if (event->capture)
        s->capture = in;
    return queue(d, stream, run_wait, &args, (int64_t)sizeof args);
}

static lathe_status run_stamp(const void *args)
{
    far_stamp *stamp = *(far_stamp *const *)args;
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    stamp->seconds = FAR_CLOCK * ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    stamp->is_there = 1;
    return LATHE_OK;
}

static lathe_status event_stamp(void *self, lathe_stream *stream, lathe_event **io_event)
{
    far_device *d = self;
    if (((far_stream *)(void *)stream)->capture)
        return lathe_fail(d->host, LATHE_E_STATE, "far: an event with a time within a capture");
    far_stamp *stamp = *io_event ? (*io_event)->stamp : calloc(1, sizeof *stamp);
    if (!stamp)
        return lathe_fail(d->host, LATHE_E_ARG, "far: an event without a time, or no memory");
    if (!*io_event) {
        stamp->next = d->stamps;
        d->stamps = stamp;
    }
    stamp->is_there = 0;
    LATHE_TRY(queue(d, stream, run_stamp, &stamp, (int64_t)sizeof stamp));
    LATHE_TRY(event_record(self, stream, io_event));
    (*io_event)->stamp = stamp;
    return LATHE_OK;
}

static lathe_status event_seconds(void *self, lathe_event *from, lathe_event *to,
                                  double *out_seconds)
{
    const far_device *d = self;
    if (!from->stamp || !to->stamp)
        return lathe_fail(d->host, LATHE_E_ARG, "far: an event without a time");
    if (!from->stamp->is_there || !to->stamp->is_there)
        return lathe_fail(d->host, LATHE_E_STATE, "far: an event that is still to come");
    *out_seconds = to->stamp->seconds - from->stamp->seconds;
    return LATHE_OK;
}

static void event_destroy(void *self, lathe_event *event)
{
    far_device *d = self;
    d->n_events--;
    free(event);
}

/* ---- queued work ---- */

typedef struct copy_args {
    void *dst;
    const void *src;
    int64_t bytes;
} copy_args;

static lathe_status run_copy(const void *args)
{
    const copy_args *a = args;
    memcpy(a->dst, a->src, (size_t)a->bytes);
    return LATHE_OK;
}

typedef struct kernel_args {
    far_device *device;
    lathe_kernel *real;
    uint32_t accumulate;
    const void *in[LATHE_OP_MAX_IN];
    void *out[LATHE_OP_MAX_OUT];
    void *scratch;
} kernel_args;

static lathe_status run_kernel(const void *args)
{
    const kernel_args *a = args;
    const lathe_kernel_args real = {.size = (uint32_t)sizeof real,
                                    .accumulate = a->accumulate,
                                    .in = a->in,
                                    .out = a->out,
                                    .scratch = a->scratch};
    return a->device->cpu->kernel_run(a->device->cpu_self, a->real, &real);
}

typedef struct launch_args {
    const far_kernel *kernel;
    int64_t n_blocks;
    int32_t n_threads;
    _Alignas(16) char args[512]; /* a struct of the plugin */
} launch_args;

static lathe_status run_launch(const void *args)
{
    const launch_args *a = args;
    a->kernel->fn(a->n_blocks, a->n_threads, a->args);
    return LATHE_OK;
}

/* Progress of a capture's launch: number of items done per stream. With calls == 0 items are
 * counted but not called. */
typedef struct capture_run {
    const lathe_capture *capture;
    int64_t done[MAX_STREAMS];
    int32_t calls;
} capture_run;

/* Runs a captured stream up to item n, and the items of other streams that it waits for. */
static lathe_status run_captured(capture_run *r, int64_t stream, int64_t n)
{
    const far_queue *q = &r->capture->queues[stream];
    while (r->done[stream] < n) {
        const far_item *next = &q->items[q->first + r->done[stream]++];
        const wait_args *wait = (const void *)next->args;
        if (next->call == run_wait)
            LATHE_TRY(run_captured(r, wait->stream - r->capture->device->streams, wait->n_done));
        else if (r->calls)
            LATHE_TRY(next->call(next->args));
    }
    return LATHE_OK;
}

/* With `eager`: runs every stream except the first as far as possible. */
static lathe_status run_captured_eagerly(capture_run *r)
{
    const far_stream *streams = r->capture->device->streams;
    for (int moved = r->capture->device->is_eager; moved;) {
        moved = 0;
        for (int32_t i = 0; i < MAX_STREAMS; i++) {
            const far_queue *q = &r->capture->queues[i];
            while (i != r->capture->first && r->done[i] < q->n) {
                const far_item *next = &q->items[q->first + r->done[i]];
                const wait_args *wait = (const void *)next->args;
                if (next->call == run_wait && r->done[wait->stream - streams] < wait->n_done)
                    break;
                LATHE_TRY(run_captured(r, i, r->done[i] + 1));
                moved = 1;
            }
        }
    }
    return LATHE_OK;
}

static lathe_status run_capture(const void *args)
{
    capture_run r = {.capture = *(lathe_capture *const *)args, .calls = 1};
    const int32_t first = r.capture->first;
    LATHE_TRY(run_captured_eagerly(&r));
    while (r.done[first] < r.capture->queues[first].n) {
        LATHE_TRY(run_captured(&r, first, r.done[first] + 1));
        LATHE_TRY(run_captured_eagerly(&r));
    }
    return LATHE_OK;
}

/* ---- the table ---- */

static int32_t score(char *why, int64_t why_bytes)
{
    const char *machine = getenv("LATHE_FAR"); /* "gone": a machine that cannot run it */
    if (machine && strcmp(machine, "gone") == 0) {
        (void)snprintf(why, (size_t)why_bytes, "it is gone");
        return LATHE_SCORE_NO;
    }
    (void)snprintf(why, (size_t)why_bytes, "for tests: the CPU's kernels on memory of their own");
    return best_cpu() ? 1 : LATHE_SCORE_NO;
}

static lathe_status info(void *self, lathe_device_info *out)
{
    const far_device *d = self;
    lathe_device_info full = {.size = (uint32_t)sizeof full};
    LATHE_TRY(d->cpu->info(d->cpu_self, &full));
    full.size = out->size;
    full.host_memory = FAR_MEMORY;
    full.activations = 0; /* these need packed weights, which the core gives no such device */
    full.capture_events = d->captures_events;
    full.graph_dtypes |= 1u << LATHE_F8_E4M3; /* the CPU's kernels support it, for tests */
    full.fp8_recipes = 1u << LATHE_FP8_TENSORWISE;
    full.memory_free_bytes = d->free_bytes;
    full.memory_bytes = (int64_t)1 << 40;
    (void)snprintf(full.model, sizeof full.model, "far away");
    (void)snprintf(full.isa, sizeof full.isa, "far");
    (void)snprintf(full.driver, sizeof full.driver, "far 1");
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
    return LATHE_OK;
}

static lathe_status alloc(void *self, int64_t bytes, int32_t memory, void **out)
{
    far_device *d = self;
    if (memory != LATHE_MEM_DEVICE && memory != LATHE_MEM_HOST_PINNED)
        return lathe_fail(d->host, LATHE_E_ARG, "far: memory of kind %d", memory);
    *out = far_memory_alloc(&d->memory, bytes, memory == LATHE_MEM_HOST_PINNED);
    return *out ? LATHE_OK
                : lathe_fail(d->host, LATHE_E_NOMEM, "far: no memory for %lld bytes",
                             (long long)bytes);
}

static void release(void *self, void *memory)
{
    far_device *d = self;
    if (memory && !far_memory_free(&d->memory, memory))
        abort();
}

/* Which end must be device memory, by direction: bit 0 the destination, bit 1 the source. */
static lathe_status copy(void *self, lathe_stream *stream, void *dst, const void *src,
                         int64_t bytes, int32_t direction)
{
    far_device *d = self;
    static const int ends[3] = {1, 2, 3};
    const far_block *to = far_memory_find(&d->memory, dst, bytes);
    const far_block *from = far_memory_find(&d->memory, src, bytes);
    const int device_ends = (to && !to->is_pinned) | (from && !from->is_pinned ? 2 : 0);
    if (direction < 0 || direction > 2 || device_ends != ends[direction])
        return lathe_fail(d->host, LATHE_E_ARG, "far: a copy of %lld bytes in direction %d",
                          (long long)bytes, direction);
    const far_stream *s = stream ? (far_stream *)(void *)stream : &d->streams[0];
    if (s->capture && direction != LATHE_COPY_ON_DEVICE &&
        !(direction == LATHE_COPY_TO_DEVICE ? from : to))
        return lathe_fail(d->host, LATHE_E_ARG, "far: memory that is not pinned in a capture");
    const copy_args args = {dst, src, bytes};
    return queue(d, stream, run_copy, &args, (int64_t)sizeof args);
}

static lathe_status enqueue(lathe_stream *stream, far_call call, const void *args, int64_t bytes)
{
    far_stream *s = (far_stream *)(void *)stream;
    return queue(s->device, stream, call, args, bytes);
}

static lathe_status stream_create(void *self, lathe_stream **out)
{
    far_device *d = self;
    int32_t i = 0;
    while (i < MAX_STREAMS && d->streams[i].is_open)
        i++;
    if (i == MAX_STREAMS)
        return lathe_fail(d->host, LATHE_E_UNSUPPORTED, "far: %d streams are all there are",
                          MAX_STREAMS);
    d->streams[i].is_open = 1;
    d->n_streams++;
    *out = &d->streams[i].base;
    return LATHE_OK;
}

static void stream_destroy(void *self, lathe_stream *stream)
{
    far_device *d = self;
    far_stream *s = (far_stream *)(void *)stream;
    far_queue_clear(&s->queue);
    s->is_open = 0;
    d->n_streams--;
}

static lathe_status sync(void *self, lathe_stream *stream)
{
    far_device *d = self;
    far_stream *s = stream ? (far_stream *)(void *)stream : &d->streams[0];
    if (s->capture)
        return lathe_fail(d->host, LATHE_E_STATE, "far: waited for within a capture");
    far_memory_open(&d->memory);
    lathe_status status = far_queue_drain(&s->queue, s->queue.n_done + s->queue.n);
    far_memory_close(&d->memory);
    if (FAR_MEMORY == LATHE_MEMORY_UNIFIED && s == &d->streams[0])
        far_memory_rest(&d->memory, 1);
    if (status == LATHE_OK)
        status = run_eagerly(d);
    if (status != LATHE_OK)
        far_queue_clear(&s->queue);
    return status;
}

static lathe_status kernel_create(void *self, const lathe_kernel_problem *problem,
                                  lathe_kernel **out, int64_t *out_scratch_bytes)
{
    far_device *d = self;
    if (problem->op >= 0 && problem->op < 64 && FAR_LACKS >> problem->op & 1)
        return lathe_fail(d->host, LATHE_E_UNSUPPORTED, "far: no kernel for op %d", problem->op);
    lathe_kernel *k = calloc(1, sizeof *k);
    if (!k)
        return lathe_fail(d->host, LATHE_E_NOMEM, "far: no memory for a kernel");
    const lathe_status status =
        d->cpu->kernel_create(d->cpu_self, problem, &k->real, out_scratch_bytes);
    k->n_in = problem->n_in;
    k->n_out = problem->n_out;
    if (status != LATHE_OK)
        free(k);
    else
        *out = k;
    return status;
}

static void kernel_destroy(void *self, lathe_kernel *kernel)
{
    far_device *d = self;
    d->cpu->kernel_destroy(d->cpu_self, kernel->real);
    free(kernel);
}

/* A real device cannot reach other memory of the host, although this one could. */
static lathe_status check_reach(const far_device *d, const void *const *list, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (list[i] && !far_memory_find(&d->memory, list[i], 1))
            return lathe_fail(d->host, LATHE_E_ARG,
                              "far: a kernel gets memory that is not the device's");
    return LATHE_OK;
}

static lathe_status kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args)
{
    far_device *d = self;
    LATHE_TRY(check_reach(d, args->in, kernel->n_in));
    LATHE_TRY(check_reach(d, (const void *const *)args->out, kernel->n_out));
    kernel_args a = {.device = d,
                     .real = kernel->real,
                     .accumulate = args->accumulate,
                     .scratch = args->scratch};
    memcpy(a.in, args->in, (size_t)kernel->n_in * sizeof *a.in);
    memcpy(a.out, args->out, (size_t)kernel->n_out * sizeof *a.out);
    return queue(d, args->stream, run_kernel, &a, (int64_t)sizeof a);
}

static lathe_status capture_begin(void *self, lathe_stream *stream)
{
    far_device *d = self;
    far_stream *s = (far_stream *)(void *)stream;
    if (s->capture)
        return lathe_fail(d->host, LATHE_E_STATE, "far: a capture within a capture");
    s->capture = calloc(1, sizeof *s->capture);
    if (!s->capture)
        return LATHE_E_NOMEM;
    s->capture->device = d;
    s->capture->serial = ++d->n_captures;
    s->capture->first = (int32_t)(s - d->streams);
    return LATHE_OK;
}

static void capture_destroy(void *self, lathe_capture *capture)
{
    (void)self;
    for (int32_t i = 0; capture && i < MAX_STREAMS; i++)
        far_queue_clear(&capture->queues[i]);
    free(capture);
}

/* Each stream that joined must have been waited for up to its last call. */
static lathe_status capture_end(void *self, lathe_stream *stream, lathe_capture **out)
{
    far_device *d = self;
    far_stream *s = (far_stream *)(void *)stream;
    lathe_capture *made = s->capture;
    *out = NULL;
    if (!made || s != &d->streams[made->first])
        return lathe_fail(d->host, LATHE_E_STATE, "far: no capture has begun");
    for (int32_t i = 0; i < MAX_STREAMS; i++)
        if (d->streams[i].capture == made)
            d->streams[i].capture = NULL;
    capture_run r = {.capture = made};
    LATHE_TRY(run_captured(&r, made->first, made->queues[made->first].n));
    for (int32_t i = 0; i < MAX_STREAMS; i++)
        if (r.done[i] < made->queues[i].n) {
            capture_destroy(self, made);
            return lathe_fail(d->host, LATHE_E_STATE,
                              "far: the capture ends, and a stream has not been waited for");
        }
    *out = made;
    return LATHE_OK;
}

static lathe_status capture_launch(void *self, lathe_capture *capture, lathe_stream *stream)
{
    return queue(self, stream, run_capture, &capture, (int64_t)sizeof capture);
}

static lathe_status launch(void *self, lathe_stream *stream, const void *image, const char *kernel,
                           int64_t n_blocks, int32_t n_threads, const void *args,
                           int64_t args_bytes)
{
    far_device *d = self;
    const far_image *all = image;
    if (all->magic != FAR_MAGIC)
        return lathe_fail(d->host, LATHE_E_UNSUPPORTED, "far: the image holds no code for it");
    const far_kernel *code = all->kernels;
    while (code->name && strcmp(code->name, kernel) != 0)
        code++;
    if (!code->name)
        return lathe_fail(d->host, LATHE_E_NOT_FOUND, "far: the image has no kernel %s", kernel);
    launch_args a = {.kernel = code, .n_blocks = n_blocks, .n_threads = n_threads};
    if (args_bytes != code->args_bytes || args_bytes > (int64_t)sizeof a.args)
        return lathe_fail(d->host, LATHE_E_ARG, "far: %s takes %lld bytes, got %lld", kernel,
                          (long long)code->args_bytes, (long long)args_bytes);
    if (n_blocks == 0)
        return LATHE_OK;
    memcpy(a.args, args, (size_t)args_bytes);
    return queue(d, stream, run_launch, &a, (int64_t)sizeof a);
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    far_device *d = calloc(1, sizeof *d);
    if (!d)
        return lathe_fail(host, LATHE_E_NOMEM, "far: no memory");
    d->host = host;
    d->real = best_cpu();
    d->cpu = d->real->table;
    for (int32_t i = 0; i < MAX_STREAMS; i++) {
        d->streams[i].base.enqueue = enqueue;
        d->streams[i].device = d;
    }
    d->free_bytes = n_values == N_FIELDS ? values[FIELD_FREE_BYTES].i : 0;
    d->is_eager = n_values == N_FIELDS && values[FIELD_EAGER].i;
    d->deaf = n_values == N_FIELDS ? values[FIELD_DEAF].i : 0;
    d->memory.is_at_rest = FAR_MEMORY == LATHE_MEMORY_UNIFIED;
    d->captures_events = n_values != N_FIELDS || values[FIELD_CAPTURE_EVENTS].i;
    const lathe_status status = d->real->create(host, NULL, 0, &d->cpu_self);
    if (status == LATHE_OK)
        *out_self = d;
    else
        free(d);
    return status;
}

/* Memory that was not freed is a bug of the core. */
static void destroy(void *self)
{
    far_device *d = self;
    if (!d)
        return;
    if (d->memory.n > 0 || d->n_streams > 0 || d->n_events > 0) {
        fprintf(stderr, "far: %d blocks, %d streams and %d events are left behind\n", d->memory.n,
                d->n_streams, d->n_events);
        abort();
    }
    far_queue_clear(&d->streams[0].queue); /* of callers that created no stream */
    d->real->destroy(d->cpu_self);
    while (d->stamps) {
        far_stamp *next = d->stamps->next;
        free(d->stamps);
        d->stamps = next;
    }
    free(d);
}

/* far_in_order has no events. */
#ifdef FAR_IN_ORDER
#define FAR_EVENT(fn) (0 ? (fn) : NULL)
#else
#define FAR_EVENT(fn) (fn)
#endif

/* far_timeless has no times. */
#ifdef FAR_TIMELESS
#define FAR_TIME(fn) (0 ? (fn) : NULL)
#else
#define FAR_TIME(fn) FAR_EVENT(fn)
#endif

static const lathe_device_v1 table = {
    .size = (uint32_t)sizeof(lathe_device_v1),
    .revision = LATHE_DEVICE_REVISION,
    .score = score,
    .info = info,
    .alloc = alloc,
    .free = release,
    .copy = copy,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .event_record = FAR_EVENT(event_record),
    .event_wait = FAR_EVENT(event_wait),
    .event_destroy = FAR_EVENT(event_destroy),
    .sync = sync,
    .kernel_create = kernel_create,
    .kernel_destroy = kernel_destroy,
    .kernel_run = kernel_run,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .capture_launch = capture_launch,
    .capture_destroy = capture_destroy,
    .launch = launch,
    .event_stamp = FAR_TIME(event_stamp),
    .event_seconds = FAR_TIME(event_seconds),
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_DEVICE,
    .revision = LATHE_DEVICE_REVISION,
    .n_fields = N_FIELDS,
    .name = FAR_NAME,
    .version = "1.0.0",
    .summary = "the CPU's kernels, queued, on memory that the host cannot touch",
    .source = "ours",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

/* Captures and replays ranges of nodes. */
#include "exec/program/replay.h"

#include <string.h>

#include "base/error.h"

/* Entry of the range. NULL: the table is full, or the range is a single node, which a caller runs
 * to observe it. */
static lathe_replay *find(lathe_replays *r, int32_t begin, int32_t end, int32_t accumulate)
{
    if (end - begin < 2)
        return NULL;
    for (int32_t i = 0; i < r->n; i++)
        if (r->list[i].begin == begin && r->list[i].end == end &&
            r->list[i].accumulate == accumulate)
            return &r->list[i];
    if (r->n == LATHE_MAX_REPLAYS)
        return NULL;
    r->list[r->n] = (lathe_replay){.begin = begin, .end = end, .accumulate = accumulate};
    return &r->list[r->n++];
}

static lathe_status capture(lathe_replays *r, lathe_replay *one, lathe_range_run_fn run, void *arg)
{
    const lathe_device_v1 *dev = r->m->dev;
    void *self = r->m->device->self;
    LATHE_TRY(dev->capture_begin(self, r->m->stream));
    const lathe_status status = run(arg, one->begin, one->end, one->accumulate);
    lathe_capture *made = NULL;
    if (status != LATHE_OK) { /* keep its message */
        (void)dev->capture_end(self, r->m->stream, &made);
        dev->capture_destroy(self, made);
        return status;
    }
    LATHE_TRY(dev->capture_end(self, r->m->stream, &made));
    one->capture = made;
    return LATHE_OK;
}

lathe_status lathe_replays_run(lathe_replays *r, int32_t begin, int32_t end, int32_t accumulate,
                               lathe_range_run_fn run, void *arg)
{
    lathe_replay *one = r->m->captures ? find(r, begin, end, accumulate) : NULL;
    if (!one || one->n_runs++ == 0) /* the first run may load modules, which a capture cannot */
        return run(arg, begin, end, accumulate);
    if (!one->capture) {
        const lathe_status status = capture(r, one, run, arg);
        if (status != LATHE_OK)
            return lathe_error_context(status, "train.capture");
    }
    return r->m->dev->capture_launch(r->m->device->self, one->capture, r->m->stream);
}

void lathe_replays_fini(lathe_replays *r)
{
    for (int32_t i = 0; i < r->n; i++)
        if (r->list[i].capture)
            r->m->dev->capture_destroy(r->m->device->self, r->list[i].capture);
    r->n = 0;
}

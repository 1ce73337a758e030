/* Keeps the optimizer's state in pinned host memory. */
#include "exec/store/state_offload.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/cut_unit.h"
#include "exec/store/tensor_cut.h"
#include "lathe/kit/tensor_chunks.h"

enum { N_BUFFERS = 2 };

/* A range of bytes that one copy moves from the host memory of the slots into a part's buffer,
 * or back. */
typedef struct range {
    int64_t at, to, bytes;
} range;

typedef struct part {
    int32_t end;       /* number of pieces, or matrices, in this part and all before it */
    int32_t end_range; /* the same for ranges */
    int64_t bytes;     /* size in the buffer */
} part;

/* Content of a part: a piece of a tensor, or a matrix. */
typedef struct piece {
    int32_t param, part, is_whole;
    int64_t begin, n, unit;      /* in elements; the tensor is cut at multiples of `unit` */
    int64_t to[LATHE_MAX_SLOTS]; /* offsets in the buffer */
} piece;

struct lathe_offload {
    lathe_machine *m;
    lathe_store *store;
    const lathe_instance *optimizer;
    int64_t wanted; /* target bytes of a part */
    part *parts;
    piece *pieces;
    range *ranges;
    lathe_optimizer_tensor *tensors; /* one per piece of a tensor */
    int32_t n_parts, n_tensor_parts, n_pieces, n_tensors, n_ranges;
    char *buffers;
    lathe_event *copied_in[N_BUFFERS], *used[N_BUFFERS], *copied_out[N_BUFFERS];
    lathe_event *
        *wait_events; /* [2 n_parts] before and after the wait for a part; NULL: no times */
    int32_t n_waits;  /* waits for parts since the last begin */
    double waited;
    int64_t moved;
    int32_t is_under_way;
};

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Makes room for one more entry after n; NULL: no memory. */
static void *grown(void *list, int32_t n, size_t size)
{
    return n & (n - 1) ? list : realloc(list, (n > 0 ? 2 * (size_t)n : 1) * size);
}

#define APPEND(list, n, value)                                                                     \
    do {                                                                                           \
        void *const more = grown(list, n, sizeof *(list));                                         \
        if (!more)                                                                                 \
            return lathe_error(LATHE_E_NOMEM, "no memory for the parts of the optimizer's state"); \
        (list) = more;                                                                             \
        (list)[(n)++] = (value);                                                                   \
    } while (0)

lathe_status lathe_offload_create(lathe_machine *m, lathe_store *store,
                                  const lathe_instance *optimizer, int64_t buffer_bytes,
                                  lathe_offload **out)
{
    lathe_offload *o = calloc(1, sizeof *o);
    if (!o)
        return lathe_error(LATHE_E_NOMEM, "no memory for the parts of the optimizer's state");
    o->m = m;
    o->store = store;
    o->optimizer = optimizer;
    o->wanted = buffer_bytes;
    store->slots_on_host = 1;
    store->offload = o;
    *out = o;
    return LATHE_OK;
}

void lathe_offload_destroy(lathe_offload *o)
{
    if (!o)
        return;
    const lathe_device_v1 *dev = o->m->dev;
    (void)lathe_offload_settle(o);
    for (int b = 0; b < N_BUFFERS; b++) {
        lathe_event *const events[3] = {o->copied_in[b], o->used[b], o->copied_out[b]};
        for (int k = 0; k < 3; k++)
            if (events[k])
                dev->event_destroy(o->m->device->self, events[k]);
    }
    lathe_machine_free(o->m, LATHE_MEM_OPTIMIZER, lathe_offload_bytes(o), o->buffers);
    o->store->offload = NULL;
    for (int32_t i = 0; o->wait_events && i < 2 * o->n_parts; i++)
        if (o->wait_events[i])
            dev->event_destroy(o->m->device->self, o->wait_events[i]);
    free(o->wait_events);
    free(o->parts);
    free(o->pieces);
    free(o->ranges);
    free(o->tensors);
    free(o);
}

/* ---- parts ---- */

/* Elements of a parameter, of which this rank holds the state of a part, in units of the optimizer.
 */
typedef struct elements {
    int64_t whole; /* of the parameter */
    int64_t held;  /* the first one whose state is held */
    int64_t begin, n;
    int64_t unit;
} elements;

/* Bytes of slot k for elements [begin, end) of a parameter. */
static int64_t bytes_between(const lathe_store_row *row, int32_t k, const elements *e,
                             int64_t begin, int64_t end)
{
    const lathe_slot *slot = &row->slots[k];
    const int64_t before = begin > 0 ? lathe_slot_bytes(slot, e->whole, begin, e->unit) : 0;
    return end > begin ? lathe_slot_bytes(slot, e->whole, end, e->unit) - before : 0;
}

static int64_t slot_bytes(const lathe_store_row *row, int32_t k, const elements *e)
{
    return bytes_between(row, k, e, e->begin, e->begin + e->n);
}

static int64_t bytes_of(const lathe_store_row *row, const elements *e, int64_t n)
{
    elements some = *e;
    int64_t bytes = 0;
    some.n = n;
    for (int32_t k = 0; k < row->n_slots; k++)
        bytes += round_up(slot_bytes(row, k, &some));
    return bytes;
}

static int32_t first_range(const lathe_offload *o, int32_t k)
{
    return k > 0 ? o->parts[k - 1].end_range : 0;
}

/* Bytes that the last part can still take of this kind; 0 if it cannot take more. */
static int64_t room(const lathe_offload *o, int is_matrix)
{
    const part *last = o->n_parts > 0 ? &o->parts[o->n_parts - 1] : NULL;
    const int fits = last && is_matrix == (o->n_parts > o->n_tensor_parts);
    return fits && last->bytes < o->wanted ? o->wanted - last->bytes : 0;
}

static lathe_status open_part(lathe_offload *o, int is_matrix)
{
    const part empty = {.end = o->n_pieces, .end_range = o->n_ranges};
    APPEND(o->parts, o->n_parts, empty);
    o->n_tensor_parts += !is_matrix;
    return LATHE_OK;
}

/* Appends `bytes` of the slot family to the last part. joins: one copy moves them together with the
 * bytes before them and the padding between, which no other part may use. */
static lathe_status add_slot(lathe_offload *o, int64_t at, int64_t bytes, int joins,
                             int64_t *out_to)
{
    part *last = &o->parts[o->n_parts - 1];
    range *before =
        o->n_ranges > first_range(o, o->n_parts - 1) ? &o->ranges[o->n_ranges - 1] : NULL;
    *out_to = last->bytes;
    last->bytes += round_up(bytes);
    if (joins && before && before->at + round_up(before->bytes) == at) {
        before->bytes = at + bytes - before->at;
        return LATHE_OK;
    }
    const range one = {at, *out_to, bytes};
    APPEND(o->ranges, o->n_ranges, one);
    last->end_range = o->n_ranges;
    return LATHE_OK;
}

/* Appends elements of a parameter to the last part. n_held: all whose state is held. */
static lathe_status add_piece(lathe_offload *o, int32_t param, const elements *e, int64_t n_held)
{
    const lathe_store_row *row = &o->store->rows[param];
    const piece *before = o->n_pieces > 0 ? &o->pieces[o->n_pieces - 1] : NULL;
    piece p = {.param = param,
               .part = o->n_parts - 1,
               .begin = e->begin - e->held,
               .n = e->n,
               .unit = e->unit};
    p.is_whole = e->n == n_held;
    for (int32_t k = 0; k < row->n_slots; k++) {
        const int64_t skipped = bytes_between(row, k, e, e->held, e->begin);
        const int joins = p.is_whole && (k > 0 || !before || before->is_whole);
        LATHE_TRY(add_slot(o, row->slot[k] + skipped, slot_bytes(row, k, e), joins, &p.to[k]));
    }
    APPEND(o->pieces, o->n_pieces, p);
    o->parts[o->n_parts - 1].end = o->n_pieces;
    return LATHE_OK;
}

lathe_status lathe_offload_add_tensor(lathe_offload *o, const lathe_optimizer_tensor *tensor)
{
    const lathe_store_row *row = &o->store->rows[tensor->tensor];
    const int64_t step = lathe__cut_step(o->store, o->optimizer, tensor);
    const int64_t held = row->held[LATHE_OF_STATE].begin;
    elements e = {.whole = lathe_desc_count(&o->store->params->rows[tensor->tensor]->desc),
                  .held = held,
                  .unit = lathe__cut_unit(o->store, o->optimizer, tensor)};
    for (int64_t begin = 0; begin < tensor->n; begin += e.n) {
        const int64_t left = tensor->n - begin;
        e.begin = held + begin;
        e.n = left;
        if (o->n_parts == 0 || bytes_of(row, &e, left) > room(o, 0)) {
            const int64_t of_step = bytes_of(row, &e, step < left ? step : left);
            if (o->n_parts == 0 || of_step > room(o, 0))
                LATHE_TRY(open_part(o, 0));
            const int64_t n_steps = of_step > 0 ? room(o, 0) / of_step : left;
            e.n = n_steps > left / step ? left : (n_steps > 0 ? n_steps : 1) * step;
            e.n = e.n < left ? e.n : left;
        }
        lathe_optimizer_tensor cut = *tensor;
        cut.n = e.n;
        cut.first = begin;
        LATHE_TRY(add_piece(o, tensor->tensor, &e, tensor->n));
        APPEND(o->tensors, o->n_tensors, cut);
    }
    return LATHE_OK;
}

lathe_status lathe_offload_add_matrix(lathe_offload *o, int32_t param)
{
    const int64_t n = lathe_desc_count(&o->store->params->rows[param]->desc);
    const elements e = {.whole = n, .n = n};
    if (o->n_parts == o->n_tensor_parts || bytes_of(&o->store->rows[param], &e, n) > room(o, 1))
        LATHE_TRY(open_part(o, 1));
    return add_piece(o, param, &e, n);
}

int32_t lathe_offload_n_parts(const lathe_offload *o)
{
    return o->n_parts;
}

int32_t lathe_offload_n_tensor_parts(const lathe_offload *o)
{
    return o->n_tensor_parts;
}

int32_t lathe_offload_end(const lathe_offload *o, int32_t k)
{
    return o->parts[k].end;
}

static const piece *piece_of(const lathe_offload *o, int32_t param)
{
    int32_t i = 0;
    while (o->pieces[i].param != param)
        i++;
    return &o->pieces[i];
}

int32_t lathe_offload_part_of(const lathe_offload *o, int32_t param)
{
    return piece_of(o, param)->part;
}

/* ---- memory ---- */

static int64_t buffer_bytes(const lathe_offload *o)
{
    int64_t most = 0;
    for (int32_t k = 0; k < o->n_parts; k++)
        most = o->parts[k].bytes > most ? o->parts[k].bytes : most;
    return most;
}

int64_t lathe_offload_bytes(const lathe_offload *o)
{
    return (o->n_parts < N_BUFFERS ? o->n_parts : N_BUFFERS) * buffer_bytes(o);
}

static char *buffer_of(const lathe_offload *o, int32_t k)
{
    return o->buffers + k % N_BUFFERS * buffer_bytes(o);
}

lathe_status lathe_offload_place(lathe_offload *o)
{
    void *memory = NULL;
    LATHE_TRY(lathe_machine_alloc(o->m, LATHE_MEM_OPTIMIZER, lathe_offload_bytes(o), &memory));
    o->buffers = memory;
    if (LATHE_HAS(o->m->dev, event_stamp) && LATHE_HAS(o->m->dev, event_seconds)) {
        o->wait_events = calloc(2 * (size_t)o->n_parts + 1, sizeof *o->wait_events);
        if (!o->wait_events)
            return lathe_error(LATHE_E_NOMEM, "no memory for the times of %d parts", o->n_parts);
    }
    return lathe_machine_sides(o->m);
}

lathe_optimizer_tensor *lathe_offload_pieces(const lathe_offload *o)
{
    return o->tensors;
}

void lathe_offload_fill(lathe_offload *o, const lathe_optimizer_tensor *tensors, int32_t n_tensors)
{
    int32_t t = 0;
    for (int32_t i = 0; i < o->n_tensors; i++) {
        const piece *p = &o->pieces[i];
        while (t < n_tensors && tensors[t].tensor != p->param)
            t++;
        lathe__cut_piece(o->store, &tensors[t], p->unit, p->begin, p->n, &o->tensors[i]);
        for (int32_t k = 0; k < o->store->rows[p->param].n_slots; k++)
            o->tensors[i].slots[k] = buffer_of(o, p->part) + p->to[k];
    }
}

void *lathe_offload_slot(const lathe_offload *o, int32_t param, int32_t slot)
{
    const piece *p = piece_of(o, param);
    return buffer_of(o, p->part) + p->to[slot];
}

/* ---- copies in and out ---- */

static lathe_status copy(lathe_offload *o, lathe_stream *stream, int32_t k, int32_t direction)
{
    const lathe_device_v1 *dev = o->m->dev;
    for (int32_t i = first_range(o, k); i < o->parts[k].end_range; i++) {
        const range *r = &o->ranges[i];
        char *host = o->store->slots + r->at, *there = buffer_of(o, k) + r->to;
        const int is_in = direction == LATHE_COPY_TO_DEVICE;
        LATHE_TRY(dev->copy(o->m->device->self, stream, is_in ? there : host, is_in ? host : there,
                            r->bytes, direction));
        o->moved += r->bytes;
    }
    o->is_under_way = 1;
    return LATHE_OK;
}

static lathe_status come_in(lathe_offload *o, int32_t k)
{
    const lathe_device_v1 *dev = o->m->dev;
    void *self = o->m->device->self;
    const int32_t b = k % N_BUFFERS;
    if (o->copied_out[b])
        LATHE_TRY(dev->event_wait(self, o->m->in, o->copied_out[b]));
    LATHE_TRY(copy(o, o->m->in, k, LATHE_COPY_TO_DEVICE));
    return dev->event_record(self, o->m->in, &o->copied_in[b]);
}

lathe_status lathe_offload_begin(lathe_offload *o)
{
    o->n_waits = 0;
    for (int32_t k = 0; k < N_BUFFERS && k < o->n_parts; k++)
        LATHE_TRY(come_in(o, k));
    return LATHE_OK;
}

lathe_status lathe_offload_wait_in(lathe_offload *o, int32_t k)
{
    const lathe_device_v1 *dev = o->m->dev;
    void *self = o->m->device->self;
    if (o->wait_events)
        LATHE_TRY(dev->event_stamp(self, o->m->stream, &o->wait_events[2 * k]));
    LATHE_TRY(dev->event_wait(self, o->m->stream, o->copied_in[k % N_BUFFERS]));
    if (o->wait_events)
        LATHE_TRY(dev->event_stamp(self, o->m->stream, &o->wait_events[2 * k + 1]));
    o->n_waits = k + 1;
    return LATHE_OK;
}

lathe_status lathe_offload_copy_out(lathe_offload *o, int32_t k)
{
    const lathe_device_v1 *dev = o->m->dev;
    void *self = o->m->device->self;
    const int32_t b = k % N_BUFFERS;
    LATHE_TRY(dev->event_record(self, o->m->stream, &o->used[b]));
    LATHE_TRY(dev->event_wait(self, o->m->out, o->used[b]));
    LATHE_TRY(copy(o, o->m->out, k, LATHE_COPY_TO_HOST));
    LATHE_TRY(dev->event_record(self, o->m->out, &o->copied_out[b]));
    return k + N_BUFFERS < o->n_parts ? come_in(o, k + N_BUFFERS) : LATHE_OK;
}

lathe_status lathe_offload_settle(lathe_offload *o)
{
    if (!o->is_under_way)
        return LATHE_OK;
    LATHE_TRY(o->m->dev->sync(o->m->device->self, o->m->in));
    LATHE_TRY(o->m->dev->sync(o->m->device->self, o->m->out));
    o->is_under_way = 0;
    return LATHE_OK;
}

int64_t lathe_offload_take_moved(lathe_offload *o)
{
    const int64_t moved = o->moved;
    o->moved = 0;
    return moved;
}

lathe_status lathe_offload_count_waits(lathe_offload *o)
{
    for (int32_t k = 0; o->wait_events && k < o->n_waits; k++) {
        double seconds = 0.0;
        LATHE_TRY(o->m->dev->event_seconds(o->m->device->self, o->wait_events[2 * k],
                                           o->wait_events[2 * k + 1], &seconds));
        o->waited += seconds;
    }
    o->n_waits = 0;
    return LATHE_OK;
}

double lathe_offload_take_waited(lathe_offload *o)
{
    const double waited = o->waited;
    o->waited = 0.0;
    return o->wait_events ? waited : -1.0;
}

/* Groups, problems and expected results of the checks of collectives. */
#include "check/device/collective_trial.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/harness/device_side.h"
#include "lathe/kit/collective_kit.h"

static const double deadline = 60.0;

lathe_status lathe__collective_failed(const char *what, lathe_status status)
{
    if (lathe_error_message()[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN, "%s returns %d and records no message", what, status);
    return lathe_error_context(status, "%s", what);
}

lathe_status lathe__collective_info(const lathe_collective_v1 *table, const lathe_group *group,
                                    lathe_group_info *out)
{
    *out = (lathe_group_info){.size = (uint32_t)sizeof *out, .rank = -1};
    const lathe_status status = table->info(group, out);
    if (status != LATHE_OK)
        return lathe__collective_failed("info()", status);
    if (out->size != sizeof *out || out->n_ranks < 1 || out->rank < 0 ||
        out->rank >= out->n_ranks || out->n_local < 1 || out->n_local > out->n_ranks ||
        out->local_rank < 0 || out->local_rank >= out->n_local || out->n_hosts < 1 ||
        out->n_hosts > out->n_ranks || out->host < 0 || out->host >= out->n_hosts ||
        (out->flags & ~(uint32_t)(LATHE_GROUP_DETERMINISTIC | LATHE_GROUP_RANK_ORDER)) != 0)
        return lathe_error(LATHE_E_PLUGIN,
                           "info() tells rank %d of %d, local rank %d of %d, host %d of %d, flags "
                           "%#x, size %u",
                           out->rank, out->n_ranks, out->local_rank, out->n_local, out->host,
                           out->n_hosts, out->flags, out->size);
    if (memchr(out->host_name, '\0', sizeof out->host_name) == NULL || out->host_name[0] == '\0' ||
        memchr(out->engine, '\0', sizeof out->engine) == NULL || out->engine[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN, "info() gives no name of the host or of the engine");
    return LATHE_OK;
}

static void free_all(lathe__joined *j)
{
    lathe_instance_fini(&j->instance);
    lathe_instance_fini(&j->base);
    lathe_registry_destroy(j->registry);
    j->registry = NULL;
}

/* Opens a group of the best installed engine in host memory, for one that needs it. */
static lathe_status open_base(lathe__joined *j, lathe_collective_setup *setup)
{
    const lathe_collective_probe probe = {(uint32_t)sizeof probe, 1, "cpu"};
    const lathe_component *component = NULL;
    const lathe_value *values = NULL;
    LATHE_TRY(lathe_registry_create(&j->registry));
    const lathe_status status =
        lathe_select_collective(j->registry, "auto", &probe, &j->s->arena, &component, NULL);
    if (status == LATHE_E_UNSUPPORTED || status == LATHE_E_NOT_FOUND)
        return lathe__skip(j->s, "it needs another engine: %.200s", lathe_error_message());
    LATHE_TRY(status);
    LATHE_TRY(lathe__values_of(component->plugin, NULL, NULL, &j->s->arena, &values));
    LATHE_TRY(lathe_instance_init(&j->base, component, values));
    setup->base = j->base.table;
    LATHE_TRY(setup->base->open(j->base.self, setup, &j->base_group));
    setup->base_group = j->base_group;
    return LATHE_OK;
}

/* Opens the group. LATHE__SKIP: the engine, or one that it needs, is not available here. */
lathe_status lathe__collective_join(lathe__subject *s, lathe__joined *out)
{
    lathe_collective_setup setup = {.size = (uint32_t)sizeof setup, .deadline_seconds = deadline};
    *out = (lathe__joined){.s = s, .table = s->table};
    const int32_t is_for_devices = (out->table->flags & LATHE_COLLECTIVE_FOR_DEVICES) != 0;
    if (is_for_devices && s->device == NULL)
        return lathe__skip(s, "it is for devices with memory of their own: add --device NAME");
    if (!is_for_devices && s->device != NULL)
        return lathe__skip(s, "its buffers are in the host's memory: leave out --device");
    LATHE_TRY(lathe__instance(s, &out->instance));
    lathe_status status = LATHE_OK;
    if (out->table->flags & LATHE_COLLECTIVE_NEEDS_BASE)
        status = open_base(out, &setup);
    if (is_for_devices) { /* the base had none */
        setup.device = s->device->machine.dev;
        setup.device_self = s->device->machine.device->self;
    }
    if (status != LATHE_OK) {
        free_all(out);
        return status;
    }
    lathe_error_clear();
    status = out->table->open(out->instance.self, &setup, &out->group);
    if (status == LATHE_E_NOT_FOUND && lathe_error_message()[0] != '\0') {
        free_all(out);
        return lathe__skip(s, "%.200s", lathe_error_message());
    }
    if (status != LATHE_OK)
        status = lathe__collective_failed("open()", status);
    else if (out->group == NULL)
        status = lathe_error(LATHE_E_PLUGIN, "open() gives no group");
    else
        status = lathe__collective_info(out->table, out->group, &out->info);
    if (status == LATHE_OK && out->info.n_ranks > LATHE__MAX_RANKS)
        status = lathe_error(LATHE_E_ARG, "%d ranks; these checks run with at most %d",
                             out->info.n_ranks, LATHE__MAX_RANKS);
    if (status != LATHE_OK)
        free_all(out);
    return status;
}

/* Closes the group; `status` wins. */
lathe_status lathe__collective_leave(lathe__joined *j, lathe_status status)
{
    if (status == LATHE_OK) {
        status = j->table->close(j->group);
        if (status != LATHE_OK)
            status = lathe__collective_failed("close()", status);
        else if (j->table->close(NULL) != LATHE_OK)
            status = lathe_error(LATHE_E_PLUGIN, "close(NULL) is not LATHE_OK");
    }
    if (status == LATHE_OK && j->base_group != NULL)
        status = ((const lathe_collective_v1 *)j->base.table)->close(j->base_group);
    free_all(j);
    return status;
}

/* ---- problems and their results ---- */

/* Element i of rank q's input: small integers, whose sums are exact in every type. */
static double element(int32_t dtype, int32_t q, int64_t i)
{
    const int64_t v = (q * 7 + i * 3) % 5;
    return dtype == LATHE_U8 ? (double)v : (double)(v - 2);
}

static void put(int32_t dtype, void *data, int64_t i, double value)
{
    switch (dtype) {
    case LATHE_F32:
        ((float *)data)[i] = (float)value;
        break;
    case LATHE_F64:
        ((double *)data)[i] = value;
        break;
    case LATHE_BF16:
        ((uint16_t *)data)[i] = lathe_f32_to_bf16((float)value);
        break;
    case LATHE_F16:
        ((uint16_t *)data)[i] = lathe_f32_to_f16((float)value);
        break;
    case LATHE_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case LATHE_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    }
}

static double get(int32_t dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case LATHE_F32:
        return (double)((const float *)data)[i];
    case LATHE_F64:
        return ((const double *)data)[i];
    case LATHE_BF16:
        return (double)lathe_bf16_to_f32(((const uint16_t *)data)[i]);
    case LATHE_F16:
        return (double)lathe_f16_to_f32(((const uint16_t *)data)[i]);
    case LATHE_I32:
        return (double)((const int32_t *)data)[i];
    case LATHE_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return (double)((const uint8_t *)data)[i];
    }
}

static int64_t pair_count(int32_t a, int32_t b, int64_t n)
{
    return n == 0 ? 0 : (a * 3 + b * 5 + n) % 11;
}

/* uneven: extents per rank. */
lathe_exchange_problem lathe__collective_problem(const lathe__joined *j, int32_t op, int32_t dtype,
                                                 int32_t reduce, int64_t n, int uneven,
                                                 lathe__trial *t)
{
    const int32_t n_ranks = j->info.n_ranks;
    const int has_extents = op == LATHE_REDUCE_SCATTER || op == LATHE_ALL_GATHER;
    t->size = n;
    lathe_exchange_problem p = {.size = (uint32_t)sizeof p,
                                .op = op,
                                .dtype = dtype,
                                .reduce = reduce,
                                .n = n,
                                .label = "a check"};
    if (op == LATHE_ALL_TO_ALL || op == LATHE_BARRIER)
        p.n = 0;
    if (op == LATHE_BROADCAST)
        p.peer = n_ranks - 1;
    if (op == LATHE_ALL_TO_ALL)
        for (int32_t q = 0; q < n_ranks; q++) {
            t->counts[q] = pair_count(j->info.rank, q, n);
            t->from[q] = pair_count(q, j->info.rank, n);
        }
    if (has_extents && uneven) {
        p.n = 0;
        for (int32_t q = 0; q < n_ranks; q++)
            p.n += t->counts[q] = q % 3 == 1 ? 0 : n / (q + 1);
    } else if (has_extents) {
        p.n = n / n_ranks * n_ranks;
    }
    if (op == LATHE_ALL_TO_ALL || (has_extents && uneven))
        p.counts = t->counts;
    if (op == LATHE_ALL_TO_ALL)
        p.from = t->from;
    return p;
}

/* Memory of a trial; on a device, its copy there is made too, because a run takes none. */
static void *memory(const lathe__joined *j, int64_t bytes)
{
    void *const out = lathe__memory(j->s, bytes);
    if (j->s->device != NULL && out != NULL)
        (void)lathe__on_device(j->s, out);
    return out;
}

int lathe__collective_may_refuse(const lathe__joined *j, const lathe_exchange_problem *p)
{
    const int is_pair = p->op == LATHE_SEND || p->op == LATHE_RECEIVE;
    const int is_float = p->dtype == LATHE_F32 || p->dtype == LATHE_F64 || p->dtype == LATHE_BF16 ||
                         p->dtype == LATHE_F16;
    return (is_float && p->reduce != LATHE_REDUCE_SUM) ||
           (is_pair && j->table->flags & LATHE_COLLECTIVE_FOR_DEVICES);
}

lathe_status lathe__collective_prepare(const lathe__joined *j, lathe__trial *t)
{
    const int64_t width = lathe_dtype_bytes(t->problem.dtype);
    t->n_in = lathe_exchange_in(&t->problem, j->info.rank, j->info.n_ranks);
    t->n_out = lathe_exchange_out(&t->problem, j->info.rank, j->info.n_ranks);
    t->in = memory(j, t->n_in * width + 1);
    t->kept = lathe__memory(j->s, t->n_in * width + 1);
    t->out = memory(j, t->n_out * width);
    if (t->in == NULL || t->kept == NULL || t->out == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < t->n_in; i++)
        put(t->problem.dtype, t->in, i, element(t->problem.dtype, j->info.rank, i));
    memcpy(t->kept, t->in, (size_t)(t->n_in * width));
    t->info = (lathe_exchange_info){.size = (uint32_t)sizeof t->info, .scratch_bytes = -1};
    lathe_error_clear();
    const lathe_status status = j->table->prepare(j->group, &t->problem, &t->exchange, &t->info);
    if (status == LATHE_E_UNSUPPORTED && lathe__collective_may_refuse(j, &t->problem))
        return LATHE__SKIP;
    if (status != LATHE_OK)
        return lathe__collective_failed("prepare()", status);
    if (t->exchange == NULL || t->info.scratch_bytes < 0 || t->info.sent_bytes < 0 ||
        t->info.received_bytes < 0 || t->info.pinned_bytes < 0)
        return lathe_error(LATHE_E_PLUGIN, "prepare() gives no exchange, or sizes below 0");
    if (t->info.pinned_bytes > 0 && j->s->device == NULL)
        return lathe_error(LATHE_E_PLUGIN, "prepare() wants pinned memory in the host's memory");
    if (t->info.scratch_bytes + t->info.pinned_bytes > 0 &&
        j->table->flags & LATHE_COLLECTIVE_NEEDS_NO_ROOM)
        return lathe_error(LATHE_E_PLUGIN, "prepare() wants scratch or pinned memory, and the "
                                           "engine says that it needs none");
    t->scratch = memory(j, t->info.scratch_bytes);
    t->pinned = t->info.pinned_bytes > 0 ? lathe__pinned(j->s, t->info.pinned_bytes) : NULL;
    return t->scratch != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe__collective_send(const lathe__joined *j)
{
    return j->s->device == NULL ? LATHE_OK : lathe__send(j->s);
}

static lathe_status fetch(const lathe__joined *j)
{
    return j->s->device == NULL ? LATHE_OK : lathe__fetch(j->s);
}

/* The address that the engine gets. */
static void *address(const lathe__joined *j, const void *at)
{
    return j->s->device == NULL ? (void *)(uintptr_t)at : lathe__on_device(j->s, at);
}

lathe_status lathe__collective_start(const lathe__joined *j, lathe__trial *t, const void *in)
{
    const lathe_exchange_args args = {.size = (uint32_t)sizeof args,
                                      .in = t->n_in > 0 ? address(j, in) : NULL,
                                      .out = t->n_out > 0 ? address(j, t->out) : NULL,
                                      .scratch = address(j, t->scratch),
                                      .stream = j->s->device == NULL ? NULL
                                                                     : j->s->device->machine.stream,
                                      .pinned = t->pinned};
    lathe_error_clear();
    const lathe_status status = j->table->start(t->exchange, &args);
    return status == LATHE_OK ? LATHE_OK : lathe__collective_failed("start()", status);
}

lathe_status lathe__collective_finish(const lathe__joined *j, lathe__trial *t)
{
    int32_t done = 0;
    lathe_status status = j->table->wait(t->exchange, deadline);
    if (status != LATHE_OK)
        return lathe__collective_failed("wait()", status);
    status = j->table->test(t->exchange, &done);
    if (status != LATHE_OK)
        return lathe__collective_failed("test()", status);
    return done == 1 ? fetch(j)
                     : lathe_error(LATHE_E_PLUGIN, "test() after wait() says that it is not done");
}

static double reduced(const lathe__joined *j, const lathe__trial *t, int64_t i)
{
    double value = element(t->problem.dtype, 0, i);
    for (int32_t q = 1; q < j->info.n_ranks; q++) {
        const double v = element(t->problem.dtype, q, i);
        value = t->problem.reduce == LATHE_REDUCE_SUM   ? value + v
                : t->problem.reduce == LATHE_REDUCE_MAX ? fmax(value, v)
                                                        : fmin(value, v);
    }
    return value;
}

/* Begin of rank q's extent. */
int64_t lathe__collective_extent_begin(const lathe__joined *j, const lathe__trial *t, int32_t q)
{
    int64_t at = 0;
    for (int32_t k = 0; k < q; k++)
        at += lathe_exchange_extent(&t->problem, k, j->info.n_ranks);
    return at;
}

/* The expected element i of the output. */
static double expected(const lathe__joined *j, const lathe__trial *t, int64_t i)
{
    const int32_t dtype = t->problem.dtype, rank = j->info.rank;
    int32_t q = 0;
    switch (t->problem.op) {
    case LATHE_ALL_REDUCE:
        return reduced(j, t, i);
    case LATHE_REDUCE_SCATTER:
        return reduced(j, t, lathe__collective_extent_begin(j, t, rank) + i);
    case LATHE_ALL_GATHER:
        while (i >= lathe_exchange_extent(&t->problem, q, j->info.n_ranks))
            i -= lathe_exchange_extent(&t->problem, q++, j->info.n_ranks);
        return element(dtype, q, i);
    case LATHE_ALL_TO_ALL:
        while (i >= t->from[q])
            i -= t->from[q++];
        for (int32_t k = 0; k < rank; k++)
            i += pair_count(q, k, t->size);
        return element(dtype, q, i);
    default:
        return element(dtype, t->problem.peer, i);
    }
}

lathe_status lathe__collective_compare(const lathe__joined *j, const lathe__trial *t)
{
    for (int64_t i = 0; i < t->n_out; i++) {
        const double got = get(t->problem.dtype, t->out, i), want = expected(j, t, i);
        if (got != want)
            return lathe_error(LATHE_E_PLUGIN,
                               "%s of %lld %s on rank %d of %d: element %lld is %g, expected %g",
                               lathe_exchange_name(t->problem.op), (long long)t->n_out,
                               lathe_dtype_name(t->problem.dtype), j->info.rank, j->info.n_ranks,
                               (long long)i, got, want);
    }
    if (!lathe__same(t->in, t->kept, t->n_in * lathe_dtype_bytes(t->problem.dtype)))
        return lathe_error(LATHE_E_PLUGIN, "%s writes to its input",
                           lathe_exchange_name(t->problem.op));
    return LATHE_OK;
}

/* Frees what a trial on the device has taken, whose memory has few blocks. */
static lathe_status release(const lathe__joined *j)
{
    if (j->s->device == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe__guards(j->s));
    lathe__device_side_release(j->s);
    return LATHE_OK;
}

/* Runs a problem twice with the same memory, which is wiped in between. */
lathe_status lathe__collective_try(const lathe__joined *j, lathe__trial *t)
{
    const size_t bytes = (size_t)(lathe_exchange_out(&t->problem, j->info.rank, j->info.n_ranks) *
                                  lathe_dtype_bytes(t->problem.dtype));
    const lathe_status prepared = lathe__collective_prepare(j, t);
    if (prepared == LATHE__SKIP)
        return release(j);
    LATHE_TRY(prepared);
    for (int run = 0; run < 2; run++) {
        int64_t sent[2], received[2];
        memset(t->out, 0xab, bytes);
        memset(t->scratch, 0xcd, (size_t)t->info.scratch_bytes);
        if (t->pinned != NULL)
            memset(t->pinned, 0xcd, (size_t)t->info.pinned_bytes);
        LATHE_TRY(lathe__collective_send(j));
        LATHE_TRY(j->table->traffic(j->group, &sent[0], &received[0]));
        const int64_t heap = lathe__heap();
        LATHE_TRY(lathe__collective_start(j, t, t->in));
        LATHE_TRY(lathe__collective_finish(j, t));
        if (lathe__heap() != heap)
            return lathe_error(LATHE_E_PLUGIN, "%s takes memory while it runs",
                               lathe_exchange_name(t->problem.op));
        LATHE_TRY(j->table->traffic(j->group, &sent[1], &received[1]));
        if (sent[1] - sent[0] != t->info.sent_bytes ||
            received[1] - received[0] != t->info.received_bytes)
            return lathe_error(LATHE_E_PLUGIN,
                               "%s announces %lld bytes out and %lld in, and moved %lld and %lld",
                               lathe_exchange_name(t->problem.op), (long long)t->info.sent_bytes,
                               (long long)t->info.received_bytes, (long long)(sent[1] - sent[0]),
                               (long long)(received[1] - received[0]));
        LATHE_TRY(lathe__collective_compare(j, t));
    }
    j->table->exchange_destroy(t->exchange);
    return release(j);
}

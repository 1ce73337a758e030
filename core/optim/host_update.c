/* Runs the plugin's step() on memory in which the host's code runs. It proceeds range by
 * range (update_ranges.h), so that the norms are computed while the parameters are in the cache. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lathe/kit/optimizer_queue.h"
#include "optim/update_ranges.h"
#include "optim/updater.h"

typedef struct host_update {
    lathe_updater base;
    lathe_machine *m;
    lathe_ranges ranges; /* of all tensors */
    int32_t *ends;
    float **averages; /* [n_tensors] destinations of average() */
    void *own;        /* |copy of what is being updated|scratch of step()| */
    int64_t scratch_bytes;
    double update2, param2; /* sums over the parts since the last figures() */
} host_update;

static void destroy(lathe_updater *base)
{
    host_update *u = (host_update *)base;
    if (!u)
        return;
    lathe_machine_free(u->m, LATHE_MEM_OPTIMIZER, lathe_host_updater.own_bytes(base), u->own);
    free(u->ends);
    free(u->averages);
    free(u->ranges.sums);
    free(u);
}

/* Largest scratch memory, in bytes, that step() needs for one of the tensors. */
static int64_t max_scratch(const lathe_ranges *r)
{
    const lathe_optimizer_v1 *table = r->optimizer->table;
    int64_t max = 0;
    for (int32_t i = 0; LATHE_HAS(table, scratch) && i < r->n_tensors; i++) {
        const lathe_param_info info = lathe_params_info(r->store->params, r->tensors[i].tensor);
        const int64_t bytes = table->scratch(r->optimizer->self, &info);
        max = bytes > max ? bytes : max;
    }
    return max;
}

static lathe_status create(lathe_machine *m, const lathe_store *store,
                           const lathe_instance *optimizer, const lathe_update_table *table,
                           lathe_updater **out)
{
    const int32_t n_tensors = table->n_parts > 0 ? table->ends[table->n_parts - 1] : 0;
    host_update *u = calloc(1, sizeof *u);
    if (!u)
        return lathe_error(LATHE_E_NOMEM, "no memory for the optimizer step");
    u->base.ops = &lathe_host_updater;
    u->m = m;
    u->ends = calloc((size_t)table->n_parts + 1, sizeof *u->ends);
    u->averages = calloc((size_t)n_tensors + 1, sizeof *u->averages);
    u->ranges = (lathe_ranges){.optimizer = optimizer,
                               .store = store,
                               .tensors = table->tensors,
                               .n_tensors = n_tensors,
                               .sums = calloc(2 * LATHE_RANGES_CHUNKS, sizeof(double))};
    if (!u->ends || !u->averages || !u->ranges.sums) {
        destroy(&u->base);
        return lathe_error(LATHE_E_NOMEM, "no memory for the optimizer step");
    }
    memcpy(u->ends, table->ends, (size_t)table->n_parts * sizeof *u->ends);
    u->ranges.capacity = lathe__ranges_capacity(&u->ranges, m->n_threads);
    u->scratch_bytes = max_scratch(&u->ranges);
    *out = &u->base;
    return LATHE_OK;
}

/* Offset of the scratch memory, a multiple of 64. */
static int64_t scratch_at(const host_update *u)
{
    return (u->ranges.capacity * (int64_t)sizeof(float) + 63) / 64 * 64;
}

static int64_t own_bytes(const lathe_updater *base)
{
    const host_update *u = (const host_update *)base;
    return scratch_at(u) + u->scratch_bytes;
}

static int64_t staging_bytes(const lathe_updater *base)
{
    (void)base;
    return 0;
}

static lathe_status place(lathe_updater *base)
{
    host_update *u = (host_update *)base;
    LATHE_TRY(lathe_machine_alloc(u->m, LATHE_MEM_OPTIMIZER, own_bytes(base), &u->own));
    u->ranges.before = u->own;
    for (int32_t i = 0; i < u->ranges.n_tensors; i++) {
        const lathe_optimizer_tensor *t = &u->ranges.tensors[i];
        const lathe_store_row *row = &u->ranges.store->rows[t->tensor];
        float *held = lathe_store_average(u->ranges.store, t->tensor);
        u->averages[i] = held ? held + (t->first - row->held[LATHE_OF_STATE].begin) : NULL;
    }
    return LATHE_OK;
}

static lathe_status run(lathe_updater *base, int32_t part, int32_t what,
                        const lathe_optimizer_step *whole)
{
    host_update *u = (host_update *)base;
    const lathe_instance *optimizer = u->ranges.optimizer;
    const lathe_optimizer_v1 *table = optimizer->table;
    const int32_t begin = part > 0 ? u->ends[part - 1] : 0;
    lathe_optimizer_step step = *whole;
    step.tensors = u->ranges.tensors + begin;
    step.n_tensors = u->ends[part] - begin;
    step.scratch = u->scratch_bytes > 0 ? (char *)u->own + scratch_at(u) : NULL;
    step.scratch_bytes = u->scratch_bytes;
    if (what == LATHE_QUEUE_ESTIMATE)
        return table->estimate(optimizer->self, &step);
    if (what == LATHE_QUEUE_AVERAGE)
        return table->average(optimizer->self, &step, u->averages + begin);
    lathe_ranges ranges = u->ranges;
    ranges.tensors = step.tensors;
    ranges.n_tensors = step.n_tensors;
    return lathe__ranges_run(&ranges, &step, &u->update2, &u->param2);
}

static lathe_status fetch(lathe_updater *base)
{
    (void)base; /* run() has computed the figures */
    return LATHE_OK;
}

static void figures(lathe_updater *base, double *io_update2, double *io_param2)
{
    host_update *u = (host_update *)base;
    *io_update2 += u->update2;
    *io_param2 += u->param2;
    u->update2 = u->param2 = 0.0;
}

const lathe_updater_ops lathe_host_updater = {.part_elements = (int64_t)1 << 20,
                                              .create = create,
                                              .destroy = destroy,
                                              .own_bytes = own_bytes,
                                              .staging_bytes = staging_bytes,
                                              .place = place,
                                              .run = run,
                                              .fetch = fetch,
                                              .figures = figures};

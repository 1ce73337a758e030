/* Adds the gradients of a micro-batch, which ranks have added, to the sums of this rank's extents.
 */
#include "base/error.h"
#include "base/parallel.h"
#include "parallel/ranks/extents_internal.h"
#include "plug/answers.h"

static int32_t grad_dtype(const lathe_extents *x, int32_t k)
{
    const lathe_division *d = x->store->division;
    return lathe_params_grad_dtype(x->store->params, d->rows[d->buckets[k].first]);
}

static int64_t n_own(const lathe_extents *x, int32_t k)
{
    return lathe_bucket_extent(x->store->division, k, x->list[k].grad_width,
                               x->store->division->rank)
        .n;
}

lathe_status lathe__fresh_sums_prepare(lathe_extents *x, int32_t k)
{
    const lathe_op_attrs attrs = {.alpha = 1.0, .beta = 1.0};
    const lathe_desc own = lathe_desc_1d(grad_dtype(x, k), n_own(x, k)), in[2] = {own, own};
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = LATHE_OP_LINCOMB,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &own,
                                          .n_in = 2,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = x->m->flags,
                                          .n_threads = x->m->n_threads};
    int64_t scratch_bytes = 0;
    if (lathe_machine_memory(x->m)->runs_host_code || n_own(x, k) == 0 || x->list[k].add)
        return LATHE_OK;
    LATHE_TRY(lathe_answer_kernel(x->m->device, &problem, &x->list[k].add, &scratch_bytes));
    if (scratch_bytes > 0)
        return lathe_error(LATHE_E_UNSUPPORTED, "device \"%s\" needs scratch to add two tensors",
                           x->m->device->component->plugin->name);
    return LATHE_OK;
}

/* n elements of sums += fresh ones. */
typedef struct addition {
    void *sums;
    const void *fresh;
    int32_t dtype;
} addition;

static void add_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const addition *a = arg;
    (void)worker;
    if (a->dtype == LATHE_F32) {
        float *to = a->sums;
        for (int64_t i = begin; i < end; i++)
            to[i] += ((const float *)a->fresh)[i];
        return;
    }
    uint16_t *to = a->sums;
    const uint16_t *from = a->fresh;
    const int is_bf16 = a->dtype == LATHE_BF16;
    for (int64_t i = begin; i < end; i++)
        to[i] = is_bf16 ? lathe_f32_to_bf16(lathe_bf16_to_f32(to[i]) + lathe_bf16_to_f32(from[i]))
                        : lathe_f32_to_f16(lathe_f16_to_f32(to[i]) + lathe_f16_to_f32(from[i]));
}

/* Queues it after the work of the machine's stream. */
static lathe_status add_on_device(const lathe_extents *x, int32_t k, void *sums, const void *fresh)
{
    const void *const in[2] = {sums, fresh};
    void *const out[1] = {sums};
    const lathe_kernel_args args = {
        .size = (uint32_t)sizeof args, .in = in, .out = out, .stream = x->m->stream};
    return x->m->dev->kernel_run(x->m->device->self, x->list[k].add, &args);
}

lathe_status lathe__fresh_sums_add(const lathe_extents *x, int32_t k, int32_t is_first)
{
    const lathe_division *d = x->store->division;
    const lathe__bucket *b = &x->list[k];
    const char *own = (const char *)lathe_store_fresh(x->store, d->rows[d->buckets[k].first]) +
                      b->own_grad * b->grad_width;
    const int64_t n = n_own(x, k);
    addition a = {lathe_store_bucket_sums(x->store, k), own, grad_dtype(x, k)};
    if (n == 0)
        return LATHE_OK;
    if (is_first)
        return lathe_move(x->m, a.sums, own, n * b->grad_width);
    if (b->add)
        return add_on_device(x, k, a.sums, own);
    lathe_parallel_for(n, 4096, add_range, &a);
    return LATHE_OK;
}

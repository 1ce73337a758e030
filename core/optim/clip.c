/* Clips gradients. */
#include "optim/clip.h"

#include <string.h>

#include "plug/answers.h"

double lathe_norm_clip(double norm, double max_norm)
{
    return max_norm > 0.0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1.0;
}

static lathe_status create(lathe_value_clip *c, int64_t n, int32_t dtype, lathe_kernel **out)
{
    int64_t scratch = 0;
    const lathe_op_attrs attrs = {0};
    const lathe_desc x = lathe_desc_1d(dtype, n);
    const lathe_desc in[2] = {x, lathe_desc_1d(LATHE_F32, 1)};
    if (n == 0)
        return LATHE_OK;
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = LATHE_OP_CLAMP,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &x,
                                          .n_in = 2,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = c->m->flags,
                                          .n_threads = c->m->n_threads};
    LATHE_TRY(lathe_answer_kernel(c->m->device, &problem, out, &scratch));
    c->scratch_bytes = scratch > c->scratch_bytes ? scratch : c->scratch_bytes;
    return LATHE_OK;
}

lathe_status lathe_value_clip_init(lathe_value_clip *c, lathe_machine *m, const lathe_store *store)
{
    const int64_t n_narrow = (store->grad_bytes - store->wide_grad_bytes) / 2;
    *c = (lathe_value_clip){.m = m, .store = store};
    LATHE_TRY(create(c, store->wide_grad_bytes / 4, LATHE_F32, &c->kernels[0]));
    return create(c, n_narrow, store->params->grad_dtype, &c->kernels[1]);
}

void lathe_value_clip_fini(lathe_value_clip *c)
{
    for (int32_t k = 0; k < 2; k++)
        if (c->kernels[k])
            c->m->dev->kernel_destroy(c->m->device->self, c->kernels[k]);
    memset(c, 0, sizeof *c);
}

int64_t lathe_value_clip_bytes(const lathe_value_clip *c)
{
    return (c->scratch_bytes + 63) / 64 * 64;
}

static lathe_status clip(const lathe_value_clip *c, lathe_kernel *kernel, char *grads)
{
    if (kernel == NULL)
        return LATHE_OK;
    const void *const in[2] = {grads, &c->store->step->limit};
    void *const out[1] = {grads};
    const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                    .in = in,
                                    .out = out,
                                    .scratch = c->scratch_bytes > 0 ? c->scratch : NULL,
                                    .stream = c->m->stream};
    return c->m->dev->kernel_run(c->m->device->self, kernel, &args);
}

lathe_status lathe_value_clip_queue(const lathe_value_clip *c)
{
    LATHE_TRY(clip(c, c->kernels[0], c->store->grads));
    return clip(c, c->kernels[1], c->store->grads + c->store->wide_grad_bytes);
}

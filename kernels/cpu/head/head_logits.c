/* The logits of one model's head over the whole vocabulary, for one chunk of rows. */
#include "head/head_logits.h"
#include "base/cast.h"

#include "base/element.h"
#include "head/head_scale.h"

void cpu_head_logits_find(const lathe_kernel *k, head_logits *t, int32_t in_x, int32_t in_u,
                          int backward)
{
    const int has_more = kernel_has_in(k, in_u);
    *t = (head_logits){.v = k->in[in_x + 1].dims[0],
                       .dtype = k->in[in_x].dtype,
                       .n_pairs = has_more ? 2 : 1,
                       .in_s = kernel_has_in(k, in_u + 2) ? in_u + 2 : -1,
                       .out_ds = -1};
    if (t->in_s >= 0 && backward && kernel_has_out(k, 4))
        t->out_ds = 4;
    t->pairs[0] = (head_pair){.c = k->in[in_x + 1].dims[1],
                              .in_x = in_x,
                              .in_w = in_x + 1,
                              .out_dx = backward && kernel_has_out(k, 1) ? 1 : -1,
                              .out_dw = backward && kernel_has_out(k, 2) ? 2 : -1};
    if (has_more)
        t->pairs[1] = (head_pair){.c = k->in[in_u + 1].dims[1],
                                  .adds = 1,
                                  .in_x = in_u,
                                  .in_w = in_u + 1,
                                  .out_dx = backward && kernel_has_out(k, 3) ? 3 : -1,
                                  .out_dw = backward && kernel_has_out(k, 5) ? 5 : -1};
}

int64_t cpu_head_logits_row_bytes(const head_logits *t)
{
    return t->v * (lathe_dtype_bytes(t->dtype) + (t->in_s >= 0 ? lathe_dtype_bytes(LATHE_F32) : 0));
}

lathe_status cpu_head_logits_products(lathe_kernel *k, head_logits *t, int64_t *io_scratch)
{
    for (int p = 0; p < t->n_pairs; p++)
        LATHE_TRY(cpu_head_pair_products(k, &t->pairs[p], 0, t->rows, t->v, io_scratch));
    return LATHE_OK;
}

static int64_t carve(int64_t *io_at, int64_t bytes)
{
    const int64_t at_byte = cpu_round_up(*io_at, 64);
    *io_at = at_byte + bytes;
    return at_byte;
}

void cpu_head_logits_lay_out(head_logits *t, int64_t *io_at)
{
    const int64_t element = lathe_dtype_bytes(t->dtype);
    t->products_at = carve(io_at, t->rows * t->v * element);
    t->scaled_at = t->in_s >= 0 ? carve(io_at, t->rows * t->v * 4) : 0;
    for (int p = 0; p < t->n_pairs; p++) {
        head_pair *pair = &t->pairs[p];
        pair->x_at = carve(io_at, t->rows * pair->c * element);
        pair->dx_at = carve(io_at, pair->out_dx >= 0 ? t->rows * pair->c * 4 : 0);
    }
}

void cpu_head_logits_fini(cpu_device *device, head_logits *t)
{
    for (int p = 0; p < HEAD_MOST_PAIRS; p++)
        cpu_head_pair_fini(device, &t->pairs[p]);
}

void *cpu_head_logits_logits(const head_logits *t, char *scratch, int32_t *out_dtype)
{
    *out_dtype = t->in_s >= 0 ? LATHE_F32 : t->dtype;
    return scratch + (t->in_s >= 0 ? t->scaled_at : t->products_at);
}

/* The chunk's rows of a pair's x, gathered and padded. */
static const void *gather(const head_logits *t, const head_chunk *c, const head_pair *pair)
{
    const int64_t row_bytes = pair->c * lathe_dtype_bytes(t->dtype);
    const char *all = c->a->in[pair->in_x];
    char *to = c->scratch + pair->x_at;
    for (int64_t i = 0; i < c->count; i++)
        memcpy(to + i * row_bytes, all + c->list[c->from + i] * row_bytes, (size_t)row_bytes);
    memset(to + c->count * row_bytes, 0, (size_t)((t->rows - c->count) * row_bytes));
    return to;
}

static const lathe_host *host_of(const head_chunk *c)
{
    const cpu_device *device = c->k->device;
    return device->host;
}

static cpu_head_scaling scaling_of(const head_logits *t, const head_chunk *c)
{
    const cpu_head_scaling out = {.products = c->scratch + t->products_at,
                                  .scaled = (float *)(void *)(c->scratch + t->scaled_at),
                                  .s = c->a->in[t->in_s],
                                  .rows = t->rows,
                                  .width = t->v,
                                  .dtype = t->dtype};
    return out;
}

lathe_status cpu_head_logits_forward(const head_logits *t, const head_chunk *c)
{
    for (int p = 0; p < t->n_pairs; p++) {
        const head_pair *pair = &t->pairs[p];
        LATHE_TRY(cpu_product_run(c->k->device, pair->logits[0], gather(t, c, pair),
                                  c->a->in[pair->in_w], NULL, c->scratch + t->products_at,
                                  c->scratch, p > 0));
    }
    if (t->in_s >= 0) {
        cpu_head_scaling scaling = scaling_of(t, c);
        cpu_head_scale(host_of(c), &scaling);
    }
    return LATHE_OK;
}

static int adds(const lathe_kernel_args *a, int32_t out)
{
    return (a->accumulate >> out & 1u) != 0;
}

/* Computes dx of the chunk's rows of a pair, and adds to dW. */
static lathe_status pair_backward(const head_logits *t, const head_chunk *c, const head_pair *pair)
{
    const lathe_kernel_args *a = c->a;
    const void *gradient = c->scratch + t->products_at;
    float *dx = (float *)(void *)(c->scratch + pair->dx_at);
    if (pair->out_dx >= 0)
        LATHE_TRY(cpu_product_run(c->k->device, pair->dx[0], gradient, a->in[pair->in_w], NULL, dx,
                                  c->scratch, 0));
    for (int64_t i = 0; pair->out_dx >= 0 && i < c->count; i++)
        cpu_cast(host_of(c), at_mut(a->out[pair->out_dx], c->list[c->from + i] * pair->c, t->dtype),
                 t->dtype, dx + i * pair->c, LATHE_F32, pair->c, adds(a, pair->out_dx));
    if (pair->out_dw < 0)
        return LATHE_OK;
    return cpu_product_run(c->k->device, pair->dw[0], gradient, c->scratch + pair->x_at, NULL,
                           a->out[pair->out_dw], c->scratch, c->from > 0 || adds(a, pair->out_dw));
}

lathe_status cpu_head_logits_backward(const head_logits *t, const head_chunk *c)
{
    if (t->in_s >= 0) {
        cpu_head_scaling scaling = scaling_of(t, c);
        scaling.ds = t->out_ds >= 0 ? c->a->out[t->out_ds] : NULL;
        scaling.adds = c->from > 0 || (t->out_ds >= 0 && adds(c->a, t->out_ds));
        cpu_head_unscale(host_of(c), &scaling);
    }
    for (int p = 0; p < t->n_pairs; p++)
        LATHE_TRY(pair_backward(t, c, &t->pairs[p]));
    return LATHE_OK;
}

void cpu_head_logits_skip_row(const head_logits *t, const lathe_kernel_args *a, int64_t row)
{
    for (int p = 0; p < t->n_pairs; p++) {
        const head_pair *pair = &t->pairs[p];
        if (pair->out_dx >= 0 && !adds(a, pair->out_dx))
            memset(at_mut(a->out[pair->out_dx], row * pair->c, t->dtype), 0,
                   (size_t)(pair->c * lathe_dtype_bytes(t->dtype)));
    }
}

void cpu_head_logits_skip_all(const head_logits *t, const lathe_kernel_args *a)
{
    for (int p = 0; p < t->n_pairs; p++) {
        const head_pair *pair = &t->pairs[p];
        if (pair->out_dw >= 0 && !adds(a, pair->out_dw))
            memset(a->out[pair->out_dw], 0, (size_t)(t->v * pair->c) * sizeof(float));
    }
    if (t->out_ds >= 0 && !adds(a, t->out_ds))
        memset(a->out[t->out_ds], 0, (size_t)t->v * sizeof(float));
}

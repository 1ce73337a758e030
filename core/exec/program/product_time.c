/* Measures the time of a matrix product on the device, computed as in a run. */
#include "exec/program/product_time.h"

#include <stdlib.h>

#include "base/error.h"
#include "exec/program/exec.h"
#include "exec/store/transfer.h"
#include "plug/answers.h"

enum { MAX_RUNS = 12 };
#define TIME_LIMIT 0.1 /* s for one product, after the first two runs */

typedef struct product {
    lathe_kernel *kernel;
    int64_t x_bytes, w_bytes, y_bytes, scratch_bytes;
    char *memory; /* x, w, y, scratch */
} product;

static int64_t product_bytes(const product *p)
{
    return p->x_bytes + p->w_bytes + p->y_bytes + p->scratch_bytes;
}

static void product_fini(lathe_machine *m, product *p)
{
    if (p->memory)
        m->dev->free(m->device->self, p->memory);
    if (p->kernel)
        m->dev->kernel_destroy(m->device->self, p->kernel);
}

static lathe_status product_init(lathe_machine *m, int32_t dtype, int32_t fp8,
                                 const lathe_product_shape *s, product *p)
{
    const lathe_op_attrs attrs = {.fp8 = fp8};
    const lathe_desc in[3] = {lathe_desc_2d(dtype, s->m, s->k),
                              lathe_desc_2d(dtype, s->n, s->k),
                              {LATHE_ABSENT, 0, {1, 1, 1, 1}}};
    const lathe_desc out = lathe_desc_2d(dtype, s->m, s->n);
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = LATHE_OP_LINEAR,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &out,
                                          .n_in = 3,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = m->flags,
                                          .n_threads = m->n_threads};
    *p = (product){.x_bytes = lathe_desc_bytes(&in[0]),
                   .w_bytes = lathe_desc_bytes(&in[1]),
                   .y_bytes = lathe_desc_bytes(&out)};
    return lathe_answer_kernel(m->device, &problem, &p->kernel, &p->scratch_bytes);
}

/* Fills with small numbers of both signs without a pattern, no denormals, no zeros. A product of
 * equal numbers takes less power, so the clock would be higher than in training. */
static lathe_status fill_small(lathe_machine *m, uint16_t *device, int64_t n)
{
    enum { CHUNK = 1 << 20 };
    lathe_status status = LATHE_OK;
    uint16_t *host = malloc(CHUNK * sizeof *host);
    if (!host)
        return lathe_error(LATHE_E_NOMEM, "no memory to measure products");
    uint64_t s = 0x9E3779B97F4A7C15u;
    for (int64_t i = 0; i < CHUNK; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        host[i] = (uint16_t)(0x3d00u | ((uint32_t)(s >> 32) & 0x80ffu));
    }
    for (int64_t at = 0; at < n && status == LATHE_OK; at += CHUNK) {
        const int64_t left = n - at < CHUNK ? n - at : CHUNK;
        status = lathe_upload(m, device + at, host, left * (int64_t)sizeof *host);
    }
    free(host);
    return status;
}

/* The shortest of up to MAX_RUNS, after one that warms up. */
static lathe_status time_product(lathe_machine *m, const product *p, double *out_best)
{
    char *w = p->memory + p->x_bytes, *y = w + p->w_bytes;
    const void *const inputs[3] = {p->memory, w, NULL};
    void *const outputs[1] = {y};
    const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                    .in = inputs,
                                    .out = outputs,
                                    .scratch = p->scratch_bytes ? y + p->y_bytes : NULL,
                                    .stream = m->stream};
    double sum = 0.0;
    *out_best = 0.0;
    for (int i = 0; i < MAX_RUNS && (i < 2 || sum < TIME_LIMIT); i++) {
        const double begin = lathe_now();
        LATHE_TRY(m->dev->kernel_run(m->device->self, p->kernel, &args));
        LATHE_TRY(lathe_machine_sync(m));
        const double seconds = lathe_now() - begin;
        sum += seconds;
        if (i == 1 || (i > 1 && seconds < *out_best))
            *out_best = seconds;
    }
    return LATHE_OK;
}

lathe_status lathe_product_time(lathe_machine *m, int32_t dtype, int32_t fp8,
                                const lathe_product_shape *s, int64_t room, double *out_best)
{
    product p;
    void *memory = NULL;
    *out_best = 0.0;
    lathe_status status = product_init(m, dtype, fp8, s, &p);
    if (status != LATHE_OK || product_bytes(&p) > room)
        goto done;
    status = m->dev->alloc(m->device->self, product_bytes(&p), LATHE_MEM_DEVICE, &memory);
    if (status == LATHE_E_NOMEM) { /* other processes use memory of the device */
        lathe_error_clear();
        status = LATHE_OK;
        goto done;
    }
    p.memory = memory;
    if (status == LATHE_OK)
        status = fill_small(m, memory, (p.x_bytes + p.w_bytes) / (int64_t)sizeof(uint16_t));
    if (status == LATHE_OK)
        status = time_product(m, &p, out_best);
done:
    product_fini(m, &p);
    return status;
}

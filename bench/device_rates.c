/* Times products and copies that are queued one after the other, without a wait between them. */
#include "device_rates.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/exec.h"
#include "exec/store/transfer.h"

enum { FIRST_N = 32, LAST_N = 8192, MAX_RUNS = 1000 };
#define N_VALUES ((int64_t)1 << 20)
#define MAX_COPY ((int64_t)1 << 30)
#define LONG_ENOUGH 2e-3 /* s */

/* Sums of four uniform numbers: approximately normal, mean 0, standard deviation 0.58. */
static lathe_status make_values(device_rates *r)
{
    const int64_t each = lathe_dtype_bytes(r->dtype);
    char *host = malloc((size_t)(N_VALUES * each));
    uint64_t s = 0x9E3779B97F4A7C15u;
    if (!host)
        return lathe_error(LATHE_E_NOMEM, "no memory for random operands");
    for (int64_t i = 0; i < N_VALUES; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        float x = 0.0f;
        for (int k = 0; k < 4; k++)
            x += (float)(int16_t)(s >> 16 * k) * 0x1p-16f;
        if (r->dtype == LATHE_F32)
            memcpy(host + 4 * i, &x, 4);
        else {
            const uint16_t half =
                r->dtype == LATHE_BF16 ? lathe_f32_to_bf16(x) : lathe_f32_to_f16(x);
            memcpy(host + 2 * i, &half, 2);
        }
    }
    lathe_status status =
        r->m->dev->alloc(r->m->device->self, N_VALUES * each, LATHE_MEM_DEVICE, &r->values);
    if (status == LATHE_OK)
        status = lathe_upload(r->m, r->values, host, N_VALUES * each);
    free(host);
    return status;
}

lathe_status device_rates_fill(const device_rates *r, void *to, int64_t bytes)
{
    const int64_t max = N_VALUES * lathe_dtype_bytes(r->dtype);
    for (int64_t at = 0; at < bytes; at += max)
        LATHE_TRY(
            lathe_move(r->m, (char *)to + at, r->values, bytes - at < max ? bytes - at : max));
    return LATHE_OK;
}

static lathe_status prepare(device_rates *r, int64_t n, int *out_fits)
{
    const lathe_op_attrs attrs = {.alpha = 1.0};
    const lathe_desc in[3] = {lathe_desc_2d(r->dtype, 2 * n, n),
                              lathe_desc_2d(r->dtype, n, n),
                              {LATHE_ABSENT, 0, {1, 1, 1, 1}}};
    const lathe_desc out = lathe_desc_2d(r->dtype, 2 * n, n);
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = LATHE_OP_LINEAR,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &out,
                                          .n_in = 3,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = r->m->flags,
                                          .n_threads = r->m->n_threads};
    if (r->kernel)
        r->m->dev->kernel_destroy(r->m->device->self, r->kernel);
    r->kernel = NULL;
    r->n = n;
    r->x_bytes = lathe_desc_bytes(&in[0]);
    r->w_bytes = lathe_desc_bytes(&in[1]);
    LATHE_TRY(
        r->m->dev->kernel_create(r->m->device->self, &problem, &r->kernel, &r->scratch_bytes));
    *out_fits = 2 * r->x_bytes + r->w_bytes + r->scratch_bytes <= r->bytes;
    return LATHE_OK;
}

static int tells_time(const device_rates *r)
{
    return LATHE_HAS(r->m->dev, event_stamp) && LATHE_HAS(r->m->dev, event_seconds);
}

static lathe_status stamp(device_rates *r, lathe_event **event, double *host)
{
    if (tells_time(r))
        return r->m->dev->event_stamp(r->m->device->self, r->m->stream, event);
    *host = lathe_now();
    return LATHE_OK;
}

/* Seconds per run of `runs` that are queued one after another. */
static lathe_status time_runs(device_rates *r, device_rates_fn once, void *arg, int64_t runs,
                              double *out)
{
    double begin = 0.0, end = 0.0;
    LATHE_TRY(stamp(r, &r->begin, &begin));
    for (int64_t i = 0; i < runs; i++)
        LATHE_TRY(once(arg));
    LATHE_TRY(stamp(r, &r->end, &end));
    LATHE_TRY(lathe_machine_sync(r->m));
    double seconds = end - begin;
    if (tells_time(r))
        LATHE_TRY(r->m->dev->event_seconds(r->m->device->self, r->begin, r->end, &seconds));
    *out = (seconds > 1e-9 ? seconds : 1e-9) / (double)runs;
    return LATHE_OK;
}

lathe_status device_rates_time(device_rates *r, device_rates_fn once, void *arg, double seconds,
                               double *out)
{
    LATHE_TRY(time_runs(r, once, arg, 2, out));
    const double wanted = seconds / *out;
    return time_runs(r, once, arg, wanted > MAX_RUNS ? MAX_RUNS : (int64_t)wanted + 2, out);
}

static lathe_status multiply(void *arg)
{
    const device_rates *r = arg;
    char *w = r->memory + r->x_bytes, *y = w + r->w_bytes;
    const void *const inputs[3] = {r->memory, w, NULL};
    void *const outputs[1] = {y};
    const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                    .in = inputs,
                                    .out = outputs,
                                    .scratch = r->scratch_bytes ? y + r->x_bytes : NULL,
                                    .stream = r->m->stream};
    return r->m->dev->kernel_run(r->m->device->self, r->kernel, &args);
}

static int64_t copy_bytes(const device_rates *r)
{
    const int64_t half = r->bytes / 2 / 256 * 256;
    return half < MAX_COPY ? half : MAX_COPY;
}

static lathe_status copy(void *arg)
{
    const device_rates *r = arg;
    return lathe_move(r->m, r->memory + copy_bytes(r), r->memory, copy_bytes(r));
}

lathe_status device_rates_open(lathe_machine *m, int32_t dtype, void *memory, int64_t bytes,
                               device_rates *out)
{
    *out = (device_rates){.m = m, .memory = memory, .bytes = bytes, .dtype = dtype};
    LATHE_TRY(make_values(out));
    for (int64_t n = FIRST_N; n <= LAST_N; n *= 2) {
        int fits;
        double seconds;
        LATHE_TRY(prepare(out, n, &fits));
        if (!fits && n == FIRST_N)
            return lathe_error(LATHE_E_NOMEM, "%lld bytes are too few to measure products in",
                               (long long)bytes);
        if (!fits)
            return prepare(out, n / 2, &fits);
        LATHE_TRY(device_rates_fill(out, out->memory, out->x_bytes + out->w_bytes));
        LATHE_TRY(time_runs(out, multiply, out, 1, &seconds));
        LATHE_TRY(time_runs(out, multiply, out, 2, &seconds));
        if (seconds >= LONG_ENOUGH)
            break;
    }
    return LATHE_OK;
}

void device_rates_close(device_rates *r)
{
    const lathe_device_v1 *dev = r->m->dev;
    if (r->kernel)
        dev->kernel_destroy(r->m->device->self, r->kernel);
    if (r->values)
        dev->free(r->m->device->self, r->values);
    if (r->begin)
        dev->event_destroy(r->m->device->self, r->begin);
    if (r->end)
        dev->event_destroy(r->m->device->self, r->end);
}

lathe_status device_rates_product(device_rates *r, double seconds, double *out)
{
    double each;
    LATHE_TRY(device_rates_fill(r, r->memory, r->x_bytes + r->w_bytes));
    LATHE_TRY(device_rates_time(r, multiply, r, seconds, &each));
    *out = 4.0 * (double)r->n * (double)r->n * (double)r->n / each;
    return LATHE_OK;
}

lathe_status device_rates_copy(device_rates *r, double seconds, double *out)
{
    double each;
    LATHE_TRY(device_rates_time(r, copy, r, seconds, &each));
    *out = 2.0 * (double)copy_bytes(r) / each;
    return LATHE_OK;
}

/* SLICE: rows start .. start+count-1 of x; and its derivative, zero outside them. */
#include <string.h>

#include "cpu.h"
#include "product.h"

/* Elements of a row when `whole` [R,..] and `part` [count,..] fit attrs; else -1. */
static int64_t row_elements(const lathe_kernel *k, const lathe_desc *whole, const lathe_desc *part)
{
    const int64_t start = k->attrs.start, count = k->attrs.count;
    if (whole->rank < 1 || count < 1 || start < 0 || start + count > whole->dims[0])
        return -1;
    const int64_t row = lathe_desc_count(whole) / whole->dims[0];
    return lathe_desc_count(part) == count * row && part->dtype == whole->dtype ? row : -1;
}

static lathe_status check_accumulate(const lathe_kernel *k, int32_t dtype)
{
    if (k->may_accumulate && !cpu_computes(dtype))
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED, "%s: %s cannot be added to", cpu_op_name(k),
                          lathe_dtype_name(dtype));
    return LATHE_OK;
}

static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    if (row_elements(k, &k->in[0], &k->out[0]) < 0)
        return cpu_bad_shape(k, "y must be rows start .. start+count-1 of x, of its dtype");
    return check_accumulate(k, k->in[0].dtype);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *y = &k->out[0];
    const int64_t row = lathe_desc_count(y) / k->attrs.count;
    const char *x = (const char *)a->in[0] + k->attrs.start * row * lathe_dtype_bytes(y->dtype);
    if (a->accumulate & 1u)
        cpu_convert(k->host, a->out[0], y->dtype, x, y->dtype, lathe_desc_count(y), 1);
    else
        return cpu_memory_copy(k->device, NULL, a->out[0], x, lathe_desc_bytes(y),
                               LATHE_COPY_ON_DEVICE);
    return LATHE_OK;
}

static lathe_status prepare_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    (void)out_scratch;
    if (row_elements(k, &k->out[0], &k->in[0]) < 0)
        return cpu_bad_shape(k, "dy must be rows start .. start+count-1 of dx, of its dtype");
    return check_accumulate(k, k->in[0].dtype);
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *dy = &k->in[0];
    const int64_t bytes = lathe_desc_bytes(dy), total = lathe_desc_bytes(&k->out[0]);
    const int64_t before = k->attrs.start * (bytes / k->attrs.count);
    char *dx = a->out[0];
    if (a->accumulate & 1u) {
        cpu_convert(k->host, dx + before, dy->dtype, a->in[0], dy->dtype, lathe_desc_count(dy), 1);
        return LATHE_OK;
    }
    memset(dx, 0, (size_t)before);
    memset(dx + before + bytes, 0, (size_t)(total - before - bytes));
    return cpu_memory_copy(k->device, NULL, dx + before, a->in[0], bytes, LATHE_COPY_ON_DEVICE);
}

const cpu_op cpu_op_slice = {prepare, run, NULL, 1};
const cpu_op cpu_op_slice_bwd = {prepare_bwd, run_bwd, NULL, 1};

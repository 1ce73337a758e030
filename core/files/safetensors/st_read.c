/* Reads elements of tensors, decoding those that their file holds encoded. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/st_tensor.h"

enum { PART = 1 << 18 }; /* elements that are decoded at a time, unless a row has more */

/* Elements [begin, begin + n) of an encoded tensor. `rows` holds `room` whole rows. */
static lathe_status read_rows(const lathe_st_tensor *t, int64_t begin, int64_t n, float *rows,
                              int64_t room, void *out, int32_t dtype)
{
    const int64_t cols = t->desc.dims[t->desc.rank - 1], end = begin + n;
    const int64_t size = lathe_dtype_bytes(dtype);
    char *to = out;
    for (int64_t at = begin; at < end;) {
        const int64_t first = at / cols, left = (end + cols - 1) / cols - first;
        const int64_t n_rows = left < room ? left : room;
        const int64_t stop = (first + n_rows) * cols < end ? (first + n_rows) * cols : end;
        LATHE_TRY(t->decode(t, first, n_rows, rows));
        LATHE_TRY(lathe_convert(to, dtype, rows + (at - first * cols), LATHE_F32, stop - at));
        to += (stop - at) * size;
        at = stop;
    }
    return LATHE_OK;
}

lathe_status lathe_st_read(const lathe_st_tensor *t, int64_t begin, int64_t n, void *out,
                           int32_t dtype)
{
    const int64_t cols = t->desc.rank > 0 ? t->desc.dims[t->desc.rank - 1] : 1;
    if (begin < 0 || n < 0 || n > lathe_desc_count(&t->desc) - begin)
        return lathe_error(LATHE_E_ARG, "%s: %s: elements %lld..%lld of %lld", t->file, t->name,
                           (long long)begin, (long long)(begin + n),
                           (long long)lathe_desc_count(&t->desc));
    if (t->decode == NULL)
        return lathe_convert(out, dtype,
                             (const char *)t->data + begin * lathe_dtype_bytes(t->desc.dtype),
                             t->desc.dtype, n);
    if (n == 0)
        return LATHE_OK;
    if (dtype == LATHE_F32 && begin % cols == 0 && n % cols == 0)
        return t->decode(t, begin / cols, n / cols, out);
    const int64_t touched = (begin + n + cols - 1) / cols - begin / cols;
    const int64_t max = PART / cols > 1 ? PART / cols : 1, room = touched < max ? touched : max;
    float *rows = malloc((size_t)(room * cols) * sizeof *rows);
    if (rows == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory to decode %s", t->file, t->name);
    const lathe_status status = read_rows(t, begin, n, rows, room, out, dtype);
    free(rows);
    return status;
}

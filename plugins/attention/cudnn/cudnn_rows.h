/* The cudnn backend's own CUDA code: its kernels, and the selection of the GPU. */
#ifndef LATHE_CUDNN_ROWS_H
#define LATHE_CUDNN_ROWS_H

#include "lathe/attention.h"
#include "lathe/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Makes GPU `index` the calling thread's current one. Returns NULL, or the error message. */
const char *cudnn_rows_follow(int32_t index);

/** Converts `stream` for cudnnSetStream; NULL becomes the default in-order stream. */
void *cudnn_rows_stream(lathe_stream *stream);

/** bias[b,i,j] = j >= doc_start[b,i] ? 0 : -65504, for n_rows queries in batch rows of t queries.
 *
 *   doc_start [n_rows] int32 device  in   a start after its query counts as the query itself
 *   bias      [n_rows, stride] bf16 or f16 device  out; stride a multiple of 8, 16-byte aligned
 *
 *  Stream: queued.
 */
lathe_status cudnn_rows_bias(const lathe_host *host, int32_t dtype, const int32_t *doc_start,
                             void *bias, int64_t n_rows, int64_t t, int64_t stride,
                             lathe_stream *stream);

/** starts[b,i] = min(doc_start[b,i], i), for n_rows queries in batch rows of t queries, so that
 *  every query sees a key. int32, both in device memory. Queued. */
lathe_status cudnn_rows_starts(const lathe_host *host, const int32_t *doc_start, int32_t *starts,
                               int64_t n_rows, int64_t t, lathe_stream *stream);

/** to += from, for rows of `width` elements, `stride` elements apart in both. bf16 or f16, added in
 *  f32; width and stride are multiples of 8, both pointers 16-byte aligned. Queued. */
lathe_status cudnn_rows_add(const lathe_host *host, int32_t dtype, const void *from, void *to,
                            int64_t n_rows, int64_t width, int64_t stride, lathe_stream *stream);

#ifdef __cplusplus
}
#endif

#endif

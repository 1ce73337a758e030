/* Copies data between host and device. */
#include "store/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"

/* Double buffer: the host fills one half while the device copies the other. */
#define HALF ((int64_t)2 << 20)

int64_t lathe_staging_bytes(const lathe_machine *m)
{
    return lathe_machine_shares(m) ? 0 : 2 * HALF;
}

lathe_status lathe_staging_place(lathe_machine *m)
{
    void *memory = NULL;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_STAGING, lathe_staging_bytes(m), &memory));
    m->staging = memory;
    return LATHE_OK;
}

void lathe_staging_fini(lathe_machine *m)
{
    if (m->staging)
        lathe_machine_free(m, LATHE_MEM_STAGING, lathe_staging_bytes(m), m->staging);
    m->staging = NULL;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

lathe_status lathe_upload(lathe_machine *m, void *device, const void *host, int64_t bytes)
{
    if (lathe_machine_shares(m)) {
        lathe_parallel_copy(device, host, bytes);
        return LATHE_OK;
    }
    int32_t half = 0;
    for (int64_t at = 0; at < bytes; at += HALF, half = !half) {
        const int64_t n = least(HALF, bytes - at);
        if (at > 0 && half == 0) /* both halves are in flight */
            LATHE_TRY(lathe_machine_sync(m));
        char *piece = m->staging + half * HALF;
        memcpy(piece, (const char *)host + at, (size_t)n);
        LATHE_TRY(m->dev->copy(m->device->self, m->stream, (char *)device + at, piece, n,
                               LATHE_COPY_TO_DEVICE));
    }
    return bytes > 0 ? lathe_machine_sync(m) : LATHE_OK;
}

lathe_status lathe_download_pieces(lathe_machine *m, const void *device, int64_t bytes,
                                   lathe_piece_fn fn, void *arg)
{
    if (lathe_machine_shares(m))
        return fn(arg, 0, device, bytes);
    for (int64_t at = 0; at < bytes; at += 2 * HALF) {
        const int64_t n = least(2 * HALF, bytes - at);
        LATHE_TRY(m->dev->copy(m->device->self, m->stream, m->staging, (const char *)device + at, n,
                               LATHE_COPY_TO_HOST));
        LATHE_TRY(lathe_machine_sync(m));
        LATHE_TRY(fn(arg, at, m->staging, n));
    }
    return LATHE_OK;
}

static lathe_status keep_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    memcpy((char *)arg + offset, data, (size_t)bytes);
    return LATHE_OK;
}

lathe_status lathe_download(lathe_machine *m, void *host, const void *device, int64_t bytes)
{
    if (lathe_machine_shares(m)) {
        lathe_parallel_copy(host, device, bytes);
        return LATHE_OK;
    }
    return lathe_download_pieces(m, device, bytes, keep_piece, host);
}

lathe_status lathe_download_whole(lathe_machine *m, const void *device, int64_t bytes,
                                  const void **out)
{
    void *grown = bytes > m->tensor_bytes ? realloc(m->tensor, (size_t)bytes) : m->tensor;
    if (!grown)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld bytes from the device",
                           (long long)bytes);
    m->tensor_bytes = bytes > m->tensor_bytes ? bytes : m->tensor_bytes;
    m->tensor = grown;
    *out = grown;
    return lathe_download(m, grown, device, bytes);
}

lathe_status lathe_fetch_pinned(lathe_machine *m, void *pinned, const void *device, int64_t bytes)
{
    if (bytes == 0 || pinned == device)
        return LATHE_OK;
    if (!lathe_machine_shares(m))
        return m->dev->copy(m->device->self, m->stream, pinned, device, bytes, LATHE_COPY_TO_HOST);
    lathe_parallel_copy(pinned, device, bytes);
    return LATHE_OK;
}

lathe_status lathe_send_pinned(lathe_machine *m, void *device, const void *pinned, int64_t bytes)
{
    if (bytes == 0 || pinned == device)
        return LATHE_OK;
    if (!lathe_machine_shares(m))
        return m->dev->copy(m->device->self, m->stream, device, pinned, bytes,
                            LATHE_COPY_TO_DEVICE);
    lathe_parallel_copy(device, pinned, bytes);
    return LATHE_OK;
}

int64_t lathe_view_bytes(const lathe_machine *m, int64_t bytes)
{
    return lathe_machine_shares(m) ? 0 : bytes;
}

void *lathe_view_at(const lathe_machine *m, void *device, void *pinned)
{
    return lathe_machine_shares(m) ? device : pinned;
}

lathe_status lathe_move(lathe_machine *m, void *to, const void *from, int64_t bytes)
{
    if (lathe_machine_shares(m)) {
        lathe_parallel_copy(to, from, bytes);
        return LATHE_OK;
    }
    return m->dev->copy(m->device->self, m->stream, to, from, bytes, LATHE_COPY_ON_DEVICE);
}

#define SWAP_BYTES ((int64_t)1 << 16) /* exchanged by one thread at a time */

typedef struct swap_job {
    char *a, *b;
} swap_job;

static void swap_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const swap_job *job = arg;
    char piece[4096];
    (void)worker;
    for (int64_t at = begin; at < end; at += (int64_t)sizeof piece) {
        const size_t n = (size_t)least((int64_t)sizeof piece, end - at);
        memcpy(piece, job->a + at, n);
        memcpy(job->a + at, job->b + at, n);
        memcpy(job->b + at, piece, n);
    }
}

lathe_status lathe_transfer_swap(lathe_machine *m, void *a, void *b, int64_t bytes, void *through,
                                 int64_t room)
{
    char *const x = a, *const y = b;
    if (lathe_machine_shares(m)) {
        swap_job job = {x, y};
        lathe_parallel_for(bytes, SWAP_BYTES, swap_range, &job);
        return LATHE_OK;
    }
    for (int64_t at = 0; at < bytes; at += room) {
        const int64_t n = least(room, bytes - at);
        LATHE_TRY(lathe_move(m, through, x + at, n));
        LATHE_TRY(lathe_move(m, x + at, y + at, n));
        LATHE_TRY(lathe_move(m, y + at, through, n));
    }
    return LATHE_OK;
}

/* Copies data between host and device: the tables of the kinds of memory (memory_kind.h), and the
 * functions that go through them. */
#include "exec/store/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"

/* Double buffer: the host fills one half while the device copies the other. */
#define HALF ((int64_t)2 << 20)

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- memory of the device's own ---- */

static lathe_status queue_copy(lathe_machine *m, void *to, const void *from, int64_t bytes,
                               int32_t direction)
{
    return m->dev->copy(m->device->self, m->stream, to, from, bytes, direction);
}

static lathe_status upload_staged(lathe_machine *m, void *device, const void *host, int64_t bytes)
{
    int32_t half = 0;
    for (int64_t at = 0; at < bytes; at += HALF, half = !half) {
        const int64_t n = least(HALF, bytes - at);
        if (at > 0 && half == 0) /* both halves are in flight */
            LATHE_TRY(lathe_machine_sync(m));
        char *piece = m->staging + half * HALF;
        memcpy(piece, (const char *)host + at, (size_t)n);
        LATHE_TRY(queue_copy(m, (char *)device + at, piece, n, LATHE_COPY_TO_DEVICE));
    }
    return bytes > 0 ? lathe_machine_sync(m) : LATHE_OK;
}

static lathe_status download_staged(lathe_machine *m, const void *device, int64_t bytes,
                                    lathe_piece_fn fn, void *arg)
{
    for (int64_t at = 0; at < bytes; at += 2 * HALF) {
        const int64_t n = least(2 * HALF, bytes - at);
        LATHE_TRY(queue_copy(m, m->staging, (const char *)device + at, n, LATHE_COPY_TO_HOST));
        LATHE_TRY(lathe_machine_sync(m));
        LATHE_TRY(fn(arg, at, m->staging, n));
    }
    return LATHE_OK;
}

/* lathe_piece_fn */
static lathe_status keep_piece(void *arg, int64_t offset, const void *data, int64_t bytes)
{
    lathe_parallel_copy((char *)arg + offset, data, bytes);
    return LATHE_OK;
}

static lathe_status read_copy(lathe_machine *m, const void *device, int64_t bytes, const void **out)
{
    void *grown = bytes > m->tensor_bytes ? realloc(m->tensor, (size_t)bytes) : m->tensor;
    if (!grown)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld bytes from the device",
                           (long long)bytes);
    m->tensor_bytes = bytes > m->tensor_bytes ? bytes : m->tensor_bytes;
    m->tensor = grown;
    *out = grown;
    return download_staged(m, device, bytes, keep_piece, grown);
}

static lathe_status swap_through(lathe_machine *m, void *a, void *b, int64_t bytes, void *through,
                                 int64_t room)
{
    char *const x = a, *const y = b;
    for (int64_t at = 0; at < bytes; at += room) {
        const int64_t n = least(room, bytes - at);
        LATHE_TRY(queue_copy(m, through, x + at, n, LATHE_COPY_ON_DEVICE));
        LATHE_TRY(queue_copy(m, x + at, y + at, n, LATHE_COPY_ON_DEVICE));
        LATHE_TRY(queue_copy(m, y + at, through, n, LATHE_COPY_ON_DEVICE));
    }
    return LATHE_OK;
}

static const lathe_memory_kind own_memory = {.is_queued = 1,
                                             .room = LATHE_MEM_SCRATCH,
                                             .staging_bytes = 2 * HALF,
                                             .upload = upload_staged,
                                             .download = download_staged,
                                             .read = read_copy,
                                             .copy = queue_copy,
                                             .swap = swap_through};

/* ---- host memory ---- */

static lathe_status copy_now(lathe_machine *m, void *to, const void *from, int64_t bytes,
                             int32_t direction)
{
    (void)m, (void)direction;
    lathe_parallel_copy(to, from, bytes);
    return LATHE_OK;
}

static lathe_status upload_now(lathe_machine *m, void *device, const void *host, int64_t bytes)
{
    return copy_now(m, device, host, bytes, LATHE_COPY_TO_DEVICE);
}

static lathe_status download_now(lathe_machine *m, const void *device, int64_t bytes,
                                 lathe_piece_fn fn, void *arg)
{
    (void)m;
    return fn(arg, 0, device, bytes);
}

static lathe_status read_now(lathe_machine *m, const void *device, int64_t bytes, const void **out)
{
    (void)m, (void)bytes;
    *out = device;
    return LATHE_OK;
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

static lathe_status swap_now(lathe_machine *m, void *a, void *b, int64_t bytes, void *through,
                             int64_t room)
{
    swap_job job = {a, b};
    (void)m, (void)through, (void)room;
    lathe_parallel_for(bytes, SWAP_BYTES, swap_range, &job);
    return LATHE_OK;
}

static const lathe_memory_kind host_memory = {.is_in_place = 1,
                                              .is_of_host = 1,
                                              .runs_host_code = 1,
                                              .room = LATHE_MEM_STAGING,
                                              .upload = upload_now,
                                              .download = download_now,
                                              .read = read_now,
                                              .copy = copy_now,
                                              .swap = swap_now};

/* ---- unified memory ---- */

static lathe_status upload_settled(lathe_machine *m, void *device, const void *data, int64_t bytes)
{
    LATHE_TRY(lathe_machine_sync(m));
    return upload_now(m, device, data, bytes);
}

static lathe_status download_settled(lathe_machine *m, const void *device, int64_t bytes,
                                     lathe_piece_fn fn, void *arg)
{
    LATHE_TRY(lathe_machine_sync(m));
    return fn(arg, 0, device, bytes);
}

static lathe_status read_settled(lathe_machine *m, const void *device, int64_t bytes,
                                 const void **out)
{
    LATHE_TRY(lathe_machine_sync(m));
    return read_now(m, device, bytes, out);
}

static const lathe_memory_kind unified_memory = {.is_queued = 1,
                                                 .is_of_host = 1,
                                                 .room = LATHE_MEM_SCRATCH,
                                                 .upload = upload_settled,
                                                 .download = download_settled,
                                                 .read = read_settled,
                                                 .copy = queue_copy,
                                                 .swap = swap_through};

const lathe_memory_kind *lathe_memory_kind_of(const lathe_device_info *info)
{
    static const lathe_memory_kind *const kinds[LATHE_N_MEMORIES] = {
        [LATHE_MEMORY_OWN] = &own_memory,
        [LATHE_MEMORY_HOST] = &host_memory,
        [LATHE_MEMORY_UNIFIED] = &unified_memory};
    const int32_t kind = info->host_memory; /* a plugin's answer, which may not be checked yet */
    return kinds[kind >= 0 && kind < LATHE_N_MEMORIES ? kind : LATHE_MEMORY_OWN];
}

/* ---- any memory ---- */

int64_t lathe_staging_bytes(const lathe_machine *m)
{
    return lathe_machine_memory(m)->staging_bytes;
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

lathe_status lathe_upload(lathe_machine *m, void *device, const void *host, int64_t bytes)
{
    return lathe_machine_memory(m)->upload(m, device, host, bytes);
}

lathe_status lathe_download_pieces(lathe_machine *m, const void *device, int64_t bytes,
                                   lathe_piece_fn fn, void *arg)
{
    return lathe_machine_memory(m)->download(m, device, bytes, fn, arg);
}

lathe_status lathe_download(lathe_machine *m, void *host, const void *device, int64_t bytes)
{
    return lathe_download_pieces(m, device, bytes, keep_piece, host);
}

lathe_status lathe_read_whole(lathe_machine *m, const void *device, int64_t bytes, const void **out)
{
    return lathe_machine_memory(m)->read(m, device, bytes, out);
}

lathe_status lathe_fetch_pinned(lathe_machine *m, void *pinned, const void *device, int64_t bytes)
{
    return bytes == 0 || pinned == device
               ? LATHE_OK
               : lathe_machine_memory(m)->copy(m, pinned, device, bytes, LATHE_COPY_TO_HOST);
}

lathe_status lathe_send_pinned(lathe_machine *m, void *device, const void *pinned, int64_t bytes)
{
    return bytes == 0 || pinned == device
               ? LATHE_OK
               : lathe_machine_memory(m)->copy(m, device, pinned, bytes, LATHE_COPY_TO_DEVICE);
}

int64_t lathe_view_bytes(const lathe_machine *m, int64_t bytes)
{
    return lathe_machine_memory(m)->is_in_place ? 0 : bytes;
}

void *lathe_view_at(const lathe_machine *m, void *device, void *pinned)
{
    return lathe_machine_memory(m)->is_in_place ? device : pinned;
}

lathe_status lathe_move(lathe_machine *m, void *to, const void *from, int64_t bytes)
{
    return lathe_machine_memory(m)->copy(m, to, from, bytes, LATHE_COPY_ON_DEVICE);
}

lathe_status lathe_transfer_swap(lathe_machine *m, void *a, void *b, int64_t bytes, void *through,
                                 int64_t room)
{
    return lathe_machine_memory(m)->swap(m, a, b, bytes, through, room);
}

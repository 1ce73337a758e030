/* Copies data between host memory and device memory that the host cannot access. The data are
 * copied in pieces through pinned memory that is part of the memory plan. If the host shares the
 * device's memory, these are plain copies and need no memory of their own.
 *
 * Threads: only the thread that trains may call these functions.
 */
#ifndef LATHE_STORE_TRANSFER_H
#define LATHE_STORE_TRANSFER_H

#include "store/machine.h"

/** Bytes of LATHE_MEM_STAGING that transfers need; 0 if the host shares the device's memory. */
int64_t lathe_staging_bytes(const lathe_machine *m);
lathe_status lathe_staging_place(lathe_machine *m);
void lathe_staging_fini(lathe_machine *m);

/** Copies host to device after all queued work, and waits for the copy. */
lathe_status lathe_upload(lathe_machine *m, void *device, const void *host, int64_t bytes);

/** Copies device to host after all queued work, and waits for the copy. */
lathe_status lathe_download(lathe_machine *m, void *host, const void *device, int64_t bytes);

/** Gets bytes [offset, offset + bytes) of device memory in `data`, which is valid during the call.
 */
typedef lathe_status (*lathe_piece_fn)(void *arg, int64_t offset, const void *data, int64_t bytes);
lathe_status lathe_download_pieces(lathe_machine *m, const void *device, int64_t bytes,
                                   lathe_piece_fn fn, void *arg);

/** Copies a whole tensor into host memory owned by the machine, valid until the next call. */
lathe_status lathe_download_whole(lathe_machine *m, const void *device, int64_t bytes,
                                  const void **out);

/** Queues a copy from the device into pinned memory; the caller waits. If the host shares the
 * memory, the copy is done on return. */
lathe_status lathe_fetch_pinned(lathe_machine *m, void *pinned, const void *device, int64_t bytes);
/** Queues a copy from pinned memory to the device. The pinned memory must not change until the
 * machine's stream has passed the copy. */
lathe_status lathe_send_pinned(lathe_machine *m, void *device, const void *pinned, int64_t bytes);

/** The host's view of a small device buffer that it fills or reads at every step: pinned memory, or
 *  the buffer itself if the host shares the device's memory; then a copy between the two does
 *  nothing.
 *  lathe_view_bytes: bytes of pinned memory that a view needs. */
int64_t lathe_view_bytes(const lathe_machine *m, int64_t bytes);
void *lathe_view_at(const lathe_machine *m, void *device, void *pinned);

/** Copies within the device, in order with the queued work. */
lathe_status lathe_move(lathe_machine *m, void *to, const void *from, int64_t bytes);

/** Exchanges two ranges of device memory, using `room` bytes of free device memory; in place if the
 * host shares the memory. */
lathe_status lathe_transfer_swap(lathe_machine *m, void *a, void *b, int64_t bytes, void *through,
                                 int64_t room);

#endif

/* Transfers: between host memory and that of a device which the host cannot touch, in pieces that pass
 * through pinned memory planned with the run. Where the host shares the device's memory they are plain
 * copies, and take no memory of their own.
 *
 * Rank's thread.
 */
#ifndef LATHE_EXEC_TRANSFER_H
#define LATHE_EXEC_TRANSFER_H

#include "exec/machine.h"

/** Bytes of LATHE_MEM_STAGING that transfers pass through; 0: the host shares the memory. */
int64_t lathe_staging_bytes(const lathe_machine *m);
lathe_status lathe_staging_place(lathe_machine *m);
void lathe_staging_fini(lathe_machine *m);

/** device <- host. On return the host's end may be reused; the copy is in order with what is queued. */
lathe_status lathe_upload(lathe_machine *m, void *device, const void *host, int64_t bytes);

/** host <- device, after all that is queued; waits for it. */
lathe_status lathe_download(lathe_machine *m, void *host, const void *device, int64_t bytes);

/** Hands over device memory piece by piece: `data` holds bytes [offset, offset + bytes). */
typedef lathe_status (*lathe_piece_fn)(void *arg, int64_t offset, const void *data, int64_t bytes);
lathe_status lathe_download_pieces(lathe_machine *m, const void *device, int64_t bytes,
                                   lathe_piece_fn fn, void *arg);

/** A whole tensor, in host memory that the machine keeps: valid until the next call. */
lathe_status lathe_download_whole(lathe_machine *m, const void *device, int64_t bytes,
                                  const void **out);

/** Queues the copy into pinned memory; the caller waits. Done on return where the host shares memory. */
lathe_status lathe_fetch_pinned(lathe_machine *m, void *pinned, const void *device, int64_t bytes);
/** Queues the copy from pinned memory, which must not change before the machine's stream passes it. */
lathe_status lathe_send_pinned(lathe_machine *m, void *device, const void *pinned, int64_t bytes);

/** The host's view of a small device buffer, which it fills or reads at every step: pinned memory, or the buffer itself
 *  where the host shares the device's memory; a copy between the two is then nothing.
 *  lathe_view_bytes: bytes of pinned memory that a view takes. */
int64_t lathe_view_bytes(const lathe_machine *m, int64_t bytes);
void *lathe_view_at(const lathe_machine *m, void *device, void *pinned);

/** to <- from within the device, in order with what is queued. */
lathe_status lathe_move(lathe_machine *m, void *to, const void *from, int64_t bytes);

/** Exchanges two ranges of device memory, through `room` bytes of it that are free; in place where the host shares the
 *  memory. */
lathe_status lathe_exchange(lathe_machine *m, void *a, void *b, int64_t bytes, void *through,
                            int64_t room);

#endif

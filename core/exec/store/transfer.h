/* Copies data between host memory and device memory, as the kind of memory has it (memory_kind.h).
 * To memory that the host reaches only by copies, data go in pieces through pinned memory that is
 * part of the memory plan.
 *
 * Threads: only the thread that trains may call these functions.
 */
#ifndef LATHE_EXEC_TRANSFER_H
#define LATHE_EXEC_TRANSFER_H

#include "exec/store/machine.h"

/** Bytes of LATHE_MEM_STAGING that transfers need. */
int64_t lathe_staging_bytes(const lathe_machine *m);
lathe_status lathe_staging_place(lathe_machine *m);
void lathe_staging_fini(lathe_machine *m);

/** Copies host to device after all queued work, and waits for the copy. */
lathe_status lathe_upload(lathe_machine *m, void *device, const void *host, int64_t bytes);

/** Copies device to host after all queued work, and waits for the copy. */
lathe_status lathe_download(lathe_machine *m, void *host, const void *device, int64_t bytes);

/** Passes the bytes to fn, in pieces that follow each other, after all queued work. */
lathe_status lathe_download_pieces(lathe_machine *m, const void *device, int64_t bytes,
                                   lathe_piece_fn fn, void *arg);

/** A whole tensor as the host may read it, until the next call: the device's memory, or a copy that
 *  the machine owns. */
lathe_status lathe_read_whole(lathe_machine *m, const void *device, int64_t bytes,
                              const void **out);

/** Queues a copy from the device into pinned memory; the caller waits. */
lathe_status lathe_fetch_pinned(lathe_machine *m, void *pinned, const void *device, int64_t bytes);
/** Queues a copy from pinned memory to the device. The pinned memory must not change until the
 * machine's stream has passed the copy. */
lathe_status lathe_send_pinned(lathe_machine *m, void *device, const void *pinned, int64_t bytes);

/** The host's view of a small device buffer that it fills or reads at every step: the buffer itself
 *  where the host may use it at any time, and a copy between the two then does nothing; else pinned
 *  memory.
 *  lathe_view_bytes: bytes of pinned memory that a view needs. */
int64_t lathe_view_bytes(const lathe_machine *m, int64_t bytes);
void *lathe_view_at(const lathe_machine *m, void *device, void *pinned);

/** Copies within the device, in order with the queued work. */
lathe_status lathe_move(lathe_machine *m, void *to, const void *from, int64_t bytes);

/** Exchanges two ranges of device memory; `room` bytes at `through` are free device memory. */
lathe_status lathe_transfer_swap(lathe_machine *m, void *a, void *b, int64_t bytes, void *through,
                                 int64_t room);

#endif

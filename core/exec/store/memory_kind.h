/* The kinds of memory that devices have, each a table: what the host may do with it, and how data
 * are copied to and from it.
 *
 *   own      the device's; the host reaches it only by copies           (GPUs)
 *   host     ordinary host memory; a call returns when its work is done (CPUs)
 *   unified  the host reads and writes it at the device's addresses once the queued work is done;
 *            host and device share one limit                            (GPUs in the host's memory)
 *
 * Code asks a table the question that it has, or has it copy; no code asks which kind it is. A
 * further kind is a further table (transfer.c has them).
 */
#ifndef LATHE_EXEC_MEMORY_KIND_H
#define LATHE_EXEC_MEMORY_KIND_H

#include "lathe/device.h"

struct lathe_machine;

/** Gets bytes [offset, offset + bytes) of device memory in `data`, which is valid during the call.
 */
typedef lathe_status (*lathe_piece_fn)(void *arg, int64_t offset, const void *data, int64_t bytes);

typedef struct lathe_memory_kind {
    /* ---- questions ---- */
    int32_t is_in_place;    /* the host may read and write it at any time, at its addresses */
    int32_t is_queued;      /* a call may return before its work is done */
    int32_t is_of_host;     /* it is part of the host's memory: one limit counts both */
    int32_t runs_host_code; /* plugins' functions for the host compute in it, on its threads */
    int32_t room;           /* LATHE_MEM_* (machine.h) of scratch memory for exchanges of ranks */
    int64_t staging_bytes;  /* of LATHE_MEM_STAGING that its copies go through */
    /* ---- copies (transfer.h) ---- */
    /* Both wait for the work queued before them, and are done on return. */
    lathe_status (*upload)(struct lathe_machine *m, void *device, const void *host, int64_t bytes);
    lathe_status (*download)(struct lathe_machine *m, const void *device, int64_t bytes,
                             lathe_piece_fn fn, void *arg);
    /* Has the bytes at an address that the host may read until the next call of this function. */
    lathe_status (*read)(struct lathe_machine *m, const void *device, int64_t bytes,
                         const void **out);
    /* In order with the queued work; direction: LATHE_COPY_*; host memory is pinned. */
    lathe_status (*copy)(struct lathe_machine *m, void *to, const void *from, int64_t bytes,
                         int32_t direction);
    /* Exchanges two ranges through `room` free bytes of device memory. */
    lathe_status (*swap)(struct lathe_machine *m, void *a, void *b, int64_t bytes, void *through,
                         int64_t room);
} lathe_memory_kind;

/** The kind that a device reports as lathe_device_info.host_memory. */
const lathe_memory_kind *lathe_memory_kind_of(const lathe_device_info *info);

#endif

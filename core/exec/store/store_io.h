/* Reads and writes the memory of the parameters. This may be host memory, device memory, or
 * slots that the offload moves between the two. */
#ifndef LATHE_EXEC_STORE_IO_H
#define LATHE_EXEC_STORE_IO_H

#include "exec/store/peers.h"
#include "exec/store/store.h"
#include "files/safetensors/st_writer.h"

/** Reads bytes of a family's memory, on the host or the device, piece by piece (transfer.h). Slots
 * have their values after the last step. */
lathe_status lathe_store_read(const lathe_store *store, const void *from, int64_t bytes,
                              lathe_piece_fn fn, void *arg);
/** Copies a family's memory into host memory; the second copies host memory into a family. */
lathe_status lathe_store_get(const lathe_store *store, void *to, const void *from, int64_t bytes);
lathe_status lathe_store_put(const lathe_store *store, void *to, const void *from, int64_t bytes);

/** Bytes of a family as the host may read and write them until they are released: the memory
 * itself, or a copy from the heap. LATHE_E_NOMEM. */
lathe_status lathe_store_borrow(const lathe_store *store, void *at, int64_t bytes, void **out);
/** Writes what was borrowed back to its place. */
lathe_status lathe_store_write_back(const lathe_store *store, void *at, int64_t bytes,
                                    const void *data);
/** Ends the borrowing without writing; NULL is fine. */
void lathe_store_release(const lathe_store *store, void *data);

/** Writes a whole tensor of a file from the memory of a family (masters, shadows, slots, ...). */
lathe_status lathe_store_write(const lathe_store *store, lathe_st_writer *w, int64_t tensor,
                               const void *from, int64_t bytes);

/** Tensor `tensor` of a file, from a family's memory. family, param, slot: where it is if ranks
 *  divide it; gradients: family -1. */
typedef struct lathe_store_part {
    int64_t tensor;
    const void *from;
    int64_t bytes; /* of the whole */
    int32_t family, param, slot;
} lathe_store_part;

/** Like the above, for n whole tensors; if the host can read them, all threads of the pool write.
 */
lathe_status lathe_store_write_all(const lathe_store *store, lathe_st_writer *w,
                                   const lathe_store_part *parts, int64_t n);

/** First element of a family (peers.h) that this rank holds, bytes of the tensor before it, and
 *  bytes that a rank holds. */
void *lathe_store_family(const lathe_store *store, int32_t family, int32_t param, int32_t slot);
lathe_extent lathe_store_family_bytes(const lathe_store *store, int32_t family, int32_t param,
                                      int32_t slot, int32_t rank);

/** Reads a whole tensor of a family piece by piece, also where ranks divide it: then rank 0 alone
 *  calls it, while the others serve it. A view of averages gives them as its masters. */
lathe_status lathe_store_stream(const lathe_store *store, int32_t family, int32_t param,
                                int32_t slot, lathe_piece_fn fn, void *arg);
/** Writes a master to a whole tensor of a file, in the same way. */
lathe_status lathe_store_write_master(const lathe_store *store, lathe_st_writer *w, int64_t tensor,
                                      int32_t param);
/** Copies what this rank holds of a family's tensor from the whole tensor in host memory. */
lathe_status lathe_store_put_held(const lathe_store *store, int32_t family, int32_t param,
                                  int32_t slot, const void *whole);

/** Copies what this rank holds of the values that kernels read, or of a plane, from the whole in
 *  host memory. */
lathe_status lathe_store_put_value(const lathe_store *store, int32_t param, const void *whole);
lathe_status lathe_store_put_plane(const lathe_store *store, int32_t param, int32_t plane,
                                   const void *whole);
/** Sets the master and the compute copy of a row from f32 values in host memory. */
lathe_status lathe_store_set(const lathe_store *store, int32_t param, const float *values);

#endif

/* Keeps the optimizer's state in pinned host memory (train.offload_optimizer). The device has two
 * buffers; the state is copied in, updated and copied out part by part.
 *
 *   in       |part 0|part 1|      |part 2|part 3|        ...
 *   update          |part 0|part 1|      |part 2|part 3| ...
 *   out                    |part 0|part 1|      |part 2| ...
 *
 * Part k uses buffer k % 2 at every step: addresses are fixed, so a captured update stays valid.
 * `in` and `out` are the machine's copy streams; events order them relative to its computing
 * stream. The host does not wait in a step; call lathe_offload_settle before reading the state.
 *
 * A part is a sequence of tensors, or of matrices, whose state fits a buffer. A tensor whose update
 * can be split (LATHE_PARTITION_*) is cut at multiples of its unit (an element, row or block) and
 * of the segments of the update's sums, so results do not depend on the size of the buffers. A
 * tensor that cannot be cut is in one part; if it is larger than buffer_bytes, the buffers grow to
 * hold it.
 */
#ifndef LATHE_EXEC_STATE_OFFLOAD_H
#define LATHE_EXEC_STATE_OFFLOAD_H

#include "exec/store/store.h"

typedef struct lathe_offload lathe_offload;

/** Makes a store keep its slots in host memory. Call it after the store has assigned offsets to
 *  slots and before it allocates memory. Parts have at most buffer_bytes if possible. */
lathe_status lathe_offload_create(lathe_machine *m, lathe_store *store,
                                  const lathe_instance *optimizer, int64_t buffer_bytes,
                                  lathe_offload **out);
/** Waits for copies in flight, then frees the offload; NULL is allowed. */
void lathe_offload_destroy(lathe_offload *o);

/** Adds a tensor or matrix to update, in the order of the update: tensors first. */
lathe_status lathe_offload_add_tensor(lathe_offload *o, const lathe_optimizer_tensor *tensor);
lathe_status lathe_offload_add_matrix(lathe_offload *o, int32_t param);

/** Number of parts: first the parts of tensors, then the parts of matrices. */
int32_t lathe_offload_n_parts(const lathe_offload *o);
int32_t lathe_offload_n_tensor_parts(const lathe_offload *o);
/** Number of pieces in parts 0 to `part`, inclusive; a matrix is one piece. */
int32_t lathe_offload_end(const lathe_offload *o, int32_t part);
/** Index of the part that holds a matrix. */
int32_t lathe_offload_part_of(const lathe_offload *o, int32_t param);

/** The pieces of tensors in the order of the update; lathe_offload_end of the last part of tensors
 *  is their number. Sizes are valid at once. lathe_offload_fill derives the pointers from the whole
 * tensors, once memory is allocated; slots are in the buffers. */
lathe_optimizer_tensor *lathe_offload_pieces(const lathe_offload *o);
void lathe_offload_fill(lathe_offload *o, const lathe_optimizer_tensor *tensors, int32_t n_tensors);
/** Address of a matrix's state while its part is on the device. */
void *lathe_offload_slot(const lathe_offload *o, int32_t param, int32_t slot);

/** Bytes of device memory of the buffers, counted as optimizer memory. */
int64_t lathe_offload_bytes(const lathe_offload *o);
/** Allocates the buffers and creates the streams. */
lathe_status lathe_offload_place(lathe_offload *o);

/** Queues the copies of the first two parts, one for each buffer, to the device. */
lathe_status lathe_offload_begin(lathe_offload *o);
/** Makes the machine's stream wait for the copy of the part to the device; work queued after this
 *  call may use it. */
lathe_status lathe_offload_wait_in(lathe_offload *o, int32_t part);
/** Call it after queueing all work on the part. Queues the copy of the part to the host after that
 *  work, then the copy of part + 2 into the same buffer. */
lathe_status lathe_offload_copy_out(lathe_offload *o, int32_t part);

/** Waits until the state in host memory is complete. */
lathe_status lathe_offload_settle(lathe_offload *o);

/** Bytes queued in both directions since the last call. */
int64_t lathe_offload_take_moved(lathe_offload *o);

/** Adds the time that the machine's stream waited for parts since the last begin; call it after the
 *  host has waited for the stream. Does nothing on devices without event times. */
lathe_status lathe_offload_count_waits(lathe_offload *o);
/** Seconds of these waits since the last call; -1 on devices without event times. */
double lathe_offload_take_waited(lathe_offload *o);

#endif

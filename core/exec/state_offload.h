/* Keeps the optimizer's state in pinned host memory (train.offload_optimizer). The device has two
 * buffers; the state is copied in, updated and copied out part by part.
 *
 *   in       |part 0|part 1|      |part 2|      |part 3| ...
 *   update          |part 0|part 1|      |part 2|        ...
 *   out                    |part 0|part 1|      |part 2| ...
 *
 * Part k uses buffer k % 2 at every step: addresses are fixed, so a captured update stays valid.
 * `in` and `out` are the machine's copy streams; events order them with its own stream. The host
 * does not wait in a step; call lathe_offload_settle before reading the state.
 *
 * A part is a run of tensors, or of matrices, whose state fits a buffer. A tensor whose update
 * splits (LATHE_PARTITION_*) is cut where both its units and the chunks of the update's sums end:
 * no bit depends on the size of the buffers. What cannot be cut is a part however large, and the
 * buffers grow with it.
 */
#ifndef LATHE_EXEC_STATE_OFFLOAD_H
#define LATHE_EXEC_STATE_OFFLOAD_H

#include "exec/store.h"

typedef struct lathe_offload lathe_offload;

/** Of a laid-out store, whose slots belong to the host from here on. Parts aim at buffer_bytes. */
lathe_status lathe_offload_create(lathe_machine *m, lathe_store *store,
                                  const lathe_instance *optimizer, int64_t buffer_bytes,
                                  lathe_offload **out);
/** Waits for what is under way. NULL is fine. */
void lathe_offload_destroy(lathe_offload *o);

/** Adds what is updated, in the order of the update: tensors first. */
lathe_status lathe_offload_add_tensor(lathe_offload *o, const lathe_optimizer_tensor *tensor);
lathe_status lathe_offload_add_matrix(lathe_offload *o, int32_t param);

/** Parts: those of tensors, then those of matrices. */
int32_t lathe_offload_n_parts(const lathe_offload *o);
int32_t lathe_offload_n_tensor_parts(const lathe_offload *o);
/** Pieces of tensors that the parts up to `part` hold. */
int32_t lathe_offload_end(const lathe_offload *o, int32_t part);
/** The part of a matrix. */
int32_t lathe_offload_part_of(const lathe_offload *o, int32_t param);

/** The pieces [lathe_offload_end of the last part of tensors], in order; their slots lie in the
 *  buffers. Sizes are there from the start, pointers once filled from whole tensors with theirs. */
lathe_optimizer_tensor *lathe_offload_pieces(const lathe_offload *o);
void lathe_offload_fill(lathe_offload *o, const lathe_optimizer_tensor *tensors, int32_t n_tensors);
/** Where the state of a matrix lies while its part is on the device. */
void *lathe_offload_slot(const lathe_offload *o, int32_t param, int32_t slot);

/** Device memory of the buffers, counted as the optimizer's. */
int64_t lathe_offload_bytes(const lathe_offload *o);
/** Takes it, and the streams. */
lathe_status lathe_offload_place(lathe_offload *o);

/** Queues the first parts' way in. */
lathe_status lathe_offload_begin(lathe_offload *o);
/** Makes the machine's stream wait for the copy of the part to the device; work queued after this
 *  call may use it. */
lathe_status lathe_offload_arrive(lathe_offload *o, int32_t part);
/** Call it after queueing all work on the part. Queues the copy of the part to the host after that
 *  work, then the copy of part + 2 into the same buffer. */
lathe_status lathe_offload_leave(lathe_offload *o, int32_t part);

/** Waits until the host's memory holds the state. */
lathe_status lathe_offload_settle(lathe_offload *o);

/** Bytes queued, both ways, since the last call. */
int64_t lathe_offload_take_moved(lathe_offload *o);

/** Takes in how long the machine's stream stood waiting for parts to arrive since the last begin;
 *  the host has waited for it. Nothing on devices that tell no time. */
lathe_status lathe_offload_count_waits(lathe_offload *o);
/** Those seconds since the last call; -1: the device tells no time. */
double lathe_offload_take_waited(lathe_offload *o);

#endif

/* low_rank_adam.h on a device whose memory the host cannot access: the first part of queue() of
 * such an optimizer. */
#ifndef LATHE_OPTIMIZERS_LOW_RANK_QUEUE_H
#define LATHE_OPTIMIZERS_LOW_RANK_QUEUE_H

#include "lathe/kit/optimizer_queue.h"
#include "low_rank_adam.h"

/** Kernel arguments of low_rank_cuda.h; they are the first member of an optimizer's own
 *  arguments. */
typedef struct lathe_low_rank_args {
    lathe_elementwise_args on;
    lathe_adam_numbers adam;
    int32_t t; /* the tensor, for a launch over a projected one */
    double weight_decay;
    int64_t rank, length, lines;
    const float *projector; /* [rank, length] */
    float *r, *u;           /* [rank, lines] out: R, unless NULL, and its direction */
    int32_t by_columns;
    int32_t projected_at; /* a tensor is projected if it has this slot */
} lathe_low_rank_args;
LATHE_ABI_SIZE(lathe_low_rank_args, 144);

#define LATHE__TILE 64 /* side of a block's tile of a product, in elements */

LATHE_HD static inline int64_t lathe_n_tiles(int64_t rows, int64_t cols)
{
    return ((rows + LATHE__TILE - 1) / LATHE__TILE) * ((cols + LATHE__TILE - 1) / LATHE__TILE);
}

#ifdef __CUDACC__
#include "low_rank_cuda.h"
#else

/** Queues the rule for all tensors that are not projected. Returns the arguments for launches over
 *  projected ones, which lathe_low_rank_queue_tensor completes. projected_at: a slot that only
 *  projected tensors have. */
static inline lathe_status lathe_low_rank_queue_plain(const lathe_low_rank_adam *o,
                                                      const lathe_optimizer_queue *todo,
                                                      int32_t projected_at,
                                                      lathe_low_rank_args *out)
{
    memset(out, 0, sizeof *out);
    out->on = *todo->args;
    out->adam = lathe_adam_numbers_of(o->adamw.beta1, o->adamw.beta2, o->adamw.eps);
    out->weight_decay = o->adamw.weight_decay;
    out->projected_at = projected_at;
    return lathe_queue_launch(todo, LATHE_ELEMENTWISE_KERNEL, out, (int64_t)sizeof *out);
}

/** Completes the arguments for tensor t; returns 0 if it is not projected. */
static inline int32_t lathe_low_rank_queue_tensor(const lathe_low_rank_adam *o,
                                                  const lathe_optimizer_queue *todo, int32_t t,
                                                  lathe_low_rank_args *io)
{
    const lathe_optimizer_tensor *const x = todo->step->tensors + t;
    if (x->n == 0 || x->slots[io->projected_at] == NULL)
        return 0;
    const lathe_low_rank r = lathe_low_rank_of(o->rank, LATHE_ROLE_MATRIX, x->rows, x->cols);
    io->t = t;
    io->rank = r.rank;
    io->length = lathe_low_rank_length(&r);
    io->lines = lathe_low_rank_lines(&r);
    io->by_columns = r.by_columns;
    return 1;
}

/** Queues R, the update of the moments, and the direction; io->projector, r and u are set. */
static inline lathe_status lathe_low_rank_queue_project(const lathe_optimizer_queue *todo,
                                                        const lathe_low_rank_args *a)
{
    return todo->launch(todo->ctx, "lathe_low_rank_project", lathe_n_tiles(a->rank, a->lines), a,
                        (int64_t)sizeof *a);
}

#endif

#endif

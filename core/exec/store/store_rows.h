/* The rows of a store, and where its families of memory are (store.h). */
#ifndef LATHE_EXEC_STORE_ROWS_H
#define LATHE_EXEC_STORE_ROWS_H

#include "exec/store/division.h"
#include "exec/store/transfer.h"
#include "graph/ir/params.h"
#include "lathe/optimizer.h"

/* Tensors of a parameter of which a rank may hold an extent. */
enum {
    LATHE_OF_PARAMETER = 0, /* the master */
    LATHE_OF_GRADIENT = 1,
    LATHE_OF_STATE = 2, /* slots and average; the rank updates these elements */
    LATHE_OF_VALUE = 3, /* what kernels read (lathe_store_value) */
    LATHE_N_EXTENTS = 4
};

/* A tensor among those that are gathered together: number of the gather, or -1: this rank holds the
 * whole tensor; its first byte there. */
typedef struct lathe_gathered {
    int32_t gather, reserved;
    int64_t at;
} lathe_gathered;

/* Offsets of one parameter in each family; -1: the family does not hold it. An offset is that of
 * the first element which this rank holds. */
typedef struct lathe_store_row {
    int64_t master, shadow, grad, average, other;
    int64_t fresh; /* in fresh gradients (fresh_grads.h); -1: the backward writes grad itself */
    int64_t plane[LATHE_MAX_PLANES];
    int64_t slot[LATHE_MAX_SLOTS];
    lathe_slot slots[LATHE_MAX_SLOTS];
    int32_t n_slots;
    int32_t partition; /* LATHE_PARTITION_* */
    int64_t unit;      /* elements of the smallest piece that can be updated alone; 0: the whole */
    lathe_extent held[LATHE_N_EXTENTS]; /* by LATHE_OF_*; everything, unless ranks divide it */
    lathe_extent held_plane[LATHE_MAX_PLANES];     /* bytes of each plane; likewise */
    lathe_gathered gathered[1 + LATHE_MAX_PLANES]; /* of the values; of each plane */
} lathe_store_row;

/* Arguments of a step, in device memory, at the same address for every step. */
typedef struct lathe_step_memory {
    float scalars[LATHE_N_SCALARS]; /* of the optimizer */
    uint64_t counter[2];            /* seed, step: lathe_elementwise_args */
    float limit;                    /* gradient elements are clipped to [-limit, limit] */
    float share;                    /* average += share * (weights - average) */
    float reserved[2];
} lathe_step_memory;

typedef struct lathe_store {
    lathe_params *params;
    lathe_store_row *rows;
    int32_t n_rows;
    int64_t master_bytes, shadow_bytes, grad_bytes, slot_bytes, plane_bytes, average_bytes;
    int64_t other_bytes;
    int64_t wide_grad_bytes; /* bytes of the f32 gradients in grad_bytes */
    char *masters, *shadows, *grads, *slots, *planes, *averages, *others; /* NULL before place */
    lathe_step_memory *step; /* device; NULL before place */
    lathe_machine *m;        /* the memory is allocated from it */
    int32_t is_host;         /* 1: the host may read and write the families at any time */
    /* target bytes per part of offloaded slots; 0: the slots are not offloaded */
    int64_t offload_buffer;
    int32_t slots_on_host; /* 1: the slots are in pinned host memory */
    int64_t fresh_bytes;   /* gradients of one micro-batch; 0: the backward adds to the sums */
    char *fresh;
    struct lathe_offload *offload; /* moves them (state_offload.h); NULL: nothing does */
    lathe_division *division;      /* owned; NULL: this rank holds everything */
    const struct lathe_peers
        *peers;                    /* the other ranks (peers.h), borrowed; NULL: none are needed */
    struct lathe_gathers *gathers; /* owned (gather_layout.h); NULL: values and planes are whole */
    int64_t gathered_bytes; /* of the window; the layout needs the largest gather, programs more */
    char *gathered;         /* NULL before place */
    int32_t has_averages;   /* 1: averages are laid out, of which this rank may hold none */
    int32_t is_average;     /* 1: a view whose masters are the averages */
} lathe_store;

#endif

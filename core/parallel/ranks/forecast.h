/* Forecasts of a training on several ranks: for each strategy the bytes that a rank sends in a
 * step, the time of a step, and the memory of a rank. A model: numbers in, numbers out.
 *
 * G: bytes of gradients; W: bytes of all weights as kernels read them; U: those of W that train;
 * k: micro-batches of a step; ring bytes: lathe/kit/link_kit.h. Exchanges of a step:
 *
 *   ddp     all_reduce of G once
 *   zero1   reduce_scatter of G once, all_gather of U after the update; state is divided, averages
 *           and masters that have a copy in the compute dtype with it
 *   zero2   k reduce_scatters of G, all_gather of U; gradients are divided too
 *   zero3   k times: two all_gathers of W, one reduce_scatter of G; weights are divided too
 *   hybrid  zero3 among S ranks, and once an all_reduce of their share of G among the copies
 *   diloco  ddp inside each island (without islands each rank is one), and after every H steps an
 *           all_reduce of the change of the weights among the islands, of which each rank of an
 *           island has a share, and an all_gather of the new f32 weights inside the island
 *
 * Gradients and U travel in buckets of bucket_bytes, weights of zero3 and hybrid in blocks
 * (layers). Overlapped: a bucket is sent as soon as the backward of the last micro-batch (zero2: of
 * each) has computed its share, at the time that `ready` gives; a block is gathered while the one
 * before it is computed. all_gathers of U and DiLoCo's exchange overlap with nothing. One message
 * in which ranks agree (ranks.h) is in every step's time, and not in its bytes.
 *
 * Source: arXiv:1910.02054 (ZeRO), arXiv:2304.11277 (hybrid), arXiv:2311.08105 (DiLoCo).
 */
#ifndef LATHE_PARALLEL_FORECAST_H
#define LATHE_PARALLEL_FORECAST_H

#include "exec/store/machine.h"
#include "parallel/ranks/network.h"

enum {
    LATHE_FORECAST_DDP = 0,
    LATHE_FORECAST_ZERO1 = 1,
    LATHE_FORECAST_ZERO2 = 2,
    LATHE_FORECAST_ZERO3 = 3,
    LATHE_FORECAST_HYBRID = 4,
    LATHE_FORECAST_DILOCO = 5, /* with f32, bf16, int8 and int4 */
    LATHE_N_FORECASTS = 9
};

/** After the share `time` of a backward, the share `bytes` of the gradients is complete. */
typedef struct lathe_forecast_ready {
    double time, bytes;
} lathe_forecast_ready;

/** A training as one rank plans it alone. */
typedef struct lathe_forecast_run {
    lathe_mem_bytes planned; /* with these families in it: */
    int64_t weight_bytes;    /* masters and copies in the compute dtype */
    int64_t copied_bytes;    /* those masters of them that have a copy */
    int64_t average_bytes;   /* averages of the weights */
    int64_t plane_bytes;     /* planes of quantized weights */
    int64_t grad_bytes;      /* G */
    int64_t wide_grad_bytes; /* those of them in f32 */
    int64_t slot_bytes;      /* state of the optimizer */
    int32_t slot_category;   /* LATHE_MEM_* that they are in */
    int32_t narrow_width;    /* bytes of an element of the other gradients */
    int64_t n_trained;       /* parameters */
    int64_t trained_bytes;   /* U */
    int64_t read_bytes;      /* W */
    int64_t bucket_bytes;
    int32_t n_blocks; /* 1 or more */
    int32_t n_micro;  /* k, 1 or more */
    double seconds;   /* of computing a step */
    double backward;  /* share of it in backwards */
    /* [n_ready] borrowed; both members never fall, and the last bytes are 1. NULL: evenly */
    const lathe_forecast_ready *ready;
    int32_t n_ready;
} lathe_forecast_run;

typedef struct lathe_forecast_setup {
    lathe_network network;
    int32_t shard_ranks; /* S: divides the ranks of an island; 0: no row for hybrid */
    int32_t inner_steps; /* H */
} lathe_forecast_setup;

typedef struct lathe_forecast {
    double sent, across;  /* bytes of a rank in a step; those of them to other islands */
    double exchange;      /* s in a step in which the links are busy */
    double in_order;      /* s of a step, nothing overlapped */
    double overlapped;    /* s of a step */
    double outer_seconds; /* diloco: of the exchange after every H steps */
    lathe_mem_bytes memory;
    /* diloco: weights of the last exchange, momentum, and error feedback of int8 and int4; not in
     * `memory` */
    int64_t outer_bytes;
} lathe_forecast;

/** "ddp", ..., "diloco int8". */
const char *lathe_forecast_name(int32_t strategy);
/** Whether this version trains with the strategy. `memory` is a prediction; the plan of a rank is
 *  exact. */
int32_t lathe_forecast_is_built(int32_t strategy);
/** Whether this version adds gradients during the backward with the strategy: a step takes
 *  `overlapped`. 0: `in_order`. */
int32_t lathe_forecast_overlaps(int32_t strategy);

/** Fills in out[LATHE_N_FORECASTS]; the row of hybrid stays zero without shard_ranks. */
void lathe_forecast_make(const lathe_forecast_run *run, const lathe_forecast_setup *setup,
                         lathe_forecast *out);

#endif

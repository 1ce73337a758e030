/* lathe plan --ranks: the options, and the tables of ranks/forecast.h. */
#ifndef LATHE_PLANCMD_PLAN_RANKS_H
#define LATHE_PLANCMD_PLAN_RANKS_H

#include "base/buffer.h"
#include "cli/args.h"
#include "opening/fit.h"
#include "ranks/forecast.h"
#include "run/run_state.h"

/* Rows of the command's list of options. */
#define LATHE_PLAN_RANKS_OPTIONS                                                                   \
    {"--ranks", "N", "also forecast a training on N ranks, one row per strategy"},                 \
        {"--link", "B,L",                                                                          \
         "bandwidth and latency of each rank's link, with --ranks: 10Gbit,0.2ms"},                 \
        {"--islands", "I", "the ranks are in I islands of equal size"},                            \
        {"--island-link", "B,L", "link of an island to the others, which its ranks share"},        \
        {"--shard-ranks", "S",                                                                     \
         "ranks that share one copy of the weights in hybrid sharding (default: those of an "      \
         "island; else the largest divisor of N up to 8)"},                                        \
        {"--inner-steps", "H", "steps between two exchanges of DiLoCo (default 100)"},             \
        {"--step-time", "T", "time in which a rank computes a step: 1.2s, 350ms"},                 \
        {"--rate", "R", "or its FLOP per second in training: 180TFLOP"},                           \
    {                                                                                              \
        "--share", "P",                                                                            \
            "or its share of the peak of this machine's device, which is measured (default 0.5)"   \
    }

typedef struct lathe_plan_ranks {
    lathe_forecast_setup setup; /* network.n_ranks 0: --ranks was not given */
    double seconds, rate;       /* 0: not given */
    double share;
    char from[96];     /* where the time of computing comes from */
    char refusal[320]; /* why the run does not train on several ranks; "": it does */
    lathe_forecast_run run;
    lathe_forecast rows[LATHE_N_FORECASTS];
    int64_t whole_bytes;                   /* of weights that zero3 does not divide */
    int32_t is_planned[LATHE_N_FORECASTS]; /* memory of the row is that of rank 0's own plan */
    char why[LATHE_N_FORECASTS][320];      /* of a strategy that trains: why this run cannot */
    /* With train.memory_limit: 1: a rank of the strategy needs more. If all do: what would fit. */
    int32_t is_too_large[LATHE_N_FORECASTS];
    int32_t fits_none;
    lathe_fit fit;
} lathe_plan_ranks;

/** Reads the options. LATHE_E_ARG: what is wrong, and what was expected. */
lathe_status lathe_plan_ranks_read(const lathe_args *args, lathe_plan_ranks *out);

/** Makes the forecasts for a planned run; step_flops: of one rank. Measures the device's peak if
 * the time of computing was not given. */
lathe_status lathe_plan_ranks_make(lathe_run *run, double step_flops, lathe_plan_ranks *x);

/** Appends the tables; or the member "ranks" of a JSON object, with a comma after it. */
void lathe_plan_ranks_text(const lathe_run *run, const lathe_plan_ranks *x, lathe_buffer *out);
void lathe_plan_ranks_json(const lathe_run *run, const lathe_plan_ranks *x, lathe_buffer *out);

#endif

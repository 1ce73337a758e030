/* Forecasts a training on ranks that are not there: the tables of parallel/ranks/forecast.h for a
 * planned run, and the plan of a rank for each strategy that trains it. */
#ifndef LATHE_TRAIN_RANK_FORECAST_H
#define LATHE_TRAIN_RANK_FORECAST_H

#include "parallel/ranks/forecast.h"
#include "run/plan/fit.h"
#include "run/state/run_state.h"

/** A forecast: its questions, and the answers. */
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
    int64_t peaks[LATHE_N_FORECASTS];      /* bytes of the machine with which a rank trains */
    int32_t has_limit;                     /* 1: train.memory_limit is set */
    /* With train.memory_limit: 1: a rank of the strategy needs more. If all do: what would fit. */
    int32_t is_too_large[LATHE_N_FORECASTS];
    int32_t fits_none;
    lathe_fit fit;
} lathe_plan_ranks;

/** Makes the forecasts for a planned run. x: setup, and seconds, rate or share. step_flops: of one
 *  rank. Measures the device's peak if the time of computing was not given. */
lathe_status lathe_plan_ranks_make(lathe_run *run, double step_flops, lathe_plan_ranks *x);

#endif

/* lathe plan --ranks: the options, and the tables of parallel/ranks/forecast.h. */
#ifndef LATHE_CMD_PLAN_RANKS_H
#define LATHE_CMD_PLAN_RANKS_H

#include "base/buffer.h"
#include "cmd/line/args.h"
#include "train/rank_forecast.h"

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

/** Reads the options. LATHE_E_ARG: what is wrong, and what was expected. */
lathe_status lathe_plan_ranks_read(const lathe_args *args, lathe_plan_ranks *out);

/** Appends the tables; or the member "ranks" of a JSON object, with a comma after it. */
void lathe_plan_ranks_text(const lathe_plan_ranks *x, lathe_buffer *out);
void lathe_plan_ranks_json(const lathe_plan_ranks *x, lathe_buffer *out);

#endif

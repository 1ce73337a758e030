/* The figures of a planned run: what lathe plan shows of it. */
#ifndef LATHE_RUN_PLAN_FIGURES_H
#define LATHE_RUN_PLAN_FIGURES_H

#include "checkpoint/state/disk_fit.h"
#include "graph/ir/ir_graph.h"
#include "optim/param_groups.h"
#include "run/state/run_state.h"

/** A step of the schedule, 0 first, and its rate. */
typedef struct lathe_plan_point {
    int64_t step;
    double lr;
} lathe_plan_point;

/* Number of points of the schedule that are shown. */
#define LATHE_PLAN_POINTS 11

/** Products of a step with quantized weights. */
typedef struct lathe_plan_packed {
    int32_t packed;    /* read the weight from its planes */
    int32_t quantized; /* of these: quantize their inputs */
    int32_t whole;     /* DEQUANT nodes, which decode a weight whole */
} lathe_plan_packed;

/** Texts are borrowed from the run, lists are in its arena. */
typedef struct lathe_plan_figures {
    /* ---- memory ---- */
    lathe_mem_bytes memory;
    int64_t peak;                    /* bytes of the machine */
    int32_t is_in_peak[LATHE_N_MEM]; /* of each category of `memory`; 0: the host's, beside it */
    int32_t has_limit;               /* 1: train.memory_limit is set */
    int64_t saved_state;             /* bytes that train.offload_optimizer saves on the device */
    int64_t saved_activations;       /* and train.offload_activations */
    /* ---- work ---- */
    double flops, fp8_flops, tokens; /* of a step */
    double flops_per_token;          /* of the model, without recomputation */
    int64_t n_params;
    const char *device, *attention;
    int32_t n_nodes;
    int32_t precision, compute_dtype, fp8; /* as train.precision names it; LATHE_F32, ... */
    lathe_plan_packed packed;
    int32_t n_short; /* shorter rows with which padded batches are computed */
    const int64_t *short_rows;
    int64_t row_tokens;
    /* ---- checkpoints ---- */
    int32_t writes_checkpoints; /* 1: checkpoint.dir is set */
    int32_t disk_is_known;
    int64_t checkpoint_bytes; /* of one, on the disk */
    lathe_disk_fit disk;      /* if disk_is_known */
    /* ---- parameters and their rates ---- */
    int32_t n_groups;
    const lathe_group_row *groups;
    const char *scheduler;
    int64_t max_steps;
    int32_t n_points;
    lathe_plan_point points[LATHE_PLAN_POINTS]; /* evenly over the run */
} lathe_plan_figures;

/** Takes the figures of a planned run (LATHE_OPEN_PLAN). Plans it again for what offloading saves.
 *  LATHE_E_NOMEM. */
lathe_status lathe_plan_figures_get(lathe_run *run, lathe_plan_figures *out);

/** The graph of a micro-batch of the training; borrowed. */
const lathe_graph *lathe_plan_graph(const lathe_run *run);

#endif

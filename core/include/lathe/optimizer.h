/* The interface of optimizer plugins, which compute new parameters from averaged gradients.
 *
 * The core owns parameters, gradients and state. For each parameter the plugin declares its named
 * state slots and how its update may be split (partition). The core allocates, shards and
 * checkpoints the state, and calls the plugin. Each call of step(), or run of the graph that
 * build() makes, is one optimizer step for each tensor given.
 */
#ifndef LATHE_OPTIMIZER_H
#define LATHE_OPTIMIZER_H

#include "graph.h"
#include "host.h"

#define LATHE_OPTIMIZER_REVISION 1
#define LATHE_MAX_SLOTS 8

enum {
    LATHE_PARTITION_ELEMENT = 0, /* any range of elements may be updated alone */
    LATHE_PARTITION_ROW = 1,     /* whole rows of dims[0] */
    LATHE_PARTITION_BLOCK = 2,   /* whole blocks of block() consecutive elements */
    LATHE_PARTITION_MATRIX = 3,  /* the whole tensor; build() emits the update as graph ops */
    LATHE_PARTITION_TENSOR = 4   /* the whole tensor, updated by step() */
};

/** Scalars of a step: f32 [LATHE_N_SCALARS] in device memory, written by the core before each step.
 *  The host computes them in double and rounds them once. */
enum {
    LATHE_SCALAR_LR = 0,         /* learning rate of the step */
    LATHE_SCALAR_GRAD_SCALE = 1, /* factor on the raw gradient sum: clip / (count * loss scale) */
    LATHE_SCALAR_LR_RATIO = 2,   /* lr / base lr: the schedule's factor, for other base rates */
    LATHE_SCALAR_COUNT = 3,      /* divisor of the step's loss: number of targets, or of pairs */
    LATHE_SCALAR_USER = 8,       /* first of 8 that scalars() may fill (bias corrections, ...) */
    LATHE_N_SCALARS = 16
};

/** One state slot of a parameter. Plain data. */
typedef struct lathe_slot {
    const char *name; /* "exp_avg": key in checkpoints, with the parameter's name */
    lathe_desc desc;  /* zero before the first step */
} lathe_slot;
LATHE_ABI_SIZE(lathe_slot, 48);

/** One tensor in a step, or a range of its elements that partition() allows. Plain data. */
typedef struct lathe_optimizer_tensor {
    float *param;                 /* [n] f32 in/out: master copy */
    const float *grad;            /* [n] f32 in: raw sum; multiply by LATHE_SCALAR_GRAD_SCALE */
    uint16_t *shadow;             /* [n] out: compute copy to refresh (shadow_dtype), or NULL */
    void *slots[LATHE_MAX_SLOTS]; /* in the order of slots() */
    int64_t n;                    /* elements */
    int64_t first;                /* global index of element 0 (counter RNG) */
    int64_t rows, cols;           /* of the tensor: dims[0], product of the rest */
    int32_t tensor;               /* index of the parameter in the run (counter RNG) */
    int32_t group;
    double lr_mult;           /* of the group */
    double weight_decay_mult; /* 0 for parameters that take no decay, else 1 (or the group's) */
    int32_t shadow_dtype;     /* LATHE_F16: shadow is f16; else bf16 */
    uint32_t half_slots;      /* bit k: slots() declared slots[k] as bf16; else f32 */
    int64_t block;            /* elements per block, from block(); 1 if block is NULL */
} lathe_optimizer_tensor;
LATHE_ABI_SIZE(lathe_optimizer_tensor, 160);

typedef struct lathe_optimizer_step {
    uint32_t size;
    int32_t n_tensors;
    const lathe_optimizer_tensor *tensors;
    const float *scalars; /* [LATHE_N_SCALARS], in host memory */
    int64_t step;         /* 1 at the first step */
    uint64_t seed;
    void *stream;
    void *scratch;         /* [scratch_bytes], 64-byte aligned; content is lost between steps */
    int64_t scratch_bytes; /* at least scratch() of each tensor of the step */
} lathe_optimizer_step;
LATHE_ABI_SIZE(lathe_optimizer_step, 64);

/** Memory that queue() needs for a parameter in addition to its slots. */
typedef struct lathe_optimizer_room {
    int64_t own;    /* device bytes; the core adds them over the parameters */
    int64_t shared; /* device bytes; the core takes the maximum over the parameters */
    int64_t host;   /* pinned host bytes; also the maximum */
} lathe_optimizer_room;
LATHE_ABI_SIZE(lathe_optimizer_room, 24);

/** Base rates of a parameter, before any schedule, and the configuration keys that set them. Plain
 *  data. */
typedef struct lathe_optimizer_rates {
    double lr;           /* a step's rate is lr * lr_mult * factor of the schedule */
    double weight_decay; /* a step's decay is weight_decay * weight_decay_mult */
    /* Keys in the plugin's table. weight_decay_key is NULL if the plugin has no decay. */
    const char *lr_key, *weight_decay_key;
    const char *part; /* "muon": the method that updates the parameter; NULL: there is only one */
} lathe_optimizer_rates;
LATHE_ABI_SIZE(lathe_optimizer_rates, 40);

typedef struct lathe_optimizer_queue lathe_optimizer_queue; /* optimizer_queue.h */

typedef struct lathe_optimizer_v1 {
    uint32_t size;
    uint32_t revision;

    /* ---- a parameter and its rates ---- */
    /** [pure] Fills in the state slots of a parameter; returns their number, <= LATHE_MAX_SLOTS. */
    int32_t (*slots)(void *self, const lathe_param_info *param, lathe_slot *out);
    /** [pure] LATHE_PARTITION_* for a parameter; NULL: ELEMENT. */
    int32_t (*partition)(void *self, const lathe_param_info *param);
    /** [pure] Elements per block for LATHE_PARTITION_BLOCK; NULL: 1. */
    int64_t (*block)(void *self, const lathe_param_info *param);
    /** [pure] Base learning rate from the configuration; the schedule scales it. */
    double (*base_lr)(void *self);
    /** [pure] Base rate and decay of one parameter, for optimizers where these differ. The core
     *  divides a group's own lr and weight_decay by them to get lr_mult and weight_decay_mult.
     *  NULL: base_lr() and the key "weight_decay" apply to all parameters. */
    void (*rates)(void *self, const lathe_param_info *param, lathe_optimizer_rates *out);
    /** [pure] Fills out[8], which become the scalars from LATHE_SCALAR_USER on in step `step` (1
     *  is the first). Runs on the host. NULL: zeros. */
    void (*scalars)(void *self, int64_t step, double *out);

    /* ---- a step ---- */
    /** [pure] Scratch bytes that step() needs to update this parameter. NULL: none. */
    int64_t (*scratch)(void *self, const lathe_param_info *param);
    /** [step] Updates the given tensors, none of them MATRIX, on the CPU; in parallel through
     *  lathe_host.parallel_for. One step may call it several times, each for other ranges. */
    lathe_status (*step)(void *self, const lathe_optimizer_step *step);
    /** [build] Emits the update of a MATRIX parameter. param f32, grad f32, slots as declared,
     *  scalars f32 [LATHE_N_SCALARS], weight_decay_mult as in lathe_optimizer_tensor. Param is
     *  changed by APPLY_UPDATE, slots by nodes in place. NULL: no MATRIX parameters. */
    lathe_status (*build)(void *self, const lathe_graph_api *api, lathe_graph *g,
                          const lathe_param_info *info, double lr_mult, double weight_decay_mult,
                          lathe_val param, lathe_val grad, const lathe_val *slots,
                          lathe_val scalars);

    /* ---- further work beside the steps ---- */
    /** [pure] Number of steps between curvature estimates, counted from step 1. NULL or 0: no
     *  estimates. After such a step the core runs one more backward on its last micro-batch,
     *  with targets sampled from the model, and calls estimate(). Needs a stage whose targets
     *  are labels. */
    int64_t (*estimate_every)(void *self);
    /** [step] Updates the curvature estimate from these gradients (raw sums).
     *  LATHE_SCALAR_COUNT is the number of targets, LATHE_SCALAR_GRAD_SCALE is 1 / (count * loss
     *  scale). */
    lathe_status (*estimate)(void *self, const lathe_optimizer_step *step);
    /** [between] Writes the weights for evaluation and saving into out[i] f32[n] of each tensor,
     *  for methods that train on other weights. Called before each evaluation and each save.
     *  step: the last step; its scalars are those from scalars(), the others are 0. Such a
     *  method replaces a schedule: the core refuses one that lowers the rate. NULL: the weights
     *  are the same. */
    lathe_status (*average)(void *self, const lathe_optimizer_step *step, float *const *out);

    /* ---- devices whose memory the host cannot access ---- */
    /** Embedded CUDA code (lathe/kit/elementwise.h, lathe/kit/optimizer_queue.h); NULL: CPU
     *  only. */
    const void *cuda_image;
    /** [pure] Memory that queue() needs for a parameter that is not MATRIX. NULL: none. */
    void (*room)(void *self, const lathe_param_info *param, lathe_optimizer_room *out);
    /** [step] Does the work of step(), estimate() or average() on a device whose memory the host
     *  cannot access: queues kernels of cuda_image. NULL: a step on such a device is one launch
     *  of LATHE_ELEMENTWISE_KERNEL, and the core refuses estimate() and average(). */
    lathe_status (*queue)(void *self, const lathe_optimizer_queue *todo);
} lathe_optimizer_v1;
LATHE_ABI_SIZE(lathe_optimizer_v1, 128);

#endif

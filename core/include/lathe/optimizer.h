/* Optimizers: from averaged gradients to new parameters.
 *
 * The core owns parameters, gradients and state. The plugin says per parameter which named slots it
 * needs and how its update splits (partition); the core allocates, shards, checkpoints and calls.
 * Every call of step() or run of the built graph is one optimizer step for each tensor given.
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

/** Device-resident scalars of a step, f32 [LATHE_N_SCALARS], written by the core before each step.
 *  What must be exact is computed on the host in double and rounded once. */
enum {
    LATHE_SCALAR_LR = 0,         /* learning rate of the step */
    LATHE_SCALAR_GRAD_SCALE = 1, /* factor on the raw gradient sum: clip / (tokens * loss scale) */
    LATHE_SCALAR_LR_RATIO =
        2,                  /* lr / base lr: what the schedule did, for groups with their own lr */
    LATHE_SCALAR_COUNT = 3, /* what the step's loss is divided by: targets, or pairs */
    LATHE_SCALAR_USER = 8,  /* first of 8 that scalars() may fill (bias corrections, ...) */
    LATHE_N_SCALARS = 16
};

/** One state slot of a parameter. Plain data. */
typedef struct lathe_slot {
    const char *name; /* "exp_avg": key in checkpoints, with the parameter's name */
    lathe_desc desc;  /* zero before the first step */
} lathe_slot;
LATHE_ABI_SIZE(lathe_slot, 48);

/** One tensor (or the range of it this rank owns) in a step. Plain data. */
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
    int64_t block;            /* elements of a block, as block() said; 1 without */
} lathe_optimizer_tensor;
LATHE_ABI_SIZE(lathe_optimizer_tensor, 160);

typedef struct lathe_optimizer_step {
    uint32_t size;
    int32_t n_tensors;
    const lathe_optimizer_tensor *tensors;
    const float *scalars; /* [LATHE_N_SCALARS], device */
    int64_t step;         /* 1 at the first step */
    uint64_t seed;
    void *stream;
    void *scratch; /* [scratch_bytes], 64-byte aligned; what it holds is lost between steps */
    int64_t scratch_bytes; /* the most that scratch() wants of the step's tensors */
} lathe_optimizer_step;
LATHE_ABI_SIZE(lathe_optimizer_step, 64);

/** Memory for queue() beside the slots of a parameter. */
typedef struct lathe_optimizer_room {
    int64_t own;    /* device bytes, added up over the parameters */
    int64_t shared; /* device bytes, the most of all parameters */
    int64_t host;   /* pinned host bytes, likewise */
} lathe_optimizer_room;
LATHE_ABI_SIZE(lathe_optimizer_room, 24);

/** What a parameter trains with before any schedule, and the keys that say so. Plain data. */
typedef struct lathe_optimizer_rates {
    double lr;           /* times lr_mult and what the schedule did: the rate of a step */
    double weight_decay; /* times weight_decay_mult */
    const char *lr_key,
        *weight_decay_key; /* of the plugin's table; weight_decay_key NULL: it has none */
    const char
        *part; /* "muon": which of its methods takes the parameter; NULL: there is one only */
} lathe_optimizer_rates;
LATHE_ABI_SIZE(lathe_optimizer_rates, 40);

typedef struct lathe_optimizer_queue lathe_optimizer_queue; /* optimizer_queue.h */

typedef struct lathe_optimizer_v1 {
    uint32_t size;
    uint32_t revision;
    /** [pure] Slots of a parameter, at most LATHE_MAX_SLOTS; returns how many. */
    int32_t (*slots)(void *self, const lathe_param_info *param, lathe_slot *out);
    /** [pure] LATHE_PARTITION_* for a parameter; NULL: ELEMENT. */
    int32_t (*partition)(void *self, const lathe_param_info *param);
    /** [pure] Elements per block for LATHE_PARTITION_BLOCK; NULL: 1. */
    int64_t (*block)(void *self, const lathe_param_info *param);
    /** [pure] The base learning rate from the configuration; the schedule multiplies it. */
    double (*base_lr)(void *self);
    /** [pure] Fills out[8] = scalars LATHE_SCALAR_USER.. for `step` (1 first), on the host. NULL: zeros.
     */
    void (*scalars)(void *self, int64_t step, double *out);
    /** [step] Updates all tensors that are not MATRIX. CPU: spreads over lathe_host.parallel_for. */
    lathe_status (*step)(void *self, const lathe_optimizer_step *step);
    /** [build] MATRIX parameters: emits the update. param f32, grad f32, slots as declared, scalars f32
     *  [LATHE_N_SCALARS]; ends in APPLY_UPDATE on param and in-place nodes on its slots.
     *  weight_decay_mult as in the tensor. NULL: no MATRIX parameters. */
    lathe_status (*build)(void *self, const lathe_graph_api *api, lathe_graph *g,
                          const lathe_param_info *info, double lr_mult, double weight_decay_mult,
                          lathe_val param, lathe_val grad, const lathe_val *slots,
                          lathe_val scalars);
    /** Embedded CUDA code (lathe/kit/elementwise.h, lathe/kit/optimizer_queue.h); NULL: CPU only. */
    const void *cuda_image;
    /** [pure] Scratch bytes that step() needs for a parameter, one parameter at a time. NULL: none. */
    int64_t (*scratch)(void *self, const lathe_param_info *param);
    /** [pure] Steps from one estimate of the curvature to the next, from step 1 on. NULL or 0: none wanted.
     *  Behind a step that wants one the core runs one more backward of the step's last batch, its
     *  targets sampled from the model, and calls estimate(). Needs a stage whose targets are labels. */
    int64_t (*estimate_every)(void *self);
    /** [step] Takes in those gradients: raw sums; LATHE_SCALAR_GRAD_SCALE is 1/count, count goes to
     *  LATHE_SCALAR_COUNT. */
    lathe_status (*estimate)(void *self, const lathe_optimizer_step *step);
    /** [between] The weights to evaluate and to keep, where they are not those that training works on:
     *  out[i] f32[n] of each tensor. Before each evaluation and each save; step is the last one's,
     *  scalars hold what scalars() gives for it, the others are 0. It stands in the place of a
     *  schedule: one that lowers the rate is refused beside it. NULL: they are the same. */
    lathe_status (*average)(void *self, const lathe_optimizer_step *step, float *const *out);
    /** [step] step(), estimate() and average() on a device whose memory the host cannot touch: queues kernels of
     *  cuda_image. NULL: a step there is one launch of LATHE_ELEMENTWISE_KERNEL, the others are refused. */
    lathe_status (*queue)(void *self, const lathe_optimizer_queue *todo);
    /** [pure] What queue() needs for a parameter that is not MATRIX. NULL: nothing. */
    void (*room)(void *self, const lathe_param_info *param, lathe_optimizer_room *out);
    /** [pure] Where parameters have different base rates or decays: those of one. A group's own lr and
     *  weight_decay are divided by them to become lr_mult and weight_decay_mult. NULL: base_lr() and the
     *  key "weight_decay" for all. */
    void (*rates)(void *self, const lathe_param_info *param, lathe_optimizer_rates *out);
} lathe_optimizer_v1;
LATHE_ABI_SIZE(lathe_optimizer_v1, 128);

#endif

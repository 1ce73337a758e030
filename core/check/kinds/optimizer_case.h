/* A few tensors with state and gradients, on which optimizers are checked. */
#ifndef LATHE_CHECK_OPTIMIZER_CASE_H
#define LATHE_CHECK_OPTIMIZER_CASE_H

#include "check/harness/subject.h"
#include "lathe/kit/optimizer_queue.h"

enum { LATHE__N_TENSORS = 6, LATHE__N_PIECES = 3 * LATHE__N_TENSORS };

/* The arguments of queue() besides the tensors, in guarded memory. */
typedef struct lathe__optimizer_on_device {
    lathe_optimizer_tensor *tensors; /* [LATHE__N_PIECES] with addresses of the device */
    int64_t *first_chunk;            /* [LATHE__N_PIECES + 1] */
    uint64_t *counter;
    float *scalars;
    double *sums;     /* [n_sums] */
    float **averages; /* [LATHE__N_PIECES] addresses of the device */
    int64_t n_sums;
    lathe_optimizer_room room;
    void *own, *shared, *host;
    int64_t max_blocks;      /* limit of blocks per launch; 0: none */
    int32_t n_calls;         /* launches, copies and waits since the case began */
    int32_t fails_at;        /* number of the call that fails; 0: none */
    int64_t taken_on_device; /* heap blocks that the device took during the calls */
    const char *was_input;   /* an input that a kernel wrote to; NULL: none */
} lathe__optimizer_on_device;

typedef struct lathe__optimizer_case {
    lathe__subject *s;
    lathe_instance instance;
    const lathe_optimizer_v1 *table;
    lathe_optimizer_tensor tensors[LATHE__N_TENSORS];
    int32_t partition[LATHE__N_TENSORS];
    int32_t n_slots[LATHE__N_TENSORS];
    lathe_slot slots[LATHE__N_TENSORS][LATHE_MAX_SLOTS];
    float *grads[LATHE__N_TENSORS];
    float *saved_grads[LATHE__N_TENSORS]; /* room for a copy of the gradients */
    void *scratch;                        /* [scratch_bytes]: the largest scratch of any tensor */
    int64_t scratch_bytes;
    float *averages[LATHE__N_TENSORS]; /* results of average() */
    int64_t step;                      /* steps taken so far */
    int64_t heap_blocks;               /* that the plugin allocated in these steps, net */
    int32_t in_parts;  /* 1: every tensor is passed in as many ranges as its partition allows */
    int32_t on_device; /* 1: the image computes, on the subject's device; 0: step() computes, in
                        * host memory */
    lathe__optimizer_on_device device;
} lathe__optimizer_case;

/** The core's description of tensor i: a matrix, an embedding, a norm, a bias, ... */
lathe_param_info lathe__optimizer_info(int i);

/** Makes parameters and zero state. The caller calls lathe_instance_fini(&c->instance). */
lathe_status lathe__optimizer_case_init(lathe__optimizer_case *c, lathe__subject *s);
/** Like lathe__optimizer_case_init, with values of keys (lines of TOML, or NULL), in host memory.
 */
lathe_status lathe__optimizer_case_init_with(lathe__optimizer_case *c, lathe__subject *s,
                                             const char *toml);

/** Takes one step of all tensors that are not MATRIX, with gradients of this step number. */
lathe_status lathe__optimizer_case_step(lathe__optimizer_case *c);
/** Computes an estimate or an average after the last step: LATHE_QUEUE_ESTIMATE,
 *  LATHE_QUEUE_AVERAGE. */
lathe_status lathe__optimizer_case_run(lathe__optimizer_case *c, int32_t what);

/** Does the same through queue(): LATHE_QUEUE_*, for step->tensors in host memory; out: averages,
 *  or NULL. */
lathe_status lathe__optimizer_case_queue(lathe__optimizer_case *c, const lathe_optimizer_step *step,
                                         int32_t what, float *const *out);
/** Allocates the memory for lathe__optimizer_case_queue. */
lathe_status lathe__optimizer_case_place(lathe__optimizer_case *c);

/* Checks of the image on the subject's device. */
lathe_status lathe__image_loads(lathe__subject *s);
lathe_status lathe__same_bits_as_the_host(lathe__subject *s);
lathe_status lathe__empty_among_others(lathe__subject *s);
lathe_status lathe__any_grid_will_do(lathe__subject *s);
lathe_status lathe__tells_its_update(lathe__subject *s);
lathe_status lathe__leaves_inputs_alone(lathe__subject *s);
lathe_status lathe__failures_are_passed_on(lathe__subject *s);

/** The arguments of a step of the case over the n tensors of a list. */
lathe_optimizer_step lathe__optimizer_case_arguments(const lathe__optimizer_case *c,
                                                     const lathe_optimizer_tensor *list, int32_t n,
                                                     const float *scalars);

/** Copies parameters, shadows and slots bit for bit. */
void lathe__optimizer_case_copy(lathe__optimizer_case *to, const lathe__optimizer_case *from);

/** LATHE_E_NUMERIC: the cases differ; the message names the first tensor or slot that does. */
lathe_status lathe__optimizer_case_compare(const lathe__optimizer_case *a,
                                           const lathe__optimizer_case *b, const char *what);

/** The number of tensors that step() updates. */
int lathe__optimizer_case_stepped(const lathe__optimizer_case *c);

#endif

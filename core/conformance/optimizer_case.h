/* A few tensors, their state and gradients, on which optimizers are checked. */
#ifndef LATHE_CONFORMANCE_OPTIMIZER_CASE_H
#define LATHE_CONFORMANCE_OPTIMIZER_CASE_H

#include "harness/subject.h"
#include "lathe/kit/optimizer_queue.h"

enum { LATHE__N_TENSORS = 6, LATHE__N_PIECES = 3 * LATHE__N_TENSORS };

/* What queue() is given beside the tensors: guarded memory. */
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
    int64_t most_blocks;     /* of a launch; 0: as many as are asked for */
    int32_t n_calls;         /* launches, copies and waits since the case began */
    int32_t fails_at;        /* the call of that number fails; 0: none */
    int64_t taken_on_device; /* heap blocks that the device took during the calls */
    const char *was_input;   /* what a kernel wrote though it is to be read; NULL: nothing */
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
    float *kept[LATHE__N_TENSORS]; /* room for a copy of them */
    void *scratch;                 /* [scratch_bytes]: the most that any of them wants */
    int64_t scratch_bytes;
    float *averages[LATHE__N_TENSORS]; /* what average() gave */
    int64_t step;                      /* taken so far */
    int64_t taken;                     /* heap blocks that the plugin took in them */
    int32_t in_parts;  /* 1: every tensor is given in as many ranges as its partition allows */
    int32_t on_device; /* 1: by the image, on the subject's device; else by step() in host memory */
    lathe__optimizer_on_device there;
} lathe__optimizer_case;

/** What the core would say of tensor i: a matrix, an embedding, a norm, a bias, ... */
lathe_param_info lathe__optimizer_info(int i);

/** Fresh parameters and zero state. lathe_instance_fini(&c->instance). */
lathe_status lathe__optimizer_case_init(lathe__optimizer_case *c, lathe__subject *s);
/** The same with values of keys (lines of TOML, or NULL), in host memory. */
lathe_status lathe__optimizer_case_init_with(lathe__optimizer_case *c, lathe__subject *s,
                                             const char *toml);

/** One step over all tensors that are not MATRIX, with gradients of this step number. */
lathe_status lathe__optimizer_case_step(lathe__optimizer_case *c);
/** An estimate or an average after the last step: LATHE_QUEUE_ESTIMATE, LATHE_QUEUE_AVERAGE. */
lathe_status lathe__optimizer_case_also(lathe__optimizer_case *c, int32_t what);

/** The same of what queue() does: LATHE_QUEUE_*, for step->tensors in host memory; out: averages,
 *  or NULL. */
lathe_status lathe__optimizer_case_queue(lathe__optimizer_case *c, const lathe_optimizer_step *step,
                                         int32_t what, float *const *out);
/** Takes what that needs. */
lathe_status lathe__optimizer_case_place(lathe__optimizer_case *c);

/* Checks of the image on the subject's device. */
lathe_status lathe__image_loads(lathe__subject *s);
lathe_status lathe__same_bits_as_the_host(lathe__subject *s);
lathe_status lathe__empty_among_others(lathe__subject *s);
lathe_status lathe__any_grid_will_do(lathe__subject *s);
lathe_status lathe__tells_its_update(lathe__subject *s);
lathe_status lathe__leaves_inputs_alone(lathe__subject *s);
lathe_status lathe__failures_are_passed_on(lathe__subject *s);

/** Copies parameters, shadows and slots bit for bit. */
void lathe__optimizer_case_copy(lathe__optimizer_case *to, const lathe__optimizer_case *from);

/** LATHE_E_NUMERIC naming the first tensor or slot that differs. */
lathe_status lathe__optimizer_case_compare(const lathe__optimizer_case *a,
                                           const lathe__optimizer_case *b, const char *what);

/** Tensors that step() updates. */
int lathe__optimizer_case_stepped(const lathe__optimizer_case *c);

#endif

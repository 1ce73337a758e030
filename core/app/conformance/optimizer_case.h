/* A few tensors, their state and gradients, on which optimizers are checked. */
#ifndef LATHE_APP_OPTIMIZER_CASE_H
#define LATHE_APP_OPTIMIZER_CASE_H

#include "app/conformance/suite.h"
#include "lathe/optimizer.h"

enum { LATHE__N_TENSORS = 6 };

typedef struct lathe__optimizer_case {
    lathe__subject *s;
    lathe_instance instance;
    const lathe_optimizer_v1 *table;
    lathe_optimizer_tensor tensors[LATHE__N_TENSORS];
    int32_t partition[LATHE__N_TENSORS];
    int32_t n_slots[LATHE__N_TENSORS];
    lathe_slot slots[LATHE__N_TENSORS][LATHE_MAX_SLOTS];
    float *grads[LATHE__N_TENSORS];
    void *scratch; /* [scratch_bytes]: the most that any of them wants */
    int64_t scratch_bytes;
    int64_t step;     /* taken so far */
    int32_t in_parts; /* 1: every tensor is given in as many ranges as its partition allows */
} lathe__optimizer_case;

/** What the core would say of tensor i: a matrix, an embedding, a norm, a bias, ... */
lathe_param_info lathe__optimizer_info(int i);

/** Fresh parameters and zero state. lathe_instance_fini(&c->instance). */
lathe_status lathe__optimizer_case_init(lathe__optimizer_case *c, lathe__subject *s);

/** One step over all tensors that are not MATRIX, with gradients of this step number. */
lathe_status lathe__optimizer_case_step(lathe__optimizer_case *c);

/** Copies parameters, shadows and slots bit for bit. */
void lathe__optimizer_case_copy(lathe__optimizer_case *to, const lathe__optimizer_case *from);

/** LATHE_E_NUMERIC naming the first tensor or slot that differs. */
lathe_status lathe__optimizer_case_compare(const lathe__optimizer_case *a,
                                           const lathe__optimizer_case *b, const char *what);

/** Tensors that step() updates. */
int lathe__optimizer_case_stepped(const lathe__optimizer_case *c);

#endif

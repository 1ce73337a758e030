/* The softmax of the vocabulary head, one block of logits at a time.
 *
 * A block is [rows, width] of a compute dtype, columns first .. first+width-1 of the vocabulary.
 * Rows whose target is -1 take no part: their gradient is 0.
 */
#ifndef LATHE_CPU_HEAD_SOFTMAX_H
#define LATHE_CPU_HEAD_SOFTMAX_H

#include "cpu.h"

/** What is known of a row after some blocks; begins as {-inf, 0, 0}. */
typedef struct head_row {
    float max;    /* of the (capped) logits seen */
    float target; /* the target's (capped) logit, once seen */
    double sum;   /* of exp(logit - max) */
} head_row;

typedef struct head_block {
    void *logits;
    int64_t rows, width, first;
    int32_t dtype;
    float softcap;          /* 0 none, else cap * tanh(logit / cap) */
    const int32_t *targets; /* [rows], -1 ignored */
    head_row *state;        /* [rows] */
    const float *lse;       /* [rows] log of the sum of exp over the whole vocabulary */
    const float *dlogp;     /* [rows] */
} head_block;

/** Takes the block into state. */
void cpu_head_observe(const lathe_host *host, head_block *block);
/** logits = d(sum of dlogp * logp) / dlogits, in place, in f32 before the store. */
void cpu_head_gradient(const lathe_host *host, head_block *block);

#endif

/* The softmax of the vocabulary head, one block of logits at a time: statistics, gradient, draws.
 *
 * A block is [rows, width] of a compute dtype, columns first .. first+width-1 of the vocabulary.
 * Rows whose target is -1 take no part: their gradient is 0.
 */
#ifndef LATHE_CPU_HEAD_SOFTMAX_H
#define LATHE_CPU_HEAD_SOFTMAX_H

#include "cpu.h"

/** What is known of a row after some blocks; begins as {-inf, 0, 0, -inf, -1}. */
typedef struct head_row {
    float max;      /* of the (capped) logits seen */
    float target;   /* the target's (capped) logit, once seen */
    double sum;     /* of exp(logit - max) */
    float top;      /* the largest logit seen, not capped; with find_top */
    int32_t top_id; /* its column in the vocabulary, the first among equals */
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
    int32_t find_top;       /* 1: top and top_id are wanted */
    double *spreads;        /* [rows] sums of exp(s - max) * (s - max); NULL: no entropy */
    const float *entropies; /* [rows] of the whole vocabulary, for the gradient */
} head_block;

/** Takes the block into state. */
void cpu_head_observe(const lathe_host *host, head_block *block);
/** logits = d(sum of dlogp * logp) / dlogits, or of dlogp * entropy, in place, in f32 before the
 * store. */
void cpu_head_gradient(const lathe_host *host, head_block *block);

/** A row's share of one block: the sum of exp(logit - max) in double. */
typedef struct head_part {
    double sum;
    float max; /* of the (capped) logits */
    float unused;
} head_part;

/** Rows whose logits are all kept, to draw a token from each. */
typedef struct head_draw {
    void *logits; /* blocks [rows, width] one after the other, the last narrower */
    int64_t rows, width, vocabulary, n_blocks;
    int32_t dtype;
    float softcap;          /* as above */
    const int32_t *targets; /* [rows], -1: none is drawn */
    head_part *parts;       /* [rows, n_blocks] */
    const double *u;        /* [rows] in [0, 1) */
    int32_t *token;         /* [rows] out; -1 too where the row's probabilities are no numbers */
} head_draw;

/** Block b of the kept logits, and its width. */
void *cpu_head_kept(const head_draw *draw, int64_t b, int64_t *out_width);
/** parts[.., b] of block b, best while it is in the cache. */
void cpu_head_weigh(const lathe_host *host, const head_draw *draw, int64_t b);
/** token[r] = the smallest v whose probabilities 0 .. v sum to more than u[r]. */
void cpu_head_draw(const lathe_host *host, head_draw *draw);

#endif

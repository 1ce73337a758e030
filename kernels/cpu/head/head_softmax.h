/* The softmax of the vocabulary head, one block of logits at a time: statistics, gradient, draws.
 *
 * A block is [rows, width] of a compute dtype: columns first .. first+width-1 of the vocabulary.
 * Rows whose target is -1 are skipped; their gradient is 0.
 */
#ifndef LATHE_CPU_HEAD_SOFTMAX_H
#define LATHE_CPU_HEAD_SOFTMAX_H

#include "base/cpu.h"

/** State of a row after some blocks; starts as {-inf, 0, 0, -inf, -1}. */
typedef struct head_row {
    float max;      /* of the (capped) logits seen */
    float target;   /* the target's (capped) logit, once its block was seen */
    double sum;     /* of exp(logit - max) */
    float top;      /* the largest logit so far, not capped; with find_top */
    int32_t top_id; /* its column in the vocabulary; the first of equal ones */
} head_row;

typedef struct head_block {
    void *logits;
    int64_t rows, width, first;
    int32_t dtype;
    float softcap;          /* 0: none, else cap * tanh(logit / cap) */
    const int32_t *targets; /* [rows], -1: skipped */
    head_row *state;        /* [rows] */
    const float *lse;       /* [rows] log of the sum of exp over the whole vocabulary */
    const float *dlogp;     /* [rows] */
    int32_t find_top;       /* 1: top and top_id are wanted */
    double *spreads;        /* [rows] sums of exp(s - max) * (s - max); NULL: no entropy */
    const float *entropies; /* [rows] of the whole vocabulary, for the gradient */
} head_block;

/** Adds the block to the rows' state. */
void cpu_head_observe(const lathe_host *host, head_block *block);
/** Like cpu_head_observe, for a block of one row, on the calling thread. */
void cpu_head_observe_row(head_block *block);
/** y [width] = the (capped) logits of a block of one row. */
void cpu_head_cap(const head_block *block, float *y);
/** Width of the blocks into which a vocabulary of v tokens is cut; the last may be narrower. */
int64_t cpu_head_width(int64_t v);
/** logits = dlogits, in place: the gradient of sum(dlogp * logp), or of sum(dlogp * entropy),
 *  computed in f32. */
void cpu_head_gradient(const lathe_host *host, head_block *block);

/** A row's part of one block: the sum of exp(logit - max), in double. */
typedef struct head_part {
    double sum;
    float max; /* of the (capped) logits */
    float unused;
} head_part;

/** Rows whose logits are all in memory, to draw a token from each. */
typedef struct head_draw {
    void *logits; /* blocks [rows, width], one after another; the last may be narrower */
    int64_t rows, width, vocabulary, n_blocks;
    int32_t dtype;
    float softcap;          /* 0: none */
    const int32_t *targets; /* [rows], -1: no draw */
    head_part *parts;       /* [rows, n_blocks] */
    const double *u;        /* [rows] in [0, 1) */
    int32_t *token;         /* [rows] out; -1: no draw, or probabilities are not finite */
} head_draw;

/** Address and width of block b of the logits. */
void *cpu_head_kept(const head_draw *draw, int64_t b, int64_t *out_width);
/** Computes parts[.., b] of block b; call it while the block is in the cache. */
void cpu_head_weigh(const lathe_host *host, const head_draw *draw, int64_t b);
/** token[r] = the smallest v such that the probabilities of 0 .. v sum to more than u[r]. */
void cpu_head_draw(const lathe_host *host, head_draw *draw);

#endif

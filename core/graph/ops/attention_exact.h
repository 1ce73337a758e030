/* Attention in double precision, directly from the definition in lathe/attention.h. */
#ifndef LATHE_GRAPH_ATTENTION_EXACT_H
#define LATHE_GRAPH_ATTENTION_EXACT_H

#include "lathe/attention.h"

/* Dense tensors in double: q dq [B,Tq,H,D], k dk [B,Tk,Hkv,D], o dO [B,Tq,H,Dv], v dv
 * [B,Tk,Hkv,Dv], lse [B,H,Tq]. */
typedef struct lathe__dense_attention {
    const double *q, *k, *v, *d_o;
    const int32_t *doc_start, *key_end, *kv_len;
    const double *slopes; /* [H] or NULL */
    const double *sinks;  /* [H] or NULL */
    double *o, *lse;
    double *dq, *dk, *dv; /* zero on entry; NULL: forward only */
    double *row;          /* [2*Tk] of scratch */
} lathe__dense_attention;

/** Computes the forward and, if dq is set, the gradient of sum(o * d_o) by the chain rule, one
 *  query at a time. */
void lathe__attention_dense(const lathe_attention_problem *p, const lathe__dense_attention *a);

#endif

/* Common code of passes that fuse two nodes: number of readers of each value, and removed nodes. */
#ifndef LATHE_GRAPH_FUSION_H
#define LATHE_GRAPH_FUSION_H

#include "graph/passes/passes.h"

typedef struct lathe_fusion {
    lathe_graph *g;
    lathe_offers_fn offers;
    void *arg;
    int32_t *reads;      /* [n_values] number of nodes that read it or take its memory */
    int32_t *last_read;  /* [n_values] the last of them; -1: none */
    char *gone;          /* [n_nodes] fused into another node */
    lathe_status status; /* the first failure; nothing is fused after it */
} lathe_fusion;

/** Analyses the graph; sets out->status. Call close in every case, also after a failure. */
void lathe__fusion_open(lathe_graph *g, lathe_offers_fn offers, void *arg, lathe_fusion *out);
/** Deletes the removed nodes from the graph. */
void lathe__fusion_close(lathe_fusion *f);

/** Whether output 0 of a node is written once and to its own memory. */
int32_t lathe__fusion_is_plain(const lathe_graph *g, const lathe_ir_node *n);

/** Replaces node `at`, one of the two fused nodes, by `fused`, and removes node `other`. Returns 0
 *  if the device has no such kernel. */
int32_t lathe__fusion_join(lathe_fusion *f, const lathe_ir_node *fused, int32_t at, int32_t other);

#endif

/* Which kernels a machine's device has. */
#ifndef LATHE_EXEC_OFFERS_H
#define LATHE_EXEC_OFFERS_H

#include "exec/store/machine.h"
#include "graph/ir/ir_graph.h"

enum { LATHE_LAST_OFFERS = 16 };

/** A question whether a kernel can be created, and the answer. */
typedef struct lathe_offer {
    lathe_desc tensors[LATHE_OP_MAX_IN + LATHE_OP_MAX_OUT];
    const lathe_instance *formats[LATHE_OP_MAX_IN]; /* of weights in planes */
    int32_t op, is_made;
} lathe_offer;

/** The answers about the last uses of ops. Layers are alike, so the same questions return. */
typedef struct lathe_offers {
    const lathe_machine *machine;
    lathe_offer last[LATHE_LAST_OFFERS];
    int32_t n; /* answers so far; the newest replaces the oldest */
} lathe_offers;

/** lathe_offers_fn (graph/passes/passes.h): whether the kernel of a node can be created. arg:
 *  lathe_offers. LATHE_E_NOMEM. */
lathe_status lathe_machine_offers(void *arg, const lathe_graph *g, const lathe_ir_node *n,
                                  int32_t *out_is_offered);

#endif

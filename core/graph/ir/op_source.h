/* Where graphs find ops of plugins. */
#ifndef LATHE_GRAPH_OP_SOURCE_H
#define LATHE_GRAPH_OP_SOURCE_H

#include "base/arena.h"
#include "lathe/graph.h"

/** An instance of an op, for one node. */
typedef struct lathe_op_opened {
    struct lathe_op_opened *next; /* of the same graph */
    void *self;
    void (*close)(struct lathe_op_opened *opened);
} lathe_op_opened;

typedef struct lathe_op_source {
    void *arg;
    /** Makes an instance of the op called `name` with these attributes, in `arena`; *out_op: its
     *  number. Errors as lathe_graph_api.op. */
    lathe_status (*open)(void *arg, const char *name, const lathe_op_attr *attrs, int32_t n_attrs,
                         lathe_arena *arena, int32_t *out_op, lathe_op_opened **out);
} lathe_op_source;

#endif

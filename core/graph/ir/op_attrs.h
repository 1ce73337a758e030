/* Attributes of the core's ops by name. */
#ifndef LATHE_GRAPH_OP_ATTRS_H
#define LATHE_GRAPH_OP_ATTRS_H

#include "lathe/graph.h"

/** Reads attributes of an op of the core: the members of lathe_op_attrs by their names.
 *  LATHE_E_CONFIG: an unknown name, or another type than the member's. */
lathe_status lathe_op_attrs_read(const char *op, const lathe_op_attr *list, int32_t n,
                                 lathe_op_attrs *out);

#endif

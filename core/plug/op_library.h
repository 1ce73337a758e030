/* Ops of plugins for graphs: finds a plugin by name, checks a node's attributes against its schema
 * and makes the node's instance. */
#ifndef LATHE_PLUG_OP_LIBRARY_H
#define LATHE_PLUG_OP_LIBRARY_H

#include "graph/ir/ir_graph.h"
#include "graph/ir/op_source.h"
#include "plug/registry.h"

/** The ops of a registry's plugins, for lathe_params.ops. It is a part of the registry, and valid
 *  as long as that. NULL for NULL. */
const lathe_op_source *lathe_registry_ops(lathe_registry *registry);

/** Checks attributes against a schema. out: values in schema order, in `arena`. LATHE_E_CONFIG: the
 *  message lists all errors. */
lathe_status lathe_op_values(const lathe_plugin *plugin, const lathe_op_attr *attrs,
                             int32_t n_attrs, lathe_arena *arena, lathe_value **out);

enum { LATHE_MOST_OPS = 32 };

/** The plugins whose ops a graph over this table of parameters has, each once, by name. Returns
 *  their number, at most `most`. */
int32_t lathe_ops_used(const lathe_params *params, const lathe_graph *g,
                       const lathe_component **out, int32_t most);

#endif

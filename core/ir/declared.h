/* Parameters that plugins declare while a graph is built: lathe_graph_api.param. */
#ifndef LATHE_IR_DECLARED_H
#define LATHE_IR_DECLARED_H

#include "ir/graph.h"

/** Checks the declaration, and adds its row to the table of parameters, or finds it there if
 * another graph declared it. *out is its value in the graph. LATHE_E_ARG, LATHE_E_SHAPE. */
lathe_status lathe__graph_declare(lathe_graph *g, const lathe_param_decl *decl, lathe_val *out);

#endif

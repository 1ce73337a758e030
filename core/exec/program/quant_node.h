/* Decodes quantized weights: the codec on the host, or its image on a device with its own
 * memory. */
#ifndef LATHE_EXEC_QUANT_NODE_H
#define LATHE_EXEC_QUANT_NODE_H

#include "exec/store/machine.h"
#include "graph/ir/ir_graph.h"

/** Checks that the format of the parameter can decode on the machine, and returns the scratch size
 *  of one decoding. w: the decoded weight. */
lathe_status lathe__quant_prepare(const lathe_machine *m, const lathe_param *param,
                                  const lathe_desc *w, int64_t *out_scratch_bytes);

/** Queues the decoding of the parameter's planes [LATHE_MAX_PLANES] into w. */
lathe_status lathe__quant_run(const lathe_machine *m, const lathe_param *param, const lathe_desc *w,
                              const void *const *planes, void *out, void *scratch);

#endif

/* Programs: the graphs of a run. The model, the adapter and the stage build them; the graph passes
 * finish them.
 *
 *   TRAIN     inputs -> loss, metrics; gradients of every trainable parameter
 *   EVAL      inputs -> loss, metrics, log-probabilities and most likely tokens of the policy
 *   LOGITS    inputs -> logits f32 [B*T, V]
 *   SAMPLE    inputs -> a token sampled from the policy at each position that has a target
 *   SCORE     inputs -> f32 [B], the score of each row's sequence by a sequence classifier
 *   TOP       inputs -> the teacher's n_stored most likely tokens at each position that has a
 *             target, their log-probabilities, and that of all other tokens together
 *   DECODE    tokens, positions, kv_len, caches -> logits f32 [B, V] of each row's last token
 */
#ifndef LATHE_EXEC_PROGRAM_H
#define LATHE_EXEC_PROGRAM_H

#include "exec/program/program_parts.h"

/** Builds and finishes the graph of a program. Adapters add their parameters to config->params in
 *  this call. */
lathe_status lathe_program_build(const lathe_program_config *config, int32_t kind,
                                 lathe_program *out);

/** Creates p->exec from the graph, which it takes ownership of. */
lathe_status lathe_program_prepare(lathe_program *p, lathe_machine *m);

/** Plans the gathers of divided values of p->exec (lathe_exec_divide). */
lathe_status lathe_program_divide(lathe_program *p, const lathe_store *store);

void lathe_program_fini(lathe_program *p);

#endif

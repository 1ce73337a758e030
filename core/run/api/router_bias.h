/* Moves the correction biases of routers by the load of the experts. */
#ifndef LATHE_RUN_ROUTER_BIAS_H
#define LATHE_RUN_ROUTER_BIAS_H

#include "run/state/run_state.h"

/** b[e] += rate * sign(mean load - load of e) for the experts e of each router that has a bias b,
 *  with the tokens of all micro-batches and ranks of the step; nothing without [moe] bias_rate. All
 *  ranks call it. The loads are whole numbers, so that neither their order nor the number of ranks
 *  changes a bit.
 *
 *   Source  arXiv:2408.15664, algorithm 1; Megatron-LM, get_updated_expert_bias. */
lathe_status lathe__routers_correct(lathe_run *run);

#endif

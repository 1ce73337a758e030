/* Noise in the weights of norms while a stage writes completions (quant.noise): adaptive
 * quantization noise, AQN.
 *
 * A rollout is sampled with w + sigma z in place of w, the weights of every norm that a quantized
 * layer reads; z is standard normal, from the counter RNG, keyed by seed, step and parameter. All
 * else (training, log-probabilities, evaluation, samples) sees w.
 *
 * Source: arXiv:2510.11696 (QeRL), eq. 8 and 10, with the parts of the run as its program has them.
 * There the noise of a rollout is added to that of the rollouts before it; here, as in the paper's
 * text, each has its own.
 */
#ifndef LATHE_RUN_ROLLOUT_NOISE_H
#define LATHE_RUN_ROLLOUT_NOISE_H

#include "run/state/run_state.h"

/** Standard deviation at step `step` (0 is the first) of `total`, with K = stages >= 2 parts:
 *
 *    part 0      0
 *    part i > 0  start (end/start)^((i-1)/(K-2)), with K = 2: start
 *
 *  where step is in part floor(step / (total/K)), at most K - 1. */
double lathe_noise_sigma(double start, double end, int32_t stages, int64_t step, int64_t total);

/** The run's at a step. */
double lathe__noise_at(const lathe_run *run, int64_t step);

/** Refuses keys of the noise that have no effect, or that contradict each other. */
lathe_status lathe__noise_check(const lathe_run *run);

/** Finds the norms in the graph of the evaluation and plans the memory. LATHE_E_CONFIG: no
 * quantized layer reads a norm. */
lathe_status lathe__noise_plan(lathe_run *run);
lathe_status lathe__noise_place(lathe_run *run);
void lathe__noise_close(lathe_run *run);

/** Adds the noise of the current step; removes it, exactly. Do nothing while sigma is 0. */
lathe_status lathe__noise_add(lathe_run *run);
lathe_status lathe__noise_remove(lathe_run *run);

#endif

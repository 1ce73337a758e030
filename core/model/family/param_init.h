/* Initializes weights with random numbers, which depend only on (seed, parameter name, element)
 * and are the same on every machine. */
#ifndef LATHE_MODEL_PARAM_INIT_H
#define LATHE_MODEL_PARAM_INIT_H

#include "graph/ir/params.h"

/** Fills out[n] f32 (n = elements of row->desc) according to row->init and row->init_scale.
 *
 *  Block e/4 of the counter RNG, keyed by seed and stream = hash of the name, gives elements
 *  4(e/4)..+3: two Box-Muller pairs, or four uniforms. Arithmetic is IEEE f32 with our own
 *  logarithm and sine, so the bits depend neither on the C library nor on the instruction set. The
 *  threads of the pool share the work.
 *
 *  LATHE_E_ARG: an unknown init, or KAIMING_UNIFORM of a vector. */
lathe_status lathe_param_init(const lathe_param *row, uint64_t seed, float *out);

#endif

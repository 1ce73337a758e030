/* Random weights: a pure function of (seed, parameter name, element), the same on every machine. */
#ifndef LATHE_MODEL_PARAM_INIT_H
#define LATHE_MODEL_PARAM_INIT_H

#include "ir/params.h"

/** out[n] f32 (n = elements of row->desc), by row->init and row->init_scale.
 *
 *  Block e/4 of the counter RNG, keyed by seed and stream = hash of the name, gives elements
 *  4(e/4)..+3: two Box-Muller pairs, or four uniforms. Arithmetic is IEEE f32 with our own
 *  logarithm and sine, so neither the C library nor the instruction set shows in the bits. Spread
 *  over the pool.
 *  LATHE_E_ARG: an unknown init, or KAIMING_UNIFORM of a vector. */
lathe_status lathe_param_init(const lathe_param *row, uint64_t seed, float *out);

#endif

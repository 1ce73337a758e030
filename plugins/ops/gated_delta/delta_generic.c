/* The gated delta rule, compiled for any machine. */
#define DELTA_KERNELS delta_generic
#include "delta_cpu.h"

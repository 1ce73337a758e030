/* Linear attention with a decaying state, compiled for any machine. */
#define SCAN_KERNELS scan_generic
#include "scan_cpu.h"

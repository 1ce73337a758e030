/* Checks a problem that a device is asked to solve against the rules of its op. */
#ifndef LATHE_GRAPH_KERNEL_PROBLEM_H
#define LATHE_GRAPH_KERNEL_PROBLEM_H

#include "lathe/device.h"

/** lathe_host.check_kernel: LATHE_E_ARG or LATHE_E_SHAPE names what breaks the rules of the op. */
lathe_status lathe_kernel_problem_check(const struct lathe_kernel_problem *problem);

#endif

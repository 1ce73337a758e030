/* Decides which problems the cudnn backend supports, as far as that is known without cuDNN. */
#ifndef LATHE_CUDNN_PROBLEM_H
#define LATHE_CUDNN_PROBLEM_H

#include "lathe/attention.h"

/** 10 * major + minor of the compute capability in "sm_90"; 0: not a CUDA device. */
int64_t cudnn_problem_arch(const lathe_device_info *device);

/** The reason why the problem is refused; NULL: it is not. */
const char *cudnn_problem_refusal(const lathe_attention_problem *p);

#endif

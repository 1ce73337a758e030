/* The GPU kernel of awq. */
#ifndef LATHE_AWQ_KERNEL_H
#define LATHE_AWQ_KERNEL_H

#include "shared/packed_words.h"

CODEC_CUDA_DECODER(awq_element)

#endif

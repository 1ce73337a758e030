/* The GPU kernel of gptq. */
#ifndef LATHE_GPTQ_KERNEL_H
#define LATHE_GPTQ_KERNEL_H

#include "shared/packed_words.h"

CODEC_CUDA_DECODER(gptq_element)

#endif

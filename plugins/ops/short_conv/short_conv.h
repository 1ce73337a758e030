/* Arguments that the host passes to the kernels of short_conv_kernel.cu. */
#ifndef SHORT_CONV_H
#define SHORT_CONV_H

#include <stdint.h>

enum { SHORT_CONV_THREADS = 128 };

typedef struct short_conv_args {
    const void *x, *w, *bias, *dy; /* bias and doc_start may be NULL */
    const int32_t *doc_start;
    const int32_t *slots; /* of rows that continue sequences; their states are out[1] */
    void *out[3];         /* y; or the gradients of x, w and the bias, where they are wanted */
    int32_t out_dtype[3]; /* of these */
    int32_t dtype;        /* of x, w and dy */
    int64_t n_rows, tokens, n_channels, taps;
    int32_t is_silu;
    uint32_t accumulate;
} short_conv_args;

#endif

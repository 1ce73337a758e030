/* The factors s of the columns of the vocabulary head's logits, for one block of the vocabulary. */
#ifndef LATHE_CPU_HEAD_SCALE_H
#define LATHE_CPU_HEAD_SCALE_H

#include "base/cpu.h"

/** A block of products [rows, width], and s times them in f32, or the gradient of that. */
typedef struct cpu_head_scaling {
    void *products; /* of dtype */
    float *scaled;
    const float *s; /* [width] */
    float *ds;      /* [width]; NULL: not wanted */
    int64_t rows, width;
    int32_t dtype;
    int32_t adds; /* 1: ds is added to */
} cpu_head_scaling;

/** scaled = s * products, column by column. */
void cpu_head_scale(const lathe_host *host, cpu_head_scaling *c);
/** With g in `scaled`: ds (+)= sum over the rows, in order, of g * products, in f64; then products
 * = g * s. */
void cpu_head_unscale(const lathe_host *host, cpu_head_scaling *c);

#endif

/* Adafactor: formulas for the CPU loops and the GPU kernels, and those kernels.
 *
 * A sum over a tensor adds partial sums of runs of consecutive elements, at most ADAFACTOR_PARTIALS
 * of them, each in order; a GPU adds them in the same order.
 */
#ifndef LATHE_ADAFACTOR_H
#define LATHE_ADAFACTOR_H

#include "lathe/kit/optimizer_queue.h"

/* Slots of a matrix: row, col, (m); of a vector: v, (m). */
enum { SLOT_ROW, SLOT_COL, SLOT_V = 0 };

#define ADAFACTOR_PARTIALS 1024

/** Values that are the same for all tensors of a step. */
typedef struct adafactor_step {
    double rate;                     /* rho divided by the tensor's lr */
    double eps2, clip, weight_decay; /* as configured */
    float old, fresh;                /* b, 1 - b */
    float eps1;
    float beta1, new1;
    int32_t has_beta1, scales_by_parameter;
    int32_t reserved; /* 0 */
} adafactor_step;
LATHE_ABI_SIZE(adafactor_step, 64);

/** Values that are the same for all elements of a tensor. */
typedef struct adafactor_tensor {
    double size;        /* max(e2, rms(p)) */
    float inverse_mean; /* 1/mean(R) */
    float rate;         /* a / max(1, rms(u)/clip) */
    float decay;        /* wd*a */
    float reserved;     /* 0 */
} adafactor_tensor;
LATHE_ABI_SIZE(adafactor_tensor, 24);

/** Length of the runs of a loop over n, which are at least `least` long. */
LATHE_HD static inline int64_t adafactor_run(int64_t n, int64_t least)
{
    const int64_t fit = (n + ADAFACTOR_PARTIALS - 1) / ADAFACTOR_PARTIALS;
    return fit > least ? fit : least;
}

LATHE_HD static inline int64_t adafactor_row_run(const lathe_optimizer_tensor *x)
{
    return adafactor_run(x->rows, LATHE_CHUNK_ELEMENTS / x->cols + 1);
}

LATHE_HD static inline int adafactor_is_matrix(const adafactor_step *s,
                                               const lathe_optimizer_tensor *x)
{
    return x->slots[1 + s->has_beta1] != NULL;
}

LATHE_HD static inline float adafactor_square(const adafactor_step *s, float scaled)
{
    return scaled * scaled + s->eps1;
}

/** Updates a second moment with `mean`. */
LATHE_HD static inline float adafactor_moment(const adafactor_step *s, float mean, float was)
{
    return fmaf(s->fresh, mean, s->old * was);
}

/** 1/sqrt(R/mean(R)) of a row. */
LATHE_HD static inline float adafactor_row_factor(float row, float inverse_mean)
{
    return 1.0f / sqrtf(row * inverse_mean);
}

/** u before clipping and rate. row_factor: 1 for a vector, whose `moment` is V; otherwise `moment`
 *  is C of the column. */
LATHE_HD static inline float adafactor_direction(float row_factor, float moment, float scaled)
{
    return row_factor * (1.0f / sqrtf(moment)) * scaled;
}

/** max(e2, rms(p)) from the sum of squares over n elements. */
LATHE_HD static inline double adafactor_size(const adafactor_step *s, double squares, int64_t n)
{
    const double rms = sqrt(squares / (double)n);
    return rms > s->eps2 ? rms : s->eps2;
}

/** Rate and decay from the sum of squares of u over n elements. lr: of the tensor. */
LATHE_HD static inline void adafactor_tensor_rates(const adafactor_step *s, double lr,
                                                   double decay_mult, double squares, int64_t n,
                                                   adafactor_tensor *io)
{
    const double over = sqrt(squares / (double)n) / s->clip;
    io->rate = (float)(lr * io->size / (over > 1.0 ? over : 1.0));
    io->decay = (float)(s->weight_decay * decay_mult * lr * io->size);
}

/** The new parameter; updates m unless NULL. */
LATHE_HD static inline float adafactor_move(const adafactor_step *s, const adafactor_tensor *t,
                                            float direction, float p, float *m)
{
    float u = direction * t->rate;
    if (m != NULL)
        u = *m = fmaf(s->new1, u, s->beta1 * *m);
    return fmaf(-t->decay, p, p) - u; /* 1 - decay would lose the decay to rounding */
}

/** Arguments of all kernels. */
typedef struct adafactor_args {
    lathe_elementwise_args on;
    adafactor_step step;
    double *partial;           /* [n_chunks]: a tensor's begin at its first chunk */
    adafactor_tensor *tensors; /* [n_tensors] */
} adafactor_args;
LATHE_ABI_SIZE(adafactor_args, 136);

#ifdef __CUDACC__
#include "adafactor_cuda.h"
#endif

#endif

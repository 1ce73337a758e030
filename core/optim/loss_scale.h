/* The loss scale of fp16: gradients are scaled up before the backward, because fp16 has few bits of
 * exponent, and scaled down before the step. */
#ifndef LATHE_OPTIM_LOSS_SCALE_H
#define LATHE_OPTIM_LOSS_SCALE_H

#include <stdint.h>

/* Smallest loss scale: if gradients overflow even with it, scaling cannot help. */
#define LATHE_SCALE_LEAST 0x1p-10

/** State of torch.amp.GradScaler. The loss is multiplied by `scale` before the backward pass. A
 *  step whose gradients are not finite is skipped and halves the scale; growth_interval good steps
 *  in a row double it. Plain data, part of a run's state. */
typedef struct lathe_scaler {
    float scale;    /* 1 without a scaler */
    int32_t n_good; /* steps without overflow since the scale last changed */
} lathe_scaler;

/** Updates the scale after one step. Source: torch._amp_update_scale_ with growth 2 and backoff
 *  1/2, with the same f32 arithmetic: the scale never grows to infinity. */
void lathe_scaler_update(lathe_scaler *scaler, int32_t overflow, int32_t growth_interval);

#endif

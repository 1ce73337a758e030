/* The run's precision: what was asked for, what the device computes in, and the loss scale of fp16. */
#ifndef LATHE_RUN_PRECISION_H
#define LATHE_RUN_PRECISION_H

#include "lathe/device.h"

/* Below it no loss scale helps: it is the numbers themselves that overflow. */
#define LATHE_SCALE_LEAST 0x1p-10

/** torch.amp.GradScaler's state. The loss is multiplied by `scale` before the backward pass; a step
 *  whose gradients are not finite is left out and halves the scale, growth_interval good steps in a row
 *  double it. Plain data, part of a run's state. */
typedef struct lathe_scaler {
    float scale;    /* 1 without a scaler */
    int32_t n_good; /* steps without overflow since the scale last changed */
} lathe_scaler;

/** Takes one step's outcome in. Source: torch._amp_update_scale_ with growth 2 and backoff 1/2, whose
 *  f32 arithmetic this follows: a scale that would not be finite stays. */
void lathe_scaler_update(lathe_scaler *scaler, int32_t overflow, int32_t growth_interval);

/** "fp32", "bf16", "fp16", "fp8" of a dtype: as train.precision spells it. */
const char *lathe_precision_name(int32_t dtype);
/** The dtype of a text that train.precision takes; F32 for any other. */
int32_t lathe_precision_dtype(const char *name);

/** What a device computes in when `asked` was: itself, or one step back, and again:
 *  fp8 -> bf16 -> fp32, fp16 -> fp32. */
int32_t lathe_precision_on(const lathe_device_info *info, int32_t asked);

#endif

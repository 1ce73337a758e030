/* The run's precision: what was asked for, what the device computes in, and the loss scale of
 * fp16. */
#ifndef LATHE_EXEC_PRECISION_H
#define LATHE_EXEC_PRECISION_H

#include "base/buffer.h"
#include "lathe/device.h"

/* Below it no loss scale helps: it is the numbers themselves that overflow. */
#define LATHE_SCALE_LEAST 0x1p-10

/** torch.amp.GradScaler's state. The loss is multiplied by `scale` before the backward pass; a step
 *  whose gradients are not finite is left out and halves the scale, growth_interval good steps in a
 *  row double it. Plain data, part of a run's state. */
typedef struct lathe_scaler {
    float scale;    /* 1 without a scaler */
    int32_t n_good; /* steps without overflow since the scale last changed */
} lathe_scaler;

/** Takes one step's outcome in. Source: torch._amp_update_scale_ with growth 2 and backoff 1/2,
 *  whose f32 arithmetic this follows: a scale that would not be finite stays. */
void lathe_scaler_update(lathe_scaler *scaler, int32_t overflow, int32_t growth_interval);

/** "fp32", "bf16", "fp16", "fp8" of a dtype: as train.precision spells it. */
const char *lathe_precision_name(int32_t dtype);
/** The dtype of a text that train.precision takes; F32 for any other. */
int32_t lathe_precision_dtype(const char *name);

/** "tensorwise", "rowwise" of a LATHE_FP8_*; "" of NONE. And back: NONE for any other text. */
const char *lathe_fp8_recipe_name(int32_t recipe);
int32_t lathe_fp8_recipe_find(const char *name);
/** The recipe that a device with fp8 takes when `asked` was (NONE: its best); NONE: it has not that
 *  one. */
int32_t lathe_fp8_recipe_on(const lathe_device_info *info, int32_t asked);
/** What is computed in, as train.precision spells it: "fp8" where a recipe is used, else of the
 *  dtype. */
const char *lathe_precision_used(int32_t compute_dtype, int32_t recipe);
/** {"asked": "fp8", "used": "fp8", "fp8_recipe": "rowwise"}; the last where there is one. */
void lathe_precision_json(int32_t asked, int32_t compute_dtype, int32_t recipe, lathe_buffer *out);

/** What a device computes in when `asked` was: itself, or one step back, and again:
 *  fp8 -> bf16 -> fp32, fp16 -> fp32. */
int32_t lathe_precision_on(const lathe_device_info *info, int32_t asked);

#endif

/* The run's precision: the requested dtype, the dtype that the device computes in, and the loss
 * scale of fp16. */
#ifndef LATHE_EXEC_PRECISION_H
#define LATHE_EXEC_PRECISION_H

#include "base/buffer.h"
#include "lathe/device.h"

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

/** Name of a dtype as train.precision spells it: "fp32", "bf16", "fp16", "fp8". */
const char *lathe_precision_name(int32_t dtype);
/** The dtype that a value of train.precision names; F32 for any other text. */
int32_t lathe_precision_dtype(const char *name);

/** Name of a LATHE_FP8_* recipe: "tensorwise", "rowwise"; "" for NONE. The second is the reverse;
 *  NONE for any other text. */
const char *lathe_fp8_recipe_name(int32_t recipe);
int32_t lathe_fp8_recipe_find(const char *name);
/** The fp8 recipe that the device uses when the run asks for `asked`; NONE asks for the device's
 *  best. Returns NONE if the device does not have the recipe. */
int32_t lathe_fp8_recipe_on(const lathe_device_info *info, int32_t asked);
/** The precision in use, as train.precision spells it: "fp8" if a recipe is used, else the dtype's
 *  name. */
const char *lathe_precision_used(int32_t compute_dtype, int32_t recipe);
/** {"asked": "fp8", "used": "fp8", "fp8_recipe": "rowwise"}; the last key only if there is a
 *  recipe. */
void lathe_precision_json(int32_t asked, int32_t compute_dtype, int32_t recipe, lathe_buffer *out);

/** The precision that a device computes in when `asked` was requested: `asked` itself, or the first
 *  supported fallback: fp8 -> bf16 -> fp32, fp16 -> fp32. */
int32_t lathe_precision_on(const lathe_device_info *info, int32_t asked);

#endif

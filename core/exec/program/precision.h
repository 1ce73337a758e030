/* The run's precision: the requested dtype, and the dtype that the device computes in. */
#ifndef LATHE_EXEC_PRECISION_H
#define LATHE_EXEC_PRECISION_H

#include "base/buffer.h"
#include "lathe/device.h"

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

/* Helpers for optimizer plugins: common configuration keys, state slots, table and entry.
 *
 * With these, an elementwise optimizer needs only its formula (lathe/kit/elementwise.h), a struct
 * that begins with lathe_optimizer_common, its fields, slots(), scalars(), and
 * LATHE_OPTIMIZER_ELEMENTWISE. Members of the AdamW family take most of these from
 * lathe/kit/adamw_family.h.
 */
#ifndef LATHE_KIT_OPTIMIZER_KIT_H
#define LATHE_KIT_OPTIMIZER_KIT_H

#include <math.h>

#include "instance.h"
#include "lathe/optimizer.h"

/* Rows of a schema. `def` is a TOML literal. */
#define LATHE_LR_FIELD(def)                                                                        \
    LATHE_FIELD_FLOAT("lr", def, 0, 1e3, "1", "learning rate; the schedule multiplies it")
#define LATHE_BETA_FIELD(key, def, doc)                                                            \
    {                                                                                              \
        key, LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, def, 0, 1, NULL, "1", doc                   \
    }
#define LATHE_EPS_FIELD(def)                                                                       \
    {                                                                                              \
        "eps", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, def, 0, 1, NULL, "1",                     \
            "added to the root of the second moment"                                               \
    }
#define LATHE_WEIGHT_DECAY_FIELD(def)                                                              \
    LATHE_FIELD_FLOAT("weight_decay", def, 0, 1e3, "1",                                            \
                      "decoupled weight decay, multiplied by the learning rate")
#define LATHE_STATE_DTYPE_FIELD(doc) LATHE_FIELD_STRING("state_dtype", "\"fp32\"", "fp32|bf16", doc)

/** LATHE_F32 or LATHE_BF16 from the value of LATHE_STATE_DTYPE_FIELD. */
static inline int32_t lathe_state_dtype(const lathe_value *value)
{
    return lathe_choice("fp32|bf16", value->s) == 1 ? LATHE_BF16 : LATHE_F32;
}

/** First member of every instance. */
typedef struct lathe_optimizer_common {
    const lathe_host *host;
    double lr;           /* the base rate */
    int32_t state_dtype; /* LATHE_F32 or LATHE_BF16 */
    int32_t reserved;    /* 0 */
} lathe_optimizer_common;

static inline double lathe_optimizer_lr(void *self)
{
    return ((const lathe_optimizer_common *)self)->lr;
}

static inline const lathe_host *lathe_optimizer_host(const void *self)
{
    return ((const lathe_optimizer_common *)self)->host;
}

/** Declares a slot with the parameter's shape. */
static inline void lathe_slot_like(lathe_slot *slot, const char *name,
                                   const lathe_param_info *param, int32_t dtype)
{
    slot->name = name;
    slot->desc = param->desc;
    slot->desc.dtype = dtype;
}

/** Declares a slot of n numbers. */
static inline void lathe_slot_vector(lathe_slot *slot, const char *name, int64_t n, int32_t dtype)
{
    slot->name = name;
    slot->desc = lathe_desc_1d(dtype, n);
}

/** Bias correction 1 - beta^step: divisor of a moment that began at zero. */
static inline double lathe_bias_correction(double beta, int64_t step)
{
    return 1.0 - pow(beta, (double)step);
}

/* Defines type##_table. ...: its members other than base_lr. */
#define LATHE_OPTIMIZER_TABLE(type, ...)                                                           \
    static const lathe_optimizer_v1 type##_table = {.size = (uint32_t)sizeof type##_table,         \
                                                    .revision = LATHE_OPTIMIZER_REVISION,          \
                                                    .base_lr = lathe_optimizer_lr,                 \
                                                    __VA_ARGS__}

/* Defines the entry of an optimizer whose table is type##_table. ...: .version, .summary,
 * .source. */
#define LATHE_OPTIMIZER_ENTRY(type, ...)                                                           \
    const lathe_plugin LATHE_PLUGIN_ENTRY = {                                                      \
        LATHE_PLUGIN_LIFE(type), .kind = LATHE_KIND_OPTIMIZER,                                     \
        .revision = LATHE_OPTIMIZER_REVISION, .license = "Apache-2.0", __VA_ARGS__}

/* Defines the rest of an elementwise optimizer: instance, table and entry. Uses type##_slots,
 * type##_scalars and the chunk function from LATHE_ELEMENTWISE(type, n_slots). */
#define LATHE_OPTIMIZER_ELEMENTWISE(type, n_slots, read, ...)                                      \
    LATHE_INSTANCE(type, read)                                                                     \
    static lathe_status type##_step(void *self, const lathe_optimizer_step *step)                  \
    {                                                                                              \
        return lathe_elementwise_run(lathe_optimizer_host(self), step, n_slots, type##_chunk);     \
    }                                                                                              \
    LATHE_OPTIMIZER_TABLE(type, .slots = type##_slots, .scalars = type##_scalars,                  \
                          .step = type##_step, .cuda_image = LATHE_CUDA_IMAGE);                    \
    LATHE_OPTIMIZER_ENTRY(type, __VA_ARGS__)

#endif

/* The run's settings: the core sections of run.toml as plain typed fields. */
#ifndef LATHE_RUN_SETTINGS_H
#define LATHE_RUN_SETTINGS_H

#include "checkpoint/state/checkpoint_settings.h"
#include "lathe/lathe.h"
#include "model/family/moe_settings.h"
#include "optim/average_rows.h"
#include "plug/config_keys.h"

/* Policies after a bad step: a number that is not finite, or a loss spike. The order is that of the
 * choices of train.on_spike. */
enum {
    LATHE_POLICY_STOP = 0,
    LATHE_POLICY_SKIP = 1,
    LATHE_POLICY_REWIND = 2,
    LATHE_POLICY_IGNORE = 3
};

enum { LATHE_CAPTURE_AUTO = 0, LATHE_CAPTURE_ON = 1, LATHE_CAPTURE_OFF = 2 };

/* teacher.precision = "auto" */
enum { LATHE_TEACHER_AUTO = -1 };

/** The members are the rows of plug/keys_*.inc; each row has the type, the unit and the meaning.
 *  A member is named as its key, unless two sections have the key. */
typedef struct lathe_settings {
#define KEY(key, c_type, member, ...) LATHE_KEY_MEMBER(c_type, member)
#define KEY_ALONE(...)
#include "plug/keys_adapter.inc"
#include "plug/keys_data.inc"
#include "plug/keys_generate.inc"
#include "plug/keys_log.inc"
#include "plug/keys_model.inc"
#include "plug/keys_parallel.inc"
#include "plug/keys_quant.inc"
#include "plug/keys_teacher.inc"
#include "plug/keys_tokenizer.inc"
#include "plug/keys_train.inc"
#undef KEY
#undef KEY_ALONE
    lathe_checkpoint_settings checkpoint;
    lathe_moe_settings moe;
    /* Set when the device is known: */
    int32_t compute_dtype; /* the device's dtype for `precision`: F32, BF16, F16; BF16 with fp8 */
    int32_t fp8;           /* LATHE_FP8_*: the recipe in use */
} lathe_settings;

/** Whether there are data to evaluate on. */
int lathe_settings_has_validation(const lathe_settings *set);

/** Reads the settings from a checked configuration. Texts are borrowed from it. */
void lathe_settings_read(const lathe_config *config, lathe_settings *out);

#endif

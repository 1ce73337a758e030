/* Holds the settings of [checkpoint] in the run file as typed fields. */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_SETTINGS_H
#define LATHE_CHECKPOINT_CHECKPOINT_SETTINGS_H

#include "plug/config_keys.h"

/* checkpoint.save_dtype = "auto": each tensor is saved in the dtype in which it was read. */
enum { LATHE_SAVE_AUTO = -1 };

/** The members are the rows of plug/keys_checkpoint.inc: each row has the type, the unit and the
 *  meaning. */
typedef struct lathe_checkpoint_settings {
#define KEY(key, c_type, member, ...) LATHE_KEY_MEMBER(c_type, member)
#define KEY_ALONE(...)
#include "plug/keys_checkpoint.inc"
#undef KEY
#undef KEY_ALONE
} lathe_checkpoint_settings;

/** Whether checkpoint.resume lets a training begin anew: "never", "restart", or unset. */
int32_t lathe_resume_begins_anew(const char *resume);

/** Whether it is "restart": the run that is in checkpoint.dir is moved aside first. */
int32_t lathe_resume_moves_aside(const char *resume);

/** Reads the section from a checked configuration. Texts are borrowed from it. */
void lathe_checkpoint_settings_read(const lathe_config *config, lathe_checkpoint_settings *out);

#endif

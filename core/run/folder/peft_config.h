/* Reads adapter_config.json of a folder that PEFT, or a program built on it, wrote. */
#ifndef LATHE_RUN_PEFT_CONFIG_H
#define LATHE_RUN_PEFT_CONFIG_H

#include "run/folder/folder_settings.h"

/* How Lathe treats a key of adapter_config.json. */
enum {
    LATHE_PEFT_READ,     /* it becomes a setting, or is checked */
    LATHE_PEFT_HARMLESS, /* it changes nothing that the adapter computes, whatever its value */
    LATHE_PEFT_REFUSED,  /* only null, false, "" and empty lists, or values of its row, are taken */
    LATHE_PEFT_UNKNOWN   /* no row: refused in the same way */
};

/** LATHE_PEFT_* of a key of the method "LORA" or "OFT". */
int32_t lathe_peft_key_kind(const char *type, const char *key);

/** Reads the file of a folder. *out is NULL if there is none; the caller releases it. */
lathe_status lathe_peft_config_read(const char *dir, lathe_arena *arena, json_t **out);

/** Whether it belongs to a sequence classifier, such as a reward model. */
int32_t lathe_peft_is_classifier(const json_t *peft);

/** Whether it belongs to a reward model: its score is among the modules that are saved whole. */
int32_t lathe_peft_is_reward(const json_t *peft);

/** Adds the settings of the adapter, as keys of a run file; of adapter_model.safetensors it reads
 *  the names. *out_fixed: why a run cannot train the adapter further, though it is read; NULL: it
 *  can.
 *
 *  Errors  LATHE_E_CONFIG: another method than LoRA and OFT, or a key with which the adapter
 *          computes something that Lathe does not; the message names the key. */
lathe_status lathe_peft_config_settings(const char *dir, const json_t *peft, lathe_arena *arena,
                                        lathe_setting_list *settings, const char **out_fixed);

#endif

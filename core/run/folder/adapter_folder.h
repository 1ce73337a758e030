/* Reads an adapter's folder: a checkpoint of a run with an adapter, or a folder that PEFT wrote. */
#ifndef LATHE_RUN_ADAPTER_FOLDER_H
#define LATHE_RUN_ADAPTER_FOLDER_H

#include "run/folder/folder_settings.h"

typedef struct lathe_adapter_folder {
    const char *base; /* the model's folder; the adapter's folder if it contains the whole model */
    lathe_setting_list settings; /* of adapter, quantization and model, as keys of a run file */
    int32_t has_manifest;        /* 1: it is a checkpoint, whose files have hashes */
    const char *fixed;           /* why a run cannot train the adapter further; NULL: it can */
} lathe_adapter_folder;

/** Returns 1 if the folder contains an adapter's file. */
int32_t lathe_adapter_folder_is(const char *dir);

/** Finds the folder of an adapter's file: `path`, or the latest checkpoint in it. *out is NULL if
 *  there is none, as in a model's folder.
 *
 *  Errors  LATHE_E_CORRUPT, LATHE_E_IO: `latest` of the folder names no checkpoint, or cannot be
 *          read.
 */
lathe_status lathe_adapter_folder_find(const char *path, lathe_arena *arena, const char **out);

/** *out = 1: the adapter_config.json of the folder is that of a sequence classifier, such as a
 *  reward model. */
lathe_status lathe_adapter_folder_is_classifier(const char *dir, int32_t *out);

/** Adds the settings of an adapter from the configuration of the run that made it: [adapter], and
 *  [quant] if its base was quantized. */
lathe_status lathe_adapter_settings_add(lathe_setting_list *list, lathe_arena *arena,
                                        const json_t *config);

/** Reads what the adapter was made with: the configuration in manifest.json, or else PEFT's
 *  adapter_config.json (LoRA).
 *  base: the model's folder, or NULL: the one that the folder names. Everything lives in the arena.
 *
 *  Errors  LATHE_E_CONFIG: the base is not there, or a setting that Lathe does not support; the
 *          message says what to do.
 */
lathe_status lathe_adapter_folder_read(const char *dir, const char *base, lathe_arena *arena,
                                       lathe_adapter_folder *out);

#endif

/* Settings of the run that wrote a checkpoint, from its manifest, as keys of a run file. */
#ifndef LATHE_RUN_FOLDER_SETTINGS_H
#define LATHE_RUN_FOLDER_SETTINGS_H

#include <jansson.h>

#include "base/arena.h"
#include "config/config.h"
#include "plug/registry.h"

/** Settings that a folder remembers: typed, decided by the folder, which messages name as their
 *  place. */
typedef struct lathe_setting_list {
    lathe_edit *edits; /* [n], in the arena */
    int32_t n;
    const char *dir; /* the folder; NULL: messages name the option that would set the key */
} lathe_setting_list;

/** Returns 1 if the folder contains the file. */
int32_t lathe_folder_has(const char *dir, const char *name);

/** Reads the configuration of the run that wrote the checkpoint `dir`, or the checkpoint that
 * contains this average/. *out_config is NULL if there is none; the caller releases it.
 * *out_has_manifest: whether `dir` itself has a manifest. */
lathe_status lathe_folder_config(const char *dir, lathe_arena *arena, json_t **out_config,
                                 int32_t *out_has_manifest);

/** The tokenizer.path with which the checkpoint or model `dir` reads text: `dir` if it has a
 * tokenizer.json, "bytes" if its manifest says that the run read raw bytes, else NULL. */
lathe_status lathe_folder_tokenizer(const char *dir, lathe_arena *arena, const char **out);

/** The data.chat_template with which the folder `dir` of an adapter was trained on raw bytes: the
 * file in it. NULL: it has none, or has a tokenizer.json, beside which the template is found. */
lathe_status lathe_folder_bytes_template(const char *dir, lathe_arena *arena, const char **out);

/** An empty list; set list->dir before settings are added. */
lathe_status lathe_settings_init(lathe_setting_list *list, lathe_arena *arena);

/** Returns 1 if the list has the key, "section.key". */
int32_t lathe_settings_have(const lathe_setting_list *list, const char *key);

/** The value of "section.key"; NULL: the list has none. */
const lathe_toml_node *lathe_settings_value(const lathe_setting_list *list, const char *key);

/** Adds the keys of [tokenizer] that make a model grow (tokenizer.add_tokens and others), if the
 * run of the configuration added tokens or rows. */
lathe_status lathe_settings_add_tokens(lathe_setting_list *list, lathe_arena *arena,
                                       const json_t *config);

/** Adds an edit unless the list has its key. */
lathe_status lathe_settings_take(lathe_setting_list *list, const lathe_edit *one);

/** Adds section.key with a JSON value unless the list has the key; NULL and null
 * add nothing. */
lathe_status lathe_settings_add(lathe_setting_list *list, lathe_arena *arena, const char *section,
                                const char *key, const json_t *value);

/** Adds every key of a section, except model.path. */
lathe_status lathe_settings_add_section(lathe_setting_list *list, lathe_arena *arena,
                                        const json_t *config, const char *section);

/** Adds train.precision of the run unless it is bf16. Commands that only read replace a default
 * precision by a faster one. */
lathe_status lathe_settings_add_precision(lathe_setting_list *list, lathe_arena *arena,
                                          const json_t *config);

/** Adds the keys of a renderer of lathe_folder_renderer if it was named. */
lathe_status lathe_settings_add_renderer(lathe_setting_list *list, lathe_arena *arena,
                                         json_t *renderer);

/** Adds what an evaluation needs to compute what the run's own evaluation computes: the stage and
 * its settings (skip_stage 1: the user chose another one), the length of rows, packing and
 * micro-batch. registry: with the plugin of the stage. */
lathe_status lathe_settings_add_evaluation(lathe_setting_list *list, lathe_arena *arena,
                                           lathe_registry *registry, const json_t *config,
                                           int32_t skip_stage);

/** Adds the validation data of the run that wrote the checkpoint `dir`, with the settings that
 *  decide its rows. Paths that were relative are those of the folder in which the run was started,
 *  if they do not exist here.
 *
 *  Errors  LATHE_E_CONFIG: the folder is of no run, its run had no validation data, or they are not
 *          there; the message asks for --data. */
lathe_status lathe_settings_add_validation(lathe_setting_list *list, lathe_arena *arena,
                                           const char *dir);

#endif

/* The run's configuration: a TOML file and overrides, checked against the schemas of the core and
 * of the plugins that it names. A wrong configuration is refused with all its errors and their
 * places.
 *
 * Threads: made on one thread, then read by any. Values, texts and places live as long as the
 * configuration.
 */
#ifndef LATHE_CONFIG_CONFIG_H
#define LATHE_CONFIG_CONFIG_H

#include "base/buffer.h"
#include "base/diag.h"
#include "config/config_file.h"
#include "lathe/schema.h"
#include "plug/registry.h"

typedef struct lathe_config lathe_config;

/** The plugin and values that a kind's table asks for. */
typedef struct lathe_part {
    int32_t kind;
    int32_t is_none;  /* quant "none", or an unused kind that is not in the file */
    int32_t is_auto;  /* adapter "auto": the run chooses the plugin and its settings by the plan */
    const char *name; /* as in the file, or the default: "adamw", "cpu", "auto" */
    /* NULL: none, or a family or "auto", to be selected and bound */
    const lathe_component *component;
    const lathe_value *values; /* of component, in schema order; NULL if there is none */
} lathe_part;

/** A reward: the table [reward], or one of the tables [[reward]]. Either a plugin or the folder of
 * a reward model. */
typedef struct lathe_config_reward {
    lathe_part part;        /* component NULL: `model` is set */
    const char *model;      /* folder of a reward model; NULL: a plugin */
    const char *label;      /* its name in metrics and messages; no two rewards have the same */
    double weight;          /* factor of its scores in the sum */
    double timeout_seconds; /* for one batch of completions */
    int32_t retries;        /* how often a batch that failed is tried again */
} lathe_config_reward;

/* One more bit for `kinds` of lathe_config_load: an override replaces the method of the file, so
 * keys of [adapter] that the other method does not have are ignored. */
#define LATHE_CONFIG_OTHER_METHOD (1u << 29)
/* Further bits: also run the checks below, so that a wrong key does not hide a missing file. DATA:
 * with FILES, also those that only training and evaluation read. ELSEWHERE: the file will run on
 * another machine, so a file that is missing here is a warning. */
#define LATHE_CONFIG_FILES (1u << 30)
#define LATHE_CONFIG_TRAIN (1u << 31)
#define LATHE_CONFIG_DATA (1u << 28)
#define LATHE_CONFIG_ELSEWHERE (1u << 27)
#define LATHE_CONFIG_MODEL (1u << 26)

/** Makes a configuration of a run file with its options and, on top of them, the edits (NULL:
 *  none): checks everything, and opens the plugins that are named. kinds: bits (1 << LATHE_KIND_*)
 * of the kinds that the caller needs even if the file does not name them (they get their defaults);
 * LATHE_CONFIG_*. Errors: LATHE_E_PARSE, LATHE_E_NOT_FOUND, LATHE_E_IO: the file; LATHE_E_CONFIG:
 * diags has all errors, sorted, and the thread's message is their text. On success diags has the
 * warnings. */
lathe_status lathe_config_make(lathe_run_file *file, const lathe_edits *edits, uint32_t kinds,
                               lathe_registry *registry, lathe_diags *diags, lathe_config **out);
/** Like lathe_config_make, for a run file that only this configuration is made of. path NULL: no
 *  file. */
lathe_status lathe_config_load(const char *path, const lathe_override *overrides,
                               int64_t n_overrides, uint32_t kinds, lathe_registry *registry,
                               lathe_diags *diags, lathe_config **out);
/** Like lathe_config_make, of edits alone. */
lathe_status lathe_config_of_edits(const lathe_edits *edits, uint32_t kinds,
                                   lathe_registry *registry, lathe_diags *diags,
                                   lathe_config **out);
void lathe_config_destroy(lathe_config *config);

/** Path of the file; "" if there is none. */
const char *lathe_config_path(const lathe_config *config);

/** A checked value of a core section or of a plugin's table; NULL: the key does not exist. */
const lathe_value *lathe_config_get(const lathe_config *config, const char *section,
                                    const char *key);

/** The keys of a section with those of its plugin; n is 0 if the section does not exist. */
const lathe_field *lathe_config_fields(const lathe_config *config, const char *section,
                                       int32_t *out_n);

/** Short forms; 0, 0.0 or NULL if the key is unset. */
int64_t lathe_config_int(const lathe_config *config, const char *section, const char *key);
double lathe_config_float(const lathe_config *config, const char *section, const char *key);
/** A path of the run file as the file writes it: without the file's folder, which Lathe put before
 *  it. Borrowed from `path`. */
const char *lathe_config_written(const lathe_config *config, const char *path);
const char *lathe_config_string(const lathe_config *config, const char *section, const char *key);
int lathe_config_is_set(const lathe_config *config, const char *section, const char *key);

/** Whether the file or an override has the key; a default does not count. */
int lathe_config_is_explicit(const lathe_config *config, const char *section, const char *key);

/** Whether the file or an override names the plugin of a kind. */
int lathe_config_names(const lathe_config *config, int32_t kind);

/** The seed of a section: its own, or else train.seed. */
uint64_t lathe_config_seed(const lathe_config *config, const char *section);

/** The plugin and values of a kind. */
const lathe_part *lathe_config_part(const lathe_config *config, int32_t kind);

/** The rewards, in the order of the file; n is 0 if the file has none. */
const lathe_config_reward *lathe_config_rewards(const lathe_config *config, int32_t *out_n);

/** Place of the key at a path of the reward `index`, as lathe_config_where_key; else of its name.
 */
lathe_place lathe_config_where_reward(const lathe_config *config, int32_t index, const char *path);

/** Values for a component that was selected for a family or "auto": checks the table against its
 *  schema; keys that only other candidates have are ignored. LATHE_E_CONFIG with diags. */
lathe_status lathe_config_bind(lathe_config *config, int32_t kind, const lathe_component *component,
                               lathe_diags *diags, const lathe_value **out_values);

/** Key number `index` of the kind's table that the plugin bound to it does not have; NULL: there
 *  are no more. */
const char *lathe_config_idle_key(const lathe_config *config, int32_t kind, int32_t index);

/** Place of the key, or else of its section, or else of the file. */
lathe_place lathe_config_where(const lathe_config *config, const char *section, const char *key);

/** Place of the key at a path of the section, as plugins name it ("block_size",
 *  "rope_scaling.factor", "target_modules.2"), as far as the file sets it; otherwise that of
 * another key of the section. */
lathe_place lathe_config_where_key(const lathe_config *config, const char *section,
                                   const char *path, const char *otherwise);

/** Place of the thread's error (base/error.h): of the key that it is about, if the file sets it;
 *  otherwise of section.key, which the caller was busy with, or of the name of the error's own
 *  section. */
lathe_place lathe_config_where_error(const lathe_config *config, const char *section,
                                     const char *key);

/** Place of `inner` in element `index` of the array section.key ("data.datasets", 1, "columns");
 *  else of the element; else as lathe_config_where. `inner` may be NULL, or a path, of which the
 *  last key that exists counts: "columns.text". */
lathe_place lathe_config_where_in(const lathe_config *config, const char *section, const char *key,
                                  int64_t index, const char *inner);

/** Replaces the path in section.key, or in reward.model of the reward `index`, by the one that it
 *  means: the folder of the weights in a checkpoint. Its place stays that of the file. */
lathe_status lathe_config_move_path(lathe_config *config, const char *section, const char *key,
                                    const char *path);
lathe_status lathe_config_move_reward(lathe_config *config, int32_t index, const char *path);

/** Whether the command line sets the key. */
int lathe_config_is_override(const lathe_config *config, const char *section, const char *key);

/** Adds an error, or a warning, at lathe_config_where(section, key). */
__attribute__((format(printf, 6, 7))) void lathe_config_add(const lathe_config *config,
                                                            lathe_diags *diags, int32_t severity,
                                                            const char *section, const char *key,
                                                            const char *format, ...);

/** Adds errors for files that the configuration names but that do not exist: model.path,
 *  tokenizer.path, a checkpoint to resume; with LATHE_CONFIG_DATA in `kinds` datasets, a teacher
 * and folders that are written. LATHE_CONFIG_ELSEWHERE: warnings instead. */
void lathe_config_check_files(const lathe_config *config, uint32_t kinds, lathe_diags *diags);

/** Adds errors for a model that nothing names, or that is named twice. */
void lathe_config_check_model(const lathe_config *config, lathe_diags *diags);

/** Adds errors that would stop training: no data, contradicting keys. With
 *  LATHE_CONFIG_ELSEWHERE in `kinds`, folders are not checked. */
void lathe_config_check_train(const lathe_config *config, uint32_t kinds, lathe_diags *diags);

/** Appends all effective values as one JSON object of sections, for manifests. Equal values give
 *  equal text. */
void lathe_config_json(const lathe_config *config, lathe_buffer *out);

/** A checked table inside a section, such as one of optimizer.groups, or inside such a table. It
 *  belongs to the configuration. */
typedef struct lathe_config_table lathe_config_table;

/** A key of the file with its text. */
typedef struct lathe_named_text {
    const char *name, *text;
} lathe_named_text;

#endif

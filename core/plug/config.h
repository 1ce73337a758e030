/* The run's configuration: a TOML file and overrides, checked against the schemas of the core and
 * of the plugins it names. Wrong ones die here, with all errors and their places.
 *
 * Threads: made on one thread, then read by any. Values, texts and places live as long as it does.
 */
#ifndef LATHE_PLUG_CONFIG_H
#define LATHE_PLUG_CONFIG_H

#include "base/buffer.h"
#include "base/diag.h"
#include "lathe/schema.h"
#include "plug/registry.h"

typedef struct lathe_config lathe_config;

/** --key value, e.g. "optimizer.lr", "2e-5". The value is a TOML literal, or else a string. */
typedef struct lathe_override {
    const char *key, *value;
} lathe_override;

/** What a kind's table asks for. */
typedef struct lathe_part {
    int32_t kind;
    int32_t is_none;                  /* quant "none", or a kind not wanted and not in the file */
    const char *name;                 /* as in the file, or the default: "adamw", "cpu", "auto" */
    const lathe_component *component; /* NULL: none, or a family or "auto": select, then bind */
    const lathe_value *values;        /* of component, in schema order; NULL without one */
} lathe_part;

/* Beside the kinds in lathe_config_load: the checks below are part of it, so that a wrong key does
 * not hide a missing file. */
#define LATHE_CONFIG_FILES (1u << 30)
#define LATHE_CONFIG_TRAIN (1u << 31)

/** Reads the file (path NULL: none), applies the overrides, checks everything, and opens the
 *  plugins that are named. kinds: bit (1 << LATHE_KIND_*) for those that the caller needs even
 *  where the file does not name them (they get their defaults); LATHE_CONFIG_FILES,
 *  LATHE_CONFIG_TRAIN.
 *  Errors  LATHE_E_PARSE, LATHE_E_NOT_FOUND, LATHE_E_IO: the file; LATHE_E_CONFIG: diags has all,
 *          sorted, and the thread's message is their text. Warnings stay in diags on success. */
lathe_status lathe_config_load(const char *path, const lathe_override *overrides,
                               int64_t n_overrides, uint32_t kinds, lathe_registry *registry,
                               lathe_diags *diags, lathe_config **out);
void lathe_config_destroy(lathe_config *config);

/** The file's path; "" without one. */
const char *lathe_config_path(const lathe_config *config);

/** A checked value of a core section or of a named plugin's table; NULL: there is no such key. */
const lathe_value *lathe_config_get(const lathe_config *config, const char *section,
                                    const char *key);

/** The keys of a section, those of its plugin included; n 0: there is no such section. */
const lathe_field *lathe_config_fields(const lathe_config *config, const char *section,
                                       int32_t *out_n);

/** Shorthands: 0, 0.0 or NULL when the key is unset. */
int64_t lathe_config_int(const lathe_config *config, const char *section, const char *key);
double lathe_config_float(const lathe_config *config, const char *section, const char *key);
const char *lathe_config_string(const lathe_config *config, const char *section, const char *key);
int lathe_config_is_set(const lathe_config *config, const char *section, const char *key);

/** The seed of a section: its own, or else train.seed. */
uint64_t lathe_config_seed(const lathe_config *config, const char *section);

/** The part of a kind. */
const lathe_part *lathe_config_part(const lathe_config *config, int32_t kind);

/** Values for a component that was selected for a family or "auto": the table checked against its
 *  schema; keys that only other candidates know are passed over. LATHE_E_CONFIG with diags. */
lathe_status lathe_config_bind(lathe_config *config, int32_t kind, const lathe_component *component,
                               lathe_diags *diags, const lathe_value **out_values);

/** Where the key stands; else its section; else the file as a whole. */
lathe_place lathe_config_where(const lathe_config *config, const char *section, const char *key);

/** Where `inner` stands in element `index` of the array section.key ("data.datasets", 1,
 *  "columns"): the value, or else the element, or else what lathe_config_where says. `inner` may be
 *  NULL, or lead further: "columns.text". */
lathe_place lathe_config_where_in(const lathe_config *config, const char *section, const char *key,
                                  int64_t index, const char *inner);

/** Whether the command line sets the key. */
int lathe_config_is_override(const lathe_config *config, const char *section, const char *key);

/** Adds an error, or a warning, at lathe_config_where(section, key). */
__attribute__((format(printf, 6, 7))) void lathe_config_add(const lathe_config *config,
                                                            lathe_diags *diags, int32_t severity,
                                                            const char *section, const char *key,
                                                            const char *format, ...);

/** Errors for files the configuration names that are not there: model.path, tokenizer.path,
 *  datasets, a checkpoint to resume. */
void lathe_config_check_files(const lathe_config *config, lathe_diags *diags);

/** Errors that training would run into: no data, no model, contradicting keys. */
void lathe_config_check_train(const lathe_config *config, lathe_diags *diags);

/** Appends all effective values as one JSON object of sections: for manifests. Same values, same
 *  text. */
void lathe_config_json(const lathe_config *config, lathe_buffer *out);

#endif

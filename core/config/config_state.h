/* The private state of a configuration, for config*.c only. */
#ifndef LATHE_CONFIG_CONFIG_STATE_H
#define LATHE_CONFIG_CONFIG_STATE_H

#include "base/toml.h"
#include "config/config.h"
#include "plug/core_schema.h"

enum { LATHE__MAX_SECTIONS = 32 };

/** A table of the file with its values. */
struct lathe__section {
    const char *name;
    const lathe_toml_node *table; /* NULL: not in the file */
    const lathe_field *fields;
    int32_t n_fields;
    int32_t kind; /* 0: a section of the core */
    const lathe_value *values;
};

struct lathe_config_table {
    const lathe_core_section *schema; /* NULL: replaced by a later check */
    const lathe_value *values;
    const lathe_config_table *outer; /* NULL: it is inside a section */
    lathe_named_text *others; /* [n_others] strings with keys that the schema does not have */
    int64_t n_others;
    lathe_config_table *next; /* in the order in which they were checked; that of the file */
};

struct lathe_config {
    lathe_arena arena;
    const char *path;
    lathe_registry *registry;
    lathe_toml_node *root;
    struct lathe__section sections[LATHE__MAX_SECTIONS];
    int32_t n_sections;
    lathe_config_table *tables; /* a table comes before the tables inside it */
    lathe_part parts[LATHE_N_KINDS];
    lathe_config_reward *rewards;           /* [n_rewards] */
    struct lathe__section *reward_sections; /* [n_rewards] */
    int32_t n_rewards;
    int32_t is_other_method; /* LATHE_CONFIG_OTHER_METHOD */
};

/** The node at a path below a table or array, "columns.text" or "target_modules.2", or the last one
 *  on the path that exists; `node` itself if there is none (config_get.c). */
const lathe_toml_node *lathe__config_at(const lathe_toml_node *node, const char *path);

/** Puts the edits into the tree (config_edit.c). */
lathe_status lathe__config_edit(lathe_config *config, const lathe_edits *edits, lathe_diags *diags);

/** Makes the relative paths of the file relative to the file's folder (config_paths.c). Paths on
 *  the command line stay relative to the current folder. A key that names a model gets the
 *  checkpoint that the folder of a run, DIR/best or DIR/latest means; diags gets those that name
 *  none. */
lathe_status lathe__config_paths(lathe_config *config, lathe_diags *diags);
/** Like lathe__config_paths, for the default paths of a core section. */
lathe_status lathe__config_default_paths(lathe_config *config, const char *section,
                                         lathe_value *values);

/** Checks the tables inside a core section (datasets, ...), keeps their values for
 *  lathe_config_table_at, and replaces their JSON texts by texts with the defaults. */
lathe_status lathe__config_tables(lathe_config *config, const struct lathe__section *section,
                                  lathe_diags *diags);

/** Checks one table (NULL: empty) against the schema of a plugin (NULL: only the core's keys), and
 *  returns its values. */
lathe_status lathe__config_values(lathe_config *config, int32_t kind, const lathe_toml_node *table,
                                  const lathe_component *component, int32_t ignore_unknown,
                                  lathe_registry *registry, lathe_diags *diags,
                                  struct lathe__section *out);

/** Checks the table of a kind against the schema of a plugin (NULL: only the core's keys). After
 *  that lathe_config_get finds its values. */
lathe_status lathe__config_bind(lathe_config *config, int32_t kind,
                                const lathe_component *component, int32_t ignore_unknown,
                                lathe_registry *registry, lathe_diags *diags);

/** Resolves [model]: the plugin that model_type or name asks for (config_model.c). */
lathe_status lathe__config_model(lathe_config *config, lathe_registry *registry,
                                 lathe_diags *diags);

/** Resolves [reward] or [[reward]] (config_reward.c). */
lathe_status lathe__config_rewards(lathe_config *config, lathe_registry *registry,
                                   lathe_diags *diags);
/** Appends the rewards as a JSON array. */
void lathe__config_rewards_json(const lathe_config *config, lathe_buffer *out);

/** Multiplies the optimizer's rates that neither the file nor an override has by the share of the
 *  run's method (config_rate.c). */
lathe_status lathe__config_settle_rate(lathe_config *config);

/** Resolves a kind's table: plugin, schema, values. */
lathe_status lathe__config_part(lathe_config *config, int32_t kind, int wanted,
                                lathe_registry *registry, lathe_diags *diags);

const struct lathe__section *lathe__config_section(const lathe_config *config, const char *name);

#endif

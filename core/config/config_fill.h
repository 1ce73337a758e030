/* Fills structs with the checked values of a configuration, key by key (plug/config_keys.h). */
#ifndef LATHE_CONFIG_CONFIG_FILL_H
#define LATHE_CONFIG_CONFIG_FILL_H

#include "config/config.h"
#include "plug/config_keys.h"

struct lathe_registry;

/** The registry that the configuration was checked with; borrowed. */
struct lathe_registry *lathe_config_registry(const lathe_config *config);

/** Fills the members of `out` from the checked values of a section. Texts are borrowed from the
 *  configuration. */
void lathe_config_fill(const lathe_config *config, const char *section, const lathe_key *keys,
                       int32_t n_keys, void *out);

/** Table `index` of the array section.key ("optimizer", "groups", 0), in the order of the file; a
 *  single table counts as an array of one. NULL: there are not as many. */
const lathe_config_table *lathe_config_table_at(const lathe_config *config, const char *section,
                                                const char *key, int64_t index);

/** The table `key` inside `outer` ("columns" of a dataset). NULL: the file has none. */
const lathe_config_table *lathe_config_table_inside(const lathe_config *config,
                                                    const lathe_config_table *outer,
                                                    const char *key);

/** Fills the members of `out` from the checked values of a table; members whose keys the table's
 *  schema does not have stay as they are. Texts are borrowed from the configuration. */
void lathe_config_table_fill(const lathe_config *config, const lathe_config_table *table,
                             const lathe_key *keys, int32_t n_keys, void *out);

/** The strings of a table whose keys its schema does not have, which the schema allows for columns
 *  of a stage's inputs; in the order of the file. */
const lathe_named_text *lathe_config_table_others(const lathe_config_table *table, int64_t *out_n);

#endif

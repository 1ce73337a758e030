/* The fields of the core's own tables: model, data, tokenizer, train, checkpoint, generate, log,
 * plugins. */
#ifndef LATHE_PLUG_CORE_SCHEMA_H
#define LATHE_PLUG_CORE_SCHEMA_H

#include "lathe/plugin.h"
#include "lathe/schema.h"

typedef struct lathe_core_section {
    const char *name;
    /* NULL for a section. Else the key of a table ("datasets") in the section or table `name`
     * ("data"). */
    const char *key;
    const lathe_field *fields;
    int32_t n_fields;
    const char *doc;
    const char *single; /* a string in the table's place is the value of this key; NULL: it is not
                         * allowed */
} lathe_core_section;

/** The sections, in the order of the documentation. `model` is also a kind: its table has the keys
 *  of a plugin too. */
const lathe_core_section *lathe_core_sections(int32_t *out_n);

/** A section by name; NULL: none. */
const lathe_core_section *lathe_core_section_find(const char *name);

/** The tables inside sections; a table comes after the table that contains it. */
const lathe_core_section *lathe_core_tables(int32_t *out_n);

/** The schema of the table, or of each table of the array, at section.key ("data", "datasets";
 *  "data.datasets", "columns"); NULL: its keys are not checked. */
const lathe_core_section *lathe_core_table_find(const char *section, const char *key);

/** Keys that the core adds to the table of every plugin of a kind; NULL and 0 for most kinds. */
const lathe_field *lathe_core_kind_fields(int32_t kind, int32_t *out_n);

#endif

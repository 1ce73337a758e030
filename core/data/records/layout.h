/* Layouts: which fields of a record each column is made of.
 *
 * A dataset's own layout comes from its `columns` and `format`, or else from the columns' names.
 * Where it has neither, records can also have a layout that is known from other programs.
 */
#ifndef LATHE_DATA_LAYOUT_H
#define LATHE_DATA_LAYOUT_H

#include "data/records/dataset.h"
#include "data/records/format.h"

enum { LATHE_LAYOUT_OWN = 0, LATHE_LAYOUT_KNOWN = 1, LATHE_N_LAYOUTS = 2 };
enum { LATHE_MAX_FIELDS = 16 }; /* different fields that a dataset's columns are made of */

typedef struct lathe_layout {
    lathe_format columns[LATHE_N_COLUMNS]; /* no parts: the column is not read */
    /* Only for the known layout. Bit f of `needs`: records with this layout have field f; bit f of
     * `others`: they do not have it. */
    uint32_t needs, others;
} lathe_layout;

typedef struct lathe_layouts {
    lathe_layout list[LATHE_N_LAYOUTS];
    int32_t n; /* 1: there is no known layout */
    int32_t n_fields;
    int32_t messages;  /* the field of conversations; -1: they are not read */
    int32_t is_prompt; /* 1: a conversation is the prompt of the completions, never the record */
    int32_t sharegpt;  /* their field in sharegpt records; -1: the dataset names another one */
    int32_t system;    /* the field of the system message of texts that become messages; -1: none */
    int32_t main;      /* the first field of the column that the rows are made of; -1: none */
    const char *fields[LATHE_MAX_FIELDS];   /* names of all fields that are read */
    int32_t inputs[LATHE_MAX_STAGE_INPUTS]; /* fields of the stage's inputs (dataset.h) */
    /* Fields that are read instead where a record lacks those; -1: none. */
    int32_t other_inputs[LATHE_MAX_STAGE_INPUTS];
    uint8_t need[LATHE_N_COLUMNS];      /* LATHE_COLUMN_UNUSED, ... (row_kind.h) */
    uint8_t is_format[LATHE_N_COLUMNS]; /* 1: the own layout has a format for it */
    lathe_arena arena;
} lathe_layouts;

/** Finds the layouts of a dataset. Borrows its names. LATHE_E_CONFIG: those of
 *  lathe_layouts_check. Call fini also after an error. */
lathe_status lathe_layouts_init(lathe_layouts *layouts, const lathe_dataset *dataset, int32_t rows);
void lathe_layouts_fini(lathe_layouts *layouts);

/** Checks the dataset's columns and formats: braces, a column that is given twice, a text without
 *  fields, too many fields, a column that neither the rows nor the stage's inputs have.
 *  LATHE_E_CONFIG: out_inner is then the key in the dataset's table that
 *  is wrong, "format.prompt". */
lathe_status lathe_layouts_check(const lathe_dataset *dataset, int32_t rows, char out_inner[64]);

/** The layout of a record or header. Bit f of `found` says whether it has fields[f], and bit f of
 *  `filled` whether that is not null. */
int32_t lathe_layouts_choose(const lathe_layouts *layouts, uint32_t found, uint32_t filled);

/** Records that a record or header has no field for a part of column c. list:
 * the fields that it has, "a, b". */
lathe_status lathe_layouts_missing(const lathe_layouts *layouts, int32_t c,
                                   const lathe_format_part *part, const char *list);

/** Describes the known layout, for a note: "alpaca records: prompt from instruction and input, ..."
 */
const char *lathe_layout_known_text(int32_t rows);

#endif

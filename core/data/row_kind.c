/* The table of row kinds. */
#include "data/row_kind.h"

static const lathe_row_kind kinds[] = {
    [LATHE_ROWS_PACKED] = {.record = "document",
                           .records = "documents",
                           .columns = "text",
                           .n_segments = 1,
                           .need = {[LATHE_COLUMN_TEXT] = LATHE_COLUMN_REQUIRED}},
    [LATHE_ROWS_PAIRS] = {.record = "pair",
                          .records = "pairs",
                          .columns = "prompt, chosen, rejected",
                          .n_segments = 3,
                          .is_padded = 1,
                          .has_lines = 1,
                          .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_OPTIONAL,
                                   [LATHE_COLUMN_CHOSEN] = LATHE_COLUMN_REQUIRED,
                                   [LATHE_COLUMN_REJECTED] = LATHE_COLUMN_REQUIRED}},
    [LATHE_ROWS_COMPLETIONS] = {.record = "example",
                                .records = "examples",
                                .columns = "prompt, completion",
                                .n_segments = 1,
                                .is_masked = 1,
                                .has_lines = 1,
                                .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_OPTIONAL,
                                         [LATHE_COLUMN_COMPLETION] = LATHE_COLUMN_REQUIRED}},
};
_Static_assert(sizeof kinds / sizeof *kinds == LATHE_N_ROW_KINDS, "one entry per kind of rows");

const lathe_row_kind *lathe_row_kind_get(int32_t rows)
{
    return &kinds[rows];
}

int32_t lathe_row_kind_need(int32_t rows, const lathe_dataset *dataset, int32_t column)
{
    const int32_t need = kinds[rows].need[column];
    const int is_given = dataset->columns[column] || dataset->formats[column];
    return need == LATHE_COLUMN_OPTIONAL && is_given ? LATHE_COLUMN_REQUIRED : need;
}

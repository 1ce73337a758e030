/* The table of row kinds. */
#include "records/row_kind.h"

static const lathe_row_kind kinds[] = {
    [LATHE_ROWS_PACKED] = {.record = "document",
                           .records = "documents",
                           .columns = "text, or messages",
                           .n_segments = 1,
                           .n_rows = 1,
                           .main = LATHE_COLUMN_TEXT,
                           .need = {[LATHE_COLUMN_TEXT] = LATHE_COLUMN_REQUIRED}},
    [LATHE_ROWS_PAIRS] = {.record = "pair",
                          .records = "pairs",
                          .columns = "prompt, chosen, rejected",
                          .n_segments = 3,
                          .n_rows = 2,
                          .is_padded = 1,
                          .has_lines = 1,
                          .main = -1,
                          .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_OPTIONAL,
                                   [LATHE_COLUMN_CHOSEN] = LATHE_COLUMN_REQUIRED,
                                   [LATHE_COLUMN_REJECTED] = LATHE_COLUMN_REQUIRED}},
    [LATHE_ROWS_COMPLETIONS] = {.record = "example",
                                .records = "examples",
                                .columns = "prompt and completion, or messages",
                                .n_segments = 1,
                                .n_rows = 1,
                                .is_masked = 1,
                                .has_lines = 1,
                                .main = LATHE_COLUMN_COMPLETION,
                                .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_OPTIONAL,
                                         [LATHE_COLUMN_COMPLETION] = LATHE_COLUMN_REQUIRED}},
    [LATHE_ROWS_UNPAIRED] =
        {.record = "example",
         .records = "examples",
         .columns = "prompt and completion, or messages, and the columns of its inputs",
         .n_segments = 2,
         .n_rows = 2,
         .is_padded = 1,
         .has_lines = 1,
         .main = LATHE_COLUMN_COMPLETION,
         .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_REQUIRED,
                  [LATHE_COLUMN_COMPLETION] = LATHE_COLUMN_REQUIRED}},
    [LATHE_ROWS_PROMPTS] = {.record = "prompt",
                            .records = "prompts",
                            .columns = "prompt, or messages",
                            .n_segments = 1,
                            .n_rows = 1,
                            .is_padded = 1,
                            .has_lines = 1,
                            .has_records = 1,
                            .main = LATHE_COLUMN_PROMPT,
                            .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_REQUIRED}},
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

int32_t lathe_stage_columns(const lathe_stage_v1 *stage,
                            lathe_stage_input out[LATHE_MAX_STAGE_INPUTS])
{
    int32_t n = 0;
    for (int32_t i = 0; LATHE_HAS(stage, inputs) && i < stage->n_inputs; i++)
        if (stage->inputs[i].source == LATHE_INPUT_COLUMN)
            out[n++] = stage->inputs[i];
    return n;
}

/* The table of row kinds. */
#include "data/records/row_kind.h"

static const int32_t pair_answers[] = {LATHE_COLUMN_CHOSEN, LATHE_COLUMN_REJECTED};
static const int32_t one_answer[] = {LATHE_COLUMN_COMPLETION};

static const lathe_row_kind kinds[LATHE_N_ROW_KINDS] = {
    [LATHE_ROWS_PACKED] = {.record = "document",
                           .records = "documents",
                           .columns = "text, or messages",
                           .n_segments = 1,
                           .main = LATHE_COLUMN_TEXT,
                           .need = {[LATHE_COLUMN_TEXT] = LATHE_COLUMN_REQUIRED}},
    [LATHE_ROWS_PAIRS] = {.record = "pair",
                          .records = "pairs",
                          .columns = "prompt, chosen, rejected",
                          .n_segments = 3,
                          .n_answers = 2,
                          .answers = pair_answers,
                          .all_equal = "chosen and rejected are the same text",
                          .has_lines = 1,
                          .main = -1,
                          .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_OPTIONAL,
                                   [LATHE_COLUMN_CHOSEN] = LATHE_COLUMN_REQUIRED,
                                   [LATHE_COLUMN_REJECTED] = LATHE_COLUMN_REQUIRED}},
    [LATHE_ROWS_COMPLETIONS] = {.record = "example",
                                .records = "examples",
                                .columns = "prompt and completion, or messages",
                                .n_segments = 1,
                                .n_answers = 1,
                                .answers = one_answer,
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
         .n_answers = 1,
         .answers = one_answer,
         .has_lines = 1,
         .main = LATHE_COLUMN_COMPLETION,
         .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_REQUIRED,
                  [LATHE_COLUMN_COMPLETION] = LATHE_COLUMN_REQUIRED}},
    [LATHE_ROWS_PROMPTS] = {.record = "prompt",
                            .records = "prompts",
                            .columns = "prompt, or messages",
                            .n_segments = 1,
                            .has_lines = 1,
                            .has_records = 1,
                            .main = LATHE_COLUMN_PROMPT,
                            .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_REQUIRED}},
};

#define GROUP(n)                                                                                   \
    [n] = {.record = "group",                                                                      \
           .records = "groups",                                                                    \
           .columns = "prompt and completions, a list of " #n " answers",                          \
           .n_segments = 1 + (n),                                                                  \
           .n_answers = (n),                                                                       \
           .all_equal = "all answers are the same text",                                           \
           .has_lines = 1,                                                                         \
           .main = -1,                                                                             \
           .need = {[LATHE_COLUMN_PROMPT] = LATHE_COLUMN_OPTIONAL,                                 \
                    [LATHE_COLUMN_COMPLETIONS] = LATHE_COLUMN_REQUIRED}}
static const lathe_row_kind groups[LATHE_MAX_ANSWERS + 1] = {
    GROUP(2),  GROUP(3),  GROUP(4),  GROUP(5),  GROUP(6),  GROUP(7),  GROUP(8), GROUP(9),
    GROUP(10), GROUP(11), GROUP(12), GROUP(13), GROUP(14), GROUP(15), GROUP(16)};
_Static_assert(LATHE_MAX_ANSWERS == 16, "a kind for each number of answers");

const lathe_row_kind *lathe_row_kind_get(int32_t rows)
{
    return lathe_rows_kind(rows) == LATHE_ROWS_GROUPS
               ? &groups[lathe_row_shape_get(rows)->n_answers]
               : &kinds[rows];
}

int32_t lathe_row_kind_need(int32_t rows, const lathe_dataset *dataset, int32_t column)
{
    const int32_t need = lathe_row_kind_get(rows)->need[column];
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

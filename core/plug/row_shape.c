/* The table of row shapes. */
#include "plug/row_shape.h"

enum { KINDS = 256 }; /* rows of groups are the kind plus KINDS times the number of answers */

static const lathe_row_shape shapes[LATHE_N_ROW_KINDS] = {
    [LATHE_ROWS_PACKED] = {.n_rows = 1},
    [LATHE_ROWS_PAIRS] = {.n_rows = 2, .n_answers = 2, .is_padded = 1, .compares = 1},
    [LATHE_ROWS_COMPLETIONS] = {.n_rows = 1},
    [LATHE_ROWS_UNPAIRED] =
        {.n_rows = 2, .n_answers = 1, .is_padded = 1, .mixes = 1, .compares = 1},
    [LATHE_ROWS_PROMPTS] = {.n_rows = 1, .is_padded = 1},
};

#define GROUP(n) [n] = {.n_rows = (n), .n_answers = (n), .is_padded = 1, .compares = 1}
static const lathe_row_shape groups[LATHE_MAX_ANSWERS + 1] = {
    GROUP(2),  GROUP(3),  GROUP(4),  GROUP(5),  GROUP(6),  GROUP(7),  GROUP(8), GROUP(9),
    GROUP(10), GROUP(11), GROUP(12), GROUP(13), GROUP(14), GROUP(15), GROUP(16)};
_Static_assert(LATHE_MAX_ANSWERS == 16, "a shape for each number of answers");

int32_t lathe_rows_of_group(int32_t n_answers)
{
    return LATHE_ROWS_GROUPS + KINDS * n_answers;
}

int32_t lathe_rows_of(const lathe_stage_v1 *stage)
{
    if (stage == NULL)
        return LATHE_ROWS_PACKED;
    return stage->rows == LATHE_ROWS_GROUPS ? lathe_rows_of_group(stage->n_answers) : stage->rows;
}

int32_t lathe_rows_kind(int32_t rows)
{
    return rows % KINDS;
}

int lathe_rows_valid(int32_t rows)
{
    const int32_t kind = rows % KINDS, n = rows / KINDS;
    if (rows < 0 || kind >= LATHE_N_ROW_KINDS)
        return 0;
    return kind == LATHE_ROWS_GROUPS ? n >= 2 && n <= LATHE_MAX_ANSWERS : n == 0;
}

const lathe_row_shape *lathe_row_shape_get(int32_t rows)
{
    return rows < KINDS ? &shapes[rows] : &groups[rows / KINDS];
}

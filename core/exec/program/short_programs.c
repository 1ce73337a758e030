/* Chooses among the programs for short rows. */
#include "exec/program/short_programs.h"

enum { GRAIN = 64 }; /* products of fewer rows run at a lower rate */

int32_t lathe__short_lengths(int64_t row_tokens, int64_t out[LATHE_MAX_SHORT])
{
    const int64_t part = (row_tokens + LATHE_MAX_SHORT) / (LATHE_MAX_SHORT + 1);
    const int64_t step = (part + GRAIN - 1) / GRAIN * GRAIN;
    int32_t n = 0;
    for (int64_t length = step; length < row_tokens; length += step)
        out[n++] = length;
    return n;
}

lathe_program *lathe__short_rows_pick(lathe_programs *programs, lathe_program *whole,
                                      int64_t longest)
{
    lathe_short_programs *shorter = &programs->shorter;
    lathe_program *of = whole == &programs->train  ? shorter->train
                        : whole == &programs->eval ? shorter->eval
                                                   : NULL;
    if (!of || shorter->n == 0)
        return whole;
    for (int32_t i = 0; i < shorter->n; i++)
        if (of[i].exec && of[i].row_tokens >= longest)
            return &of[i];
    return whole;
}

/* Builds the programs for short rows. */
#include "run/parts/short_rows.h"
#include "run/parts/run_parts.h"

#include "data/records/row_kind.h"
#include "run/parts/curvature_check.h"

lathe_status lathe__short_rows_build(lathe_run *run, int32_t evaluates)
{
    lathe_short_programs *shorter = &run->programs.shorter;
    lathe_program_config config = lathe__run_program_config(run);
    int64_t lengths[LATHE_MAX_SHORT] = {0};
    const lathe_stage_v1 *stage = config.stage ? config.stage->table : NULL;
    run->programs.are_padded = lathe_row_shape_get(lathe_rows_of(stage))->is_padded;
    if (!run->programs.are_padded || run->programs.offloads || lathe__curvature_every(run) > 0)
        return LATHE_OK;
    shorter->n = lathe__short_lengths(run->set.seq_len, lengths);
    for (int32_t i = 0; i < shorter->n; i++) {
        config.row_tokens = lengths[i];
        if (lathe__run_has_step(run))
            LATHE_TRY(lathe_program_build(&config, LATHE_PROGRAM_TRAIN, &shorter->train[i]));
        if (evaluates)
            LATHE_TRY(lathe_program_build(&config, LATHE_PROGRAM_EVAL, &shorter->eval[i]));
    }
    return LATHE_OK;
}

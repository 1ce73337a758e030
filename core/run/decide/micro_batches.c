/* Divides the rows of a step into smaller micro-batches. */
#include "run/decide/micro_batches.h"

#include "config/config.h"
#include "plug/row_shape.h"

enum { MAX_MICRO_BATCHES = 1000000 }; /* of a step: their number stays in 32 bits */

int32_t lathe_micro_batches_may_split(const lathe_run *run, lathe_micro_batches batch)
{
    const lathe_component *stage = lathe_config_part(run->config, LATHE_KIND_STAGE)->component;
    const lathe_stage_v1 *table = stage ? stage->plugin->table : NULL;
    return batch.rows > 1 && (int64_t)batch.rows * batch.n <= MAX_MICRO_BATCHES &&
           !lathe__run_takes_batches(run) &&
           (table == NULL ||
            (!lathe_row_shape_get(lathe_rows_of(table))->mixes && !LATHE_HAS(table, iterate)));
}

lathe_micro_batches lathe_micro_batches_of(lathe_micro_batches batch, int32_t rows)
{
    return (lathe_micro_batches){.rows = rows, .n = batch.n * (batch.rows / rows)};
}

int32_t lathe_micro_batches_next(lathe_micro_batches batch, int32_t below)
{
    int32_t rows = below - 1;
    while (rows > 0 && batch.rows % rows != 0)
        rows--;
    return rows;
}

void lathe_micro_batches_put(lathe_micro_batches batch, int32_t trains, int32_t by,
                             lathe_edits *out)
{
    lathe_edits_int(out, by, "train.micro_batch_size", batch.rows);
    if (trains)
        lathe_edits_int(out, by, "train.gradient_accumulation_steps", batch.n);
}

/* Describes the data of a run. */
#include "run/api/data_view.h"

#include "plug/row_shape.h"
#include "run/parts/iteration.h"
#include "run/state/run_state.h"

static lathe_status read_sets(lathe_run *run, const char *key, lathe_data_split *out)
{
    lathe_dataset *list = NULL;
    LATHE_TRY(lathe_datasets_read(run->config, key, &run->arena, &list, &out->n_datasets));
    out->datasets = list;
    out->is_own = 1;
    return LATHE_OK;
}

lathe_status lathe_run_data_view(lathe_run *run, lathe_data_view *out)
{
    const lathe_stage_v1 *stage = run->parts.stage.table;
    const lathe_run_data *data = &run->data;
    *out = (lathe_data_view){.training = {.loader = data->loader, .shards = data->shards},
                             .validation = {.loader = data->validation,
                                            .shards = data->validation_shards != NULL
                                                          ? data->validation_shards
                                                          : data->shards},
                             .tokenizer = data->tokenizer,
                             .inputs = data->inputs,
                             .n_inputs = data->n_columns,
                             .rows = lathe_rows_of(stage),
                             .packing = lathe_packing(run->set.packing, lathe_rows_of(stage)),
                             .overlong = run->set.overlong,
                             .row_tokens = run->set.seq_len,
                             .n_rows = run->set.micro_batch_size,
                             .n_micro = run->set.gradient_accumulation_steps,
                             .is_masked = data->objective.stage.kind == LATHE_OBJECTIVE_MASKED,
                             .is_iterated = lathe__run_iterates(run)};
    LATHE_TRY(read_sets(run, "datasets", &out->training));
    return data->validation_shards != NULL ? read_sets(run, "validation", &out->validation)
                                           : LATHE_OK;
}

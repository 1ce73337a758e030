/* Provides the parts of a run that functions of lower rooms take together. */
#include "run/state/run_saved.h"

#include "parallel/islands/island_files.h"

const lathe_saved_state *lathe__run_saved(lathe_run *run)
{
    const lathe_settings *s = &run->set;
    run->saved = (lathe_saved_state){
        .arena = &run->arena,
        .config = run->config,
        .set = &s->checkpoint,
        .model_path = s->model_path,
        .model_seed = s->model_seed,
        .seed = s->seed,
        .max_steps = s->max_steps,
        .precision = s->precision,
        .compute_dtype = s->compute_dtype,
        .fp8 = s->fp8,
        .loss_scale_init = s->loss_scale_init,
        .spike_window = s->spike_window,
        .average = s->weight_average,
        .trains = lathe__run_trains(run),
        .merges = s->merge_every > 0 && lathe__run_has_step(run),
        .plans = lathe__run_has_step(run),
        .data_is_optional = lathe__run_takes_batches(run),
        .parts = &run->parts,
        .model = &run->model,
        .params = &run->params,
        .machine = &run->machine,
        .store = &run->store,
        .programs = &run->programs,
        .opt = &run->opt,
        .data = &run->data,
        .at = &run->at,
        .sum = &run->sum,
        .loads = &run->loads,
        .stage_state = &run->iteration.state,
        .checkpoints = &run->checkpoints,
        .extra = run->outer ? &run->outer->extra : NULL,
    };
    return &run->saved;
}

lathe_averaging lathe__run_averaging(lathe_run *run)
{
    const lathe_settings *s = &run->set;
    return (lathe_averaging){
        .kind = s->weight_average,
        .decay = s->weight_average_decay,
        .start = s->weight_average_start,
        .every = s->weight_average_every,
        .seed = s->seed,
        .optimizer = &run->parts.optimizer,
        .machine = &run->machine,
        .store = &run->store,
        .opt = &run->opt,
        .programs = &run->programs,
        .step = &run->at.step,
        .skipped = &run->at.skipped,
        .averaged = &run->at.averaged,
    };
}

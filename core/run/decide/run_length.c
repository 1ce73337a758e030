/* Computes the length of a run from its position in the data. */
#include "run/decide/run_length.h"

void lathe__run_follow_cursor(lathe_run *run)
{
    const lathe_loader *loader = run->data.loader;
    const int64_t per_step = run->set.gradient_accumulation_steps;
    int64_t step = run->at.step;
    if (run->data.n_wanted == 0 || loader == NULL)
        return;
    int64_t left = lathe_loader_batches_of(
        loader, run->data.n_wanted - lathe_loader_passed(loader, &run->at.cursor));
    if (run->sum.backwards > 0) { /* the checkpoint is in the middle of a step, which is ended */
        const int64_t rest = per_step - run->sum.backwards;
        left -= rest > 0 ? rest : 0;
        step++;
    }
    run->set.max_steps = step + (left > 0 ? (left + per_step - 1) / per_step : 0);
}

void lathe__run_count_epochs(lathe_run *run)
{
    if (run->set.max_steps > 0 || run->data.loader == NULL)
        return;
    run->data.n_wanted = lathe_loader_rows_of(run->data.loader, run->set.epochs);
    lathe__run_follow_cursor(run);
}

double lathe__run_epoch(const lathe_run *run)
{
    const lathe_cursor *at = &run->at.cursor;
    return (double)at->epoch +
           (at->rows_per_epoch > 0 ? (double)at->index / (double)at->rows_per_epoch : 0.0);
}

int64_t lathe__run_step_rows(const lathe_run *run)
{
    return lathe_loader_batch_rows(run->data.loader) * run->set.gradient_accumulation_steps;
}

/* Implements save and load of the C API, and resuming. */
#include "run/api/save_load.h"

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/state/checkpoint.h"
#include "parallel/islands/island_files.h"
#include "parallel/ranks/extents.h"
#include "run/decide/run_length.h"
#include "run/parts/run_parts.h"
#include "run/resume/resume_check.h"
#include "run/state/run_saved.h"

static lathe_status accept(void *run, const char *dir)
{
    return lathe__resume_check_loaded(run, dir);
}

lathe_status lathe__run_resume(lathe_run *run, const char **out_path)
{
    LATHE_TRY(lathe_checkpoint_resume(lathe__run_saved(run), accept, run, out_path));
    lathe__run_follow_cursor(run);
    return run->checkpoints.weights_wait ? lathe__run_weights(run) : LATHE_OK;
}

/* Fills this rank's part of the average. */
static lathe_status fill(void *arg)
{
    const lathe_averaging average = lathe__run_averaging(arg);
    return lathe_average_fill(&average);
}

lathe_status lathe__run_fill_averages(lathe_run *run)
{
    const lathe_peers *peers = run->store.peers;
    LATHE_TRY(fill(run));
    return peers && lathe_optimizer_averages(&run->parts.optimizer)
               ? peers->fill_averages(peers->arg)
               : LATHE_OK;
}

/* How ranks serve rank 0; NULL: it needs nothing of them. */
static const lathe_serving *serving_of(const lathe_run *run)
{
    if (run->outer)
        return &run->outer->serving;
    return run->extents ? lathe_extents_serving(run->extents) : NULL;
}

/* Waits for all ranks of the group; NULL: there are no others. */
static lathe_status meet(lathe_ranks *ranks)
{
    const double here = 0.0;
    return ranks ? lathe_ranks_gather(ranks, &here, 1, 1, NULL) : LATHE_OK;
}

lathe_status lathe__run_meet(const lathe_run *run)
{
    return meet(run->ranks);
}

lathe_status lathe__run_meet_island(const lathe_run *run)
{
    return meet(run->layout ? run->layout->island : run->ranks);
}

int32_t lathe__run_serves(const lathe_run *run)
{
    return (run->ranks || serving_of(run)) && run->programs.rank > 0;
}

lathe_status lathe__run_serve(lathe_run *run)
{
    const lathe_serving *serving = serving_of(run);
    return serving ? lathe_serving_serve(serving, fill, run) : meet(run->ranks);
}

lathe_status lathe__run_release(lathe_run *run)
{
    const lathe_serving *serving = serving_of(run);
    if (run->extents)
        lathe_extents_lead(run->extents, 0);
    return serving ? lathe_serving_release(serving) : meet(run->ranks);
}

lathe_status lathe_save(lathe_run *run, const char *dir)
{
    if (!run->placed)
        return lathe_error(LATHE_E_STATE, "the run has no weights to save");
    if (!lathe__run_trains(run)) /* its store holds no masters, and no state of an optimizer */
        return lathe_error(LATHE_E_STATE,
                           "%s: the run was not opened for training, so it has no state to save: "
                           "lathe merge and lathe convert write models",
                           dir);
    if (lathe__run_serves(run))
        return lathe__run_serve(run);
    if (lathe_path_exists(dir))
        return lathe_error(LATHE_E_IO, "%s: exists already", dir);
    LATHE_TRY(lathe__checkpoint_know_plugins(lathe__run_saved(run)));
    LATHE_TRY(lathe__run_fill_averages(run));
    LATHE_TRY(lathe_checkpoint_save(lathe__run_saved(run), NULL, 0, dir));
    return lathe__run_release(run);
}

lathe_status lathe_load(lathe_run *run, const char *dir)
{
    if (!run->placed)
        return lathe_error(LATHE_E_STATE, "the run has no memory to load into");
    const lathe_status status = lathe_checkpoint_load(lathe__run_saved(run), dir);
    if (status == LATHE_E_SHAPE || status == LATHE_E_NOT_FOUND)
        return lathe_error_context(status, "%s is no checkpoint of this run's model and adapter",
                                   dir);
    LATHE_TRY(status);
    lathe__run_follow_cursor(run);
    return LATHE_OK;
}

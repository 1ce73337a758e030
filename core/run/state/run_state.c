/* Questions about a run: what it is for, and what its parts answer. */
#include "run/state/run_state.h"

#include "lathe/stage.h"

int32_t lathe__run_iterates(const lathe_run *run)
{
    const lathe_stage_v1 *stage =
        run->parts.stage.component != NULL ? run->parts.stage.table : NULL;
    return LATHE_HAS(stage, iterate);
}

int32_t lathe__run_takes_batches(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_BATCHES;
}

int32_t lathe__run_is_dry(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_DRY_RUN;
}

int32_t lathe__run_is_unmade(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_CHECK_UNMADE;
}

int32_t lathe__run_is_offline(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_CHECK_ELSEWHERE || lathe__run_is_unmade(run);
}

int32_t lathe__run_trains(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_TRAIN || run->open.wants == LATHE_OPEN_CHECK ||
           lathe__run_takes_batches(run) || lathe__run_is_dry(run) || lathe__run_is_offline(run);
}

int32_t lathe__run_calibrates(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_QUANTIZE;
}

int32_t lathe__run_only_plans(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_PLAN || lathe__run_calibrates(run);
}

int32_t lathe__run_has_step(const lathe_run *run)
{
    return lathe__run_trains(run) || lathe__run_only_plans(run);
}

int32_t lathe__run_generates(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_INFER;
}

int32_t lathe__run_only_reads_weights(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_WEIGHTS;
}

int32_t lathe__run_infers(const lathe_run *run)
{
    return lathe__run_generates(run) || lathe__run_only_reads_weights(run);
}

int32_t lathe__run_makes_logprobs(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_LOGPROBS;
}

int32_t lathe__run_evaluates(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_EVALUATE || lathe__run_makes_logprobs(run);
}

int32_t lathe__run_only_reads_data(const lathe_run *run)
{
    return run->open.wants == LATHE_OPEN_DATA;
}

int32_t lathe__run_joins(const lathe_run *run)
{
    return !run->open.is_trial && (run->open.wants == LATHE_OPEN_TRAIN || lathe__run_is_dry(run) ||
                                   lathe__run_takes_batches(run));
}

int32_t lathe__run_is_of_file(const lathe_run *run)
{
    return run->open.path != NULL || lathe__run_trains(run);
}

int32_t lathe__run_reads_datasets(const lathe_run *run)
{
    return run->set.validation == NULL || !lathe__run_evaluates(run) ||
           lathe__run_makes_logprobs(run);
}

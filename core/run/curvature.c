/* Makes curvature estimates. */
#include "run/curvature.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/trace.h"

int64_t lathe__curvature_every(const lathe_run *run)
{
    if (run->open.mode > LATHE_OPEN_TRAIN || !run->parts.optimizer.component)
        return 0;
    const lathe_optimizer_v1 *table = run->parts.optimizer.table;
    const int64_t every =
        LATHE_HAS(table, estimate_every) ? table->estimate_every(run->parts.optimizer.self) : 0;
    return every > 0 ? every : 0;
}

static lathe_status refuse(const lathe_run *run, const char *why)
{
    return lathe__run_refuse(
        run, "optimizer", "name",
        "optimizer \"%s\" estimates curvature from labels that the model draws; %s",
        run->parts.optimizer.component->plugin->name, why);
}

/* `unit`: what the loss is over instead. */
static lathe_status refuse_stage(const lathe_run *run, const char *unit)
{
    char why[256];
    (void)snprintf(why, sizeof why,
                   "stage \"%s\" has none (its loss is over %s): choose another optimizer",
                   run->parts.stage.component->plugin->name, unit);
    return refuse(run, why);
}

lathe_status lathe__curvature_check_stage(const lathe_run *run)
{
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    if (lathe__curvature_every(run) == 0 || !stage || stage->rows != LATHE_ROWS_PAIRS)
        return LATHE_OK;
    return refuse_stage(run, "pairs");
}

lathe_status lathe__curvature_build(lathe_run *run)
{
    const lathe_optimizer_v1 *table = run->parts.optimizer.table;
    const lathe_program_config config = lathe__run_program_config(run);
    if (!LATHE_HAS(table, estimate))
        return lathe_error(LATHE_E_PLUGIN,
                           "optimizer %s wants curvature estimates but has no estimate()",
                           run->parts.optimizer.component->plugin->name);
    if (run->programs.train.stage.count_unit == LATHE_COUNT_PAIRS ||
        run->programs.train.logprobs == LATHE_NONE)
        return refuse_stage(run, run->programs.train.stage.count_unit == LATHE_COUNT_PAIRS
                                     ? "pairs"
                                     : "no log-probabilities of the model");
    return lathe_program_build(&config, LATHE_PROGRAM_SAMPLE, &run->programs.sampling);
}

lathe_status lathe__curvature_prepared(const lathe_run *run, lathe_status status)
{
    char why[512];
    if (status != LATHE_E_UNSUPPORTED)
        return status;
    (void)snprintf(why, sizeof why, "device \"%s\" cannot draw them: %s",
                   run->parts.device.component->plugin->name, lathe_error_message());
    return refuse(run, why);
}

static void copy_input(lathe_run *run, lathe_val to, lathe_val from)
{
    const lathe_program *p = &run->programs.train;
    memcpy(lathe_exec_input(run->programs.sampling.exec, to), lathe_exec_input(p->exec, from),
           (size_t)(p->n_rows * p->row_tokens) * sizeof(int32_t));
}

/* Draws labels for the batch in the inputs of the training program, and replaces its targets with
 * them. */
static lathe_status draw(lathe_run *run, int64_t step, double *out_count)
{
    const lathe_program *t = &run->programs.train, *s = &run->programs.sampling;
    const int64_t n = t->n_rows * t->row_tokens;
    LATHE_TRY(lathe_exec_next_inputs(s->exec));
    copy_input(run, s->tokens, t->tokens);
    copy_input(run, s->positions, t->positions);
    copy_input(run, s->doc_start, t->doc_start);
    copy_input(run, s->targets, t->targets);
    if (s->rng != LATHE_NONE && t->rng != LATHE_NONE)
        memcpy(lathe_exec_input(s->exec, s->rng), lathe_exec_input(t->exec, t->rng),
               2 * sizeof(int64_t));
    int64_t *key = lathe_exec_input(s->exec, s->draw);
    key[0] = (int64_t)run->set.seed;
    key[1] = step;
    const void *drawn = NULL;
    LATHE_TRY(lathe_exec_send(s->exec));
    LATHE_TRY(lathe_exec_run(s->exec, 0));
    LATHE_TRY(lathe_exec_fetch(s->exec, s->sampled, &drawn));
    const int32_t *sampled = drawn;
    memcpy(lathe_exec_input(t->exec, t->targets), sampled, (size_t)n * sizeof *sampled);
    *out_count = 0.0;
    for (int64_t i = 0; i < n; i++)
        *out_count += sampled[i] >= 0;
    return LATHE_OK;
}

static lathe_status estimate(lathe_run *run, const lathe_update_args *step)
{
    lathe_update_args args = *step;
    LATHE_TRY(draw(run, step->step, &args.count));
    if (args.count <= 0.0) {
        lathe_log(LATHE_LOG_WARN,
                  "update %lld: its last micro-batch has no targets, its curvature "
                  "is not estimated",
                  (long long)step->step);
        return LATHE_OK;
    }
    float *seed = lathe_exec_input(run->programs.train.exec, run->programs.train.seed);
    *seed = (float)step->loss_scale;
    LATHE_TRY(lathe_exec_send(run->programs.train.exec));
    LATHE_TRY(lathe_exec_run(run->programs.train.exec, 0));
    LATHE_TRY(lathe_update_estimate(run->opt.update, &args));
    if (args.overflow)
        lathe_log(LATHE_LOG_WARN,
                  "update %lld: the gradient of drawn labels is not finite, its "
                  "curvature is not estimated",
                  (long long)step->step);
    return LATHE_OK;
}

lathe_status lathe__curvature_estimate(lathe_run *run, const lathe_update_args *args)
{
    const int64_t every = run->programs.sampling.exec ? lathe__curvature_every(run) : 0;
    if (every == 0 || args->overflow || (args->step - 1) % every != 0)
        return LATHE_OK;
    if (!run->programs.has_batch)
        return lathe_error(
            LATHE_E_STATE,
            "update %lld wants a curvature estimate of its last micro-batch, which the "
            "checkpoint does not hold",
            (long long)args->step);
    double seconds[3];
    const double begun = lathe_now();
    /* the time of an estimate counts as the optimizer's */
    lathe_exec_times(run->programs.train.exec, seconds);
    const lathe_status status = estimate(run, args);
    lathe_exec_times_put(run->programs.train.exec, seconds);
    if (run->trace.is_on)
        lathe_trace_since("step", "curvature", begun);
    return status;
}

double lathe_curvature_flops(const lathe_run *run)
{
    const int64_t every = run->programs.sampling.exec ? lathe__curvature_every(run) : 0;
    if (every == 0)
        return 0.0;
    return (lathe_graph_flops(lathe_exec_graph(run->programs.sampling.exec), 1) +
            lathe_graph_flops(lathe_exec_graph(run->programs.train.exec), 1)) /
           (double)every;
}

/* Makes curvature estimates. */
#include "optim/curvature.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/trace.h"
#include "graph/ir/flops.h"
#include "lathe/rng.h"

int64_t lathe_curvature_every(const lathe_instance *optimizer)
{
    const lathe_optimizer_v1 *table = optimizer->component ? optimizer->table : NULL;
    const int64_t every =
        LATHE_HAS(table, estimate_every) ? table->estimate_every(optimizer->self) : 0;
    return every > 0 ? every : 0;
}

static void copy_input(const lathe_programs *programs, lathe_val to, lathe_val from)
{
    const lathe_program *p = &programs->train;
    memcpy(lathe_exec_input(programs->sampling.exec, to), lathe_exec_input(p->exec, from),
           (size_t)(p->n_rows * p->row_tokens) * sizeof(int32_t));
}

/* Draws labels for the batch in the inputs of the training program, and replaces its targets with
 * them. */
static lathe_status draw(lathe_programs *programs, uint64_t seed, int64_t step, double *out_count)
{
    const lathe_program *t = &programs->train, *s = &programs->sampling;
    const int64_t n = t->n_rows * t->row_tokens;
    LATHE_TRY(lathe_exec_next_inputs(s->exec));
    copy_input(programs, s->tokens, t->tokens);
    copy_input(programs, s->positions, t->positions);
    copy_input(programs, s->doc_start, t->doc_start);
    copy_input(programs, s->targets, t->targets);
    if (t->key_end != LATHE_NONE)
        copy_input(programs, s->key_end, t->key_end);
    if (s->rng != LATHE_NONE && t->rng != LATHE_NONE)
        memcpy(lathe_exec_input(s->exec, s->rng), lathe_exec_input(t->exec, t->rng),
               LATHE_RNG_COUNTER * sizeof(int64_t));
    lathe_programs_counter(programs, s, s->draw, seed, step);
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

static lathe_status estimate(lathe_programs *programs, lathe_update *update,
                             const lathe_update_args *step)
{
    lathe_update_args args = *step;
    LATHE_TRY(draw(programs, step->seed, step->step, &args.count));
    if (args.count <= 0.0) {
        lathe_log(LATHE_LOG_WARN,
                  "update %lld: its last micro-batch has no targets, its curvature "
                  "is not estimated",
                  (long long)step->step);
        return LATHE_OK;
    }
    float *seed = lathe_exec_input(programs->train.exec, programs->train.seed);
    *seed = (float)step->loss_scale;
    LATHE_TRY(lathe_exec_send(programs->train.exec));
    LATHE_TRY(lathe_exec_run(programs->train.exec, 0));
    LATHE_TRY(lathe_update_estimate(update, &args));
    if (args.overflow)
        lathe_log(LATHE_LOG_WARN,
                  "update %lld: the gradient of drawn labels is not finite, its "
                  "curvature is not estimated",
                  (long long)step->step);
    return LATHE_OK;
}

lathe_status lathe_curvature_estimate(lathe_programs *programs, const lathe_instance *optimizer,
                                      lathe_update *update, const lathe_update_args *args,
                                      int32_t is_traced)
{
    const int64_t every = programs->sampling.exec ? lathe_curvature_every(optimizer) : 0;
    if (every == 0 || args->overflow || (args->step - 1) % every != 0)
        return LATHE_OK;
    if (!programs->has_batch)
        return lathe_error(LATHE_E_STATE,
                           "update %lld needs a curvature estimate of its last micro-batch, which "
                           "the checkpoint does not contain",
                           (long long)args->step);
    double seconds[3];
    const double begun = lathe_now();
    /* the time of an estimate is counted as optimizer time */
    lathe_exec_times(programs->train.exec, seconds);
    const lathe_status status = estimate(programs, update, args);
    lathe_exec_times_put(programs->train.exec, seconds);
    if (is_traced)
        lathe_trace_since("step", "curvature", begun);
    return status;
}

double lathe_curvature_flops(const lathe_programs *programs, const lathe_instance *optimizer)
{
    const int64_t every = programs->sampling.exec ? lathe_curvature_every(optimizer) : 0;
    if (every == 0)
        return 0.0;
    return (lathe_graph_flops(lathe_exec_graph(programs->sampling.exec), 1) +
            lathe_graph_flops(lathe_exec_graph(programs->train.exec), 1)) /
           (double)every;
}

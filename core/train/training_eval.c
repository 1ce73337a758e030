/* Evaluates during training, and passes the result on. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/trace.h"
#include "run/api/agree.h"
#include "run/state/run_saved.h"
#include "train/training.h"

void lathe__training_observe(lathe_run *run, double metric)
{
    const lathe_scheduler_v1 *scheduler = run->parts.scheduler.table;
    if (LATHE_HAS(scheduler, observe) && isfinite(metric)) /* a skipped step has no loss */
        scheduler->observe(run->parts.scheduler.self, metric, run->opt.base_lr,
                           run->at.scheduler_state);
}

/* Adds a figure, unless it has no meaning for the run. */
static void add_known(lathe_figures *f, const char *key, double value)
{
    if (!isnan(value))
        lathe__figures_add(f, key, value);
}

/* Warns, at the first evaluation, that checkpoint.best_metric names an evaluation figure that the
 * run does not report, so no checkpoint can be best. */
static void warn_of_missing_metric(const lathe_training *t, const char *metric)
{
    lathe_run *run = t->run;
    if (run->set.checkpoint.keep_best == 0 || run->checkpoints.warned_of_metric ||
        strncmp(metric, "eval_", 5) != 0)
        return;
    run->checkpoints.warned_of_metric = 1;
    lathe__run_warn(run, "checkpoint", "best_metric",
                    "checkpoint.keep_best keeps nothing: the evaluation after step %lld has no "
                    "figure %s; name one of those in metrics.jsonl",
                    (long long)run->at.step, metric);
}

/* Passes the metric that selects the best checkpoints to early stopping. */
static lathe_status observe_for_early_stopping(lathe_training *t)
{
    lathe_run *run = t->run;
    const char *metric =
        run->set.checkpoint.best_metric ? run->set.checkpoint.best_metric : "eval_loss";
    const lathe_figures *f = &t->figures;
    for (int32_t i = 0; i < f->n; i++)
        if (strcmp(f->keys[i], metric) == 0) {
            lathe_early_stop_observe(&run->at.early, f->values[i],
                                     run->set.checkpoint.best_is_higher,
                                     run->set.early_stopping_threshold);
            return LATHE_OK;
        }
    if (run->set.early_stopping_patience == 0) {
        warn_of_missing_metric(t, metric);
        return LATHE_OK;
    }
    return lathe_error(LATHE_E_CONFIG,
                       "train.early_stopping_patience goes by checkpoint.best_metric = \"%s\", and "
                       "step %lld has no such figure: name one of metrics.jsonl",
                       metric, (long long)run->at.step);
}

int32_t lathe__training_has_enough(lathe_training *t)
{
    const lathe_run *run = t->run;
    const int64_t patience = run->set.early_stopping_patience;
    t->result->stopped_early = patience > 0 && run->at.early.n_since >= patience;
    if (t->result->stopped_early)
        lathe_progress_note(&t->progress, 1,
                            "stopped early at step %lld: %lld evaluation%s without an improvement "
                            "on %s %.6g",
                            (long long)run->at.step, (long long)run->at.early.n_since,
                            run->at.early.n_since == 1 ? "" : "s",
                            run->set.checkpoint.best_metric ? run->set.checkpoint.best_metric
                                                            : "eval_loss",
                            run->at.early.best);
    return t->result->stopped_early;
}

/* lathe_work_watch.tell */
static lathe_status heed_stop(void *arg, int64_t n_done, int64_t n_all)
{
    const lathe_training *t = arg;
    (void)n_done, (void)n_all;
    return t->stop && *t->stop ? LATHE_E_INTERRUPTED : LATHE_OK;
}

/* Evaluates with the averaged weights if they differ from the trained ones.
 * LATHE_E_INTERRUPTED: the training is to stop. */
static lathe_status evaluate(lathe_training *t, lathe_evaluation *out)
{
    const lathe_work_watch watch = {heed_stop, t};
    lathe_run *run = t->run;
    const lathe_averaging average = lathe__run_averaging(run);
    LATHE_TRY(lathe_average_fill(&average));
    const int32_t apart = lathe_average_is_apart(&average);
    LATHE_TRY(apart ? lathe_average_swap(&average) : LATHE_OK);
    const lathe_status status = lathe_evaluate(run, run->set.eval_batches, &watch, out);
    const lathe_status back = apart ? lathe_average_swap(&average) : LATHE_OK;
    return status != LATHE_OK ? status : back;
}

/* Adds the stage's metrics as "eval_<name>". The keys are in the run's arena. */
static lathe_status add_metrics(lathe_training *t, const lathe_evaluation *e)
{
    for (int32_t k = 0; k < e->n_metrics; k++) {
        if (!t->eval_keys[k])
            t->eval_keys[k] = lathe_arena_printf(&t->run->arena, "eval_%s", e->metric_names[k]);
        if (!t->eval_keys[k])
            return LATHE_E_NOMEM;
        lathe__figures_add(&t->figures, t->eval_keys[k], e->metrics[k]);
    }
    return LATHE_OK;
}

/* Prints the figures that follow the loss in an evaluation's line. */
static void print_detail(const lathe_evaluation *e, char *text, size_t capacity)
{
    const char *unit = lathe_count_unit_name(e->count_unit);
    size_t n = 0;
    if (!isnan(e->perplexity))
        n += (size_t)snprintf(text, capacity, "perplexity %.2f  ", e->perplexity);
    for (int32_t k = 0; k < e->n_metrics && n < capacity; k++)
        if (!isnan(e->metrics[k]))
            n += (size_t)snprintf(text + n, capacity - n, "%s %.4g  ", e->metric_names[k],
                                  e->metrics[k]);
    if (n < capacity)
        (void)snprintf(text + n, capacity - n, "over %.0f %s", e->count, unit);
}

lathe_status lathe__training_evaluate(lathe_training *t, int32_t *out_stopped)
{
    lathe_run *run = t->run;
    const lathe_averaging average = lathe__run_averaging(run);
    lathe_evaluation e;
    char detail[1024];
    const double begin = lathe_now();
    const lathe_status status = evaluate(t, &e);
    lathe_trace_since("evaluation", "evaluation", begin);
    *out_stopped = status == LATHE_E_INTERRUPTED;
    if (*out_stopped)
        return LATHE_OK;
    LATHE_TRY(status);
    t->result->validation = e.loss;
    lathe__training_observe(run, e.loss);
    print_detail(&e, detail, sizeof detail);
    lathe_progress_validation(&t->progress, run->at.step, e.loss, detail,
                              lathe_average_is_apart(&average), run->at.step >= run->set.max_steps);
    lathe__figures_add(&t->figures, "eval_loss", e.loss);
    lathe__figures_add(&t->figures, "eval_count", e.count);
    add_known(&t->figures, "eval_perplexity", e.perplexity);
    add_known(&t->figures, "eval_token_accuracy", e.token_accuracy);
    add_known(&t->figures, "eval_bits_per_byte", e.bits_per_byte);
    add_known(&t->figures, "eval_ece", e.ece);
    LATHE_TRY(add_metrics(t, &e));
    return observe_for_early_stopping(t);
}

/* Evaluates the validation data. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/calibration.h"
#include "metrics/stage_metrics.h"
#include "optim/nonfinite.h"
#include "run/api/agree.h"
#include "train/run_trace.h"
#include "train/train.h"

/* Perplexity, accuracy and bits per byte exist only for a loss per token, not for a loss per
 * pair. */
static int32_t counts_tokens(const lathe_program *p)
{
    return p->stage.count_unit == LATHE_COUNT_TOKENS;
}

/* Records the most likely tokens of the batch just run. */
static lathe_status observe_tops(lathe_run *run, lathe_calibration *c)
{
    const lathe_program *p = run->programs.evaluated;
    const void *tops = NULL, *logprobs = NULL;
    if (!counts_tokens(p) || p->top == LATHE_NONE)
        return LATHE_OK;
    const int32_t *targets = lathe_exec_input(p->exec, p->targets);
    LATHE_TRY(lathe_exec_fetch(p->exec, p->top, &tops));
    LATHE_TRY(lathe_exec_fetch(p->exec, p->top_logprobs, &logprobs));
    for (int64_t i = 0; i < p->n_rows * p->row_tokens; i++)
        if (targets[i] >= 0)
            lathe_calibration_add(c, exp((double)((const float *)logprobs)[i]),
                                  ((const int32_t *)tops)[i] == targets[i]);
    return LATHE_OK;
}

static double bits_per_byte(const lathe_run *run, double loss)
{
    const lathe_stage_v1 *stage = run->parts.stage.table;
    const double tokens = (double)lathe_loader_tokens(run->data.validation);
    const double bytes = (double)lathe_loader_text_bytes(run->data.validation);
    if (!counts_tokens(&run->programs.eval) || bytes <= 0.0 ||
        run->programs.eval.objective != LATHE_OBJECTIVE_CAUSAL ||
        stage->rows != LATHE_ROWS_PACKED) /* targets are not all of the text */
        return (double)NAN;
    return loss / log(2.0) * tokens / bytes;
}

const char *lathe_count_unit_name(int32_t count_unit)
{
    return count_unit == LATHE_COUNT_PAIRS      ? "pairs"
           : count_unit == LATHE_COUNT_EXAMPLES ? "examples"
                                                : "targets";
}

/* Sums of an evaluation: of this rank, then of all. All members are doubles, because ranks add it
 * as an array of doubles. */
typedef struct eval_sums {
    double loss, count, metrics[LATHE_MAX_STAGE_METRICS];
    lathe_calibration calibration;
} eval_sums;

/* Evaluates one micro-batch of the validation data, number i from 0. */
static lathe_status add_batch(lathe_run *run, int64_t i, eval_sums *sums)
{
    const int32_t is_alone = lathe__run_evaluates(run);
    lathe_forward_result r = {.size = (uint32_t)sizeof r};
    if (is_alone) /* within a training, the steps are what counts */
        lathe_run_trace_step(run, i + 1);
    LATHE_TRY(lathe_forward(run, NULL, 0, &r));
    if (is_alone && !isfinite(r.loss_sum))
        return lathe_nonfinite_refuse(&run->machine, &run->store, run->set.compute_dtype,
                                      "the losses of micro-batch", i + 1);
    sums->loss += r.loss_sum;
    sums->count += r.count;
    const lathe_program *p = run->programs.evaluated;
    for (int32_t k = 0; k < p->stage.n_metrics; k++) {
        const void *value = NULL;
        LATHE_TRY(lathe_exec_fetch(p->exec, p->stage.metrics[k].sum, &value));
        sums->metrics[k] += (double)*(const float *)value;
    }
    return observe_tops(run, &sums->calibration);
}

static lathe_status fill_figures(const lathe_run *run, const eval_sums *sums, lathe_evaluation *out)
{
    out->count = sums->count;
    if (out->count <= 0.0)
        return lathe_error(LATHE_E_STATE, "the evaluation data holds no targets");
    out->loss = sums->loss / out->count;
    out->perplexity = counts_tokens(&run->programs.eval) ? exp(out->loss) : (double)NAN;
    out->token_accuracy = lathe_calibration_accuracy(&sums->calibration);
    out->ece = lathe_calibration_error(&sums->calibration);
    out->bits_per_byte = bits_per_byte(run, out->loss);
    out->count_unit = run->programs.eval.stage.count_unit;
    out->n_metrics = lathe_stage_metrics(&run->programs.eval.stage, sums->metrics, out->count,
                                         out->metric_names, out->metrics);
    return LATHE_OK;
}

/* Each rank evaluates its rows of a batch of all ranks. */
lathe_status lathe_evaluate(lathe_run *run, int64_t max_batches, const lathe_work_watch *watch,
                            lathe_evaluation *out)
{
    eval_sums sums = {0};
    int64_t n_batches;
    memset(out, 0, sizeof *out);
    if (!run->data.validation)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the run has no data to evaluate on: set "
                           "data.validation, data.validation_split or data.validation_count",
                           lathe_config_path(run->config));
    LATHE_TRY(lathe_loader_seek(run->data.validation, &run->data.validation_start));
    n_batches = lathe_loader_batches(run->data.validation, 1);
    if (max_batches > 0 && max_batches < n_batches)
        n_batches = max_batches;
    if (lathe__run_evaluates(run))
        lathe_run_trace_begin(run, 0, n_batches);
    for (int64_t i = 0; i < n_batches; i++) {
        LATHE_TRY(lathe_work_tell(watch, i, n_batches));
        LATHE_TRY(add_batch(run, i, &sums));
    }
    LATHE_TRY(lathe__run_add_ranks(run, (double *)&sums, (int32_t)(sizeof sums / sizeof(double))));
    return fill_figures(run, &sums, out);
}

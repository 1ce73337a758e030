/* Collects and writes the figures of a step. */
#include <math.h>
#include <string.h>

#include "base/trace.h"
#include "metrics/stage_metrics.h"
#include "parallel/islands/island_files.h"
#include "parallel/ranks/extents.h"
#include "parallel/ranks/grad_buckets.h"
#include "run/decide/run_length.h"
#include "run/parts/iteration.h"
#include "run/parts/rollout_noise.h"
#include "train/training.h"

lathe_status lathe__training_figures_open(lathe_training *t)
{
    const char *dir = t->run->set.checkpoint.dir;
    const int64_t step = t->run->at.step;
    lathe_status status = lathe_metrics_open(&t->metrics, dir, step);
    if (status == LATHE_OK && dir && t->run->set.tensorboard)
        status = lathe_tensorboard_open(&t->tensorboard, dir, step);
    if (status == LATHE_OK)
        status = lathe__training_samples_open(t);
    if (status != LATHE_OK)
        lathe__training_figures_close(t);
    return status;
}

void lathe__training_figures_close(lathe_training *t)
{
    lathe_metrics_close(&t->metrics);
    lathe_tensorboard_close(&t->tensorboard);
    lathe__training_samples_close(t);
}

lathe_status lathe__training_figures_write(lathe_training *t)
{
    const lathe_figures *f = &t->figures;
    const int64_t step = t->run->at.step;
    LATHE_TRY(lathe_metrics_write(&t->metrics, step, f->n, f->keys, f->values));
    return lathe_tensorboard_write(&t->tensorboard, step, f->n, f->keys, f->values);
}

/* Adds up the seconds per phase of the training programs since the last call. Batches of shorter
 * rows have programs of their own. */
static void take_times(lathe_programs *programs, double out[3])
{
    lathe_exec_times(programs->train.exec, out);
    lathe_exec_times_reset(programs->train.exec);
    for (int32_t i = 0; i < programs->shorter.n; i++) {
        double phase[3];
        lathe_exec_times(programs->shorter.train[i].exec, phase);
        lathe_exec_times_reset(programs->shorter.train[i].exec);
        for (int k = 0; k < 3; k++)
            out[k] += phase[k];
    }
}

/* Traces the step that has just ended, and its update. */
static void trace_step(const lathe_step_record *step)
{
    char args[96];
    const double now = lathe_now();
    (void)snprintf(args, sizeof args, "{\"step\": %lld, \"tokens\": %lld}",
                   (long long)step->result.step, (long long)step->tokens);
    /* the step has ended just now, so its seconds count back from here */
    lathe_trace_span("step", "step", now - step->seconds, now, args);
    lathe_trace_span("step", "optimizer", now - step->optimizer_seconds, now, NULL);
}

/* Means over the step: sums and counts are of all micro-batches and ranks. */
static void add_stage_metrics(lathe_figures *f, const lathe_stage_loss *stage,
                              const lathe_accumulated *sum)
{
    const char *names[LATHE_MAX_STAGE_METRICS];
    double values[LATHE_MAX_STAGE_METRICS];
    const int32_t n = lathe_stage_metrics(stage, sum->metric_sums, sum->count, names, values);
    for (int32_t i = 0; i < n; i++)
        lathe__figures_add(f, names[i], values[i]);
}

/* Figures that the stage's iterate() has set in this step; NAN: not set. */
static void add_stage_figures(lathe_figures *f, const lathe_stage_v1 *stage,
                              const lathe_step_record *step)
{
    for (int32_t i = 0; LATHE_HAS(stage, figures) && i < stage->n_figures; i++)
        if (!isnan(step->stage_figures[i]))
            lathe__figures_add(f, stage->figures[i].name, step->stage_figures[i]);
}

/* Bytes since the last step; diloco_bytes_sent: the part of them between islands. */
static void add_rank_figures(lathe_figures *f, const lathe_run *run, const lathe_step_record *step)
{
    int64_t across = 0, sent = 0;
    if (run->outer)
        sent = lathe_islands_take_sent(run->outer->islands, &across);
    lathe__figures_add(f, "ranks_bytes_sent",
                       (double)(sent + lathe_grad_buckets_take_sent(run->buckets) +
                                lathe_extents_take_sent(run->extents)));
    if (run->outer)
        lathe__figures_add(f, "diloco_bytes_sent", (double)across);
    if (step->sum.is_reduced)
        lathe__figures_add(f, "ranks_exposed_seconds", step->sum.wait_seconds);
    /* a rank that is always the slowest is on a slow host; the times exclude waiting for others */
    lathe__figures_add(f, "ranks_slowest", (double)step->slowest_rank);
    lathe__figures_add(f, "ranks_slowest_seconds", step->slowest_seconds);
    lathe__figures_add(f, "ranks_fastest_seconds", step->fastest_seconds);
}

/* Sets the headline of the stage, if this step has it. */
static void set_headline(lathe_progress_step *line, const lathe_figures *f,
                         const lathe_stage_v1 *stage)
{
    for (int32_t i = 0; LATHE_HAS(stage, headline) && stage->headline != NULL && i < f->n; i++)
        if (strcmp(f->keys[i], stage->headline) == 0 && isfinite(f->values[i])) {
            line->headline_name = stage->headline;
            line->headline = f->values[i];
        }
}

void lathe__training_record(lathe_training *t, const lathe_step_record *step)
{
    lathe_run *run = t->run;
    const lathe_step_result *r = &step->result;
    const lathe_accumulated *sum = &step->sum;
    lathe_figures *f = &t->figures;
    f->n = 0;
    double phase[3];
    const double tokens_per_second = (double)step->tokens / step->seconds;
    const double flops = sum->flops / step->seconds;
    if (t->peak_flops > 0.0 &&
        flops > t->peak_flops) /* faster than the products that were measured at the start */
        t->peak_flops = flops;
    const int64_t memory = lathe_machine_total(&run->machine, &run->machine.used);
    take_times(&run->programs, phase);
    lathe__figures_add(f, "loss", r->loss);
    /* exp(loss) is a perplexity only of a mean over tokens, and of texts that the run did not write
     */
    if (run->programs.train.stage.count_unit == LATHE_COUNT_TOKENS && !lathe__run_iterates(run))
        lathe__figures_add(f, "perplexity", exp(r->loss));
    lathe__figures_add(f, "grad_norm", r->grad_norm);
    for (int32_t g = 0; run->opt.groups.n > 1 && g < run->opt.groups.n; g++)
        lathe__figures_add(f, run->opt.groups.keys[g], run->opt.group_norms[g]);
    lathe__figures_add(f, "param_norm", r->param_norm);
    lathe__figures_add(f, "update_ratio", r->skipped ? 0.0 : run->opt.update_norm / r->param_norm);
    lathe__figures_add(f, "lr", r->lr);
    if (run->set.compute_dtype == LATHE_F16) /* other dtypes need no loss scale */
        lathe__figures_add(f, "loss_scale", r->loss_scale);
    if (run->set.quant_noise > 0.0)
        lathe__figures_add(f, "quant_noise", lathe__noise_at(run, run->at.step - 1));
    const int64_t elsewhere = lathe_islands_skipped(run->outer ? run->outer->islands : NULL);
    lathe__figures_add(f, "skipped_steps", (double)(run->at.skipped + elsewhere));
    if (!isnan(step->spike.zscore))
        lathe__figures_add(f, "loss_zscore", step->spike.zscore);
    lathe__figures_add(f, "spikes", (double)run->at.spike.n_spikes);
    lathe__figures_add(f, "tokens_per_s", tokens_per_second);
    lathe__figures_add(f, "tokens", (double)run->at.tokens);
    lathe__figures_add(f, "epoch", lathe__run_epoch(run));
    lathe__figures_add(f, "flops_per_s", flops);
    lathe__figures_add(f, "share_of_peak", t->peak_flops > 0.0 ? flops / t->peak_flops : 0.0);
    lathe__figures_add(f, "memory_bytes", (double)memory);
    lathe__figures_add(f, "memory_peak_bytes",
                       (double)lathe_machine_total(&run->machine, &run->machine.peak));
    lathe__figures_add(f, "step_seconds", step->seconds);
    lathe__figures_add(f, "elapsed_seconds", lathe_now() - t->begun);
    lathe__figures_add(f, "data_seconds", sum->data_seconds);
    /* on other devices these would be the times of queueing */
    if (!lathe_machine_memory(&run->machine)->is_queued) {
        lathe__figures_add(f, "forward_seconds", phase[LATHE_PHASE_FORWARD]);
        lathe__figures_add(f, "backward_seconds",
                           phase[LATHE_PHASE_BACKWARD] + phase[LATHE_PHASE_RECOMPUTE]);
        lathe__figures_add(f, "optimizer_seconds", step->optimizer_seconds);
    }
    if (run->ranks)
        add_rank_figures(f, run, step);
    const int64_t state = lathe_update_take_moved(run->opt.update);
    const int64_t values = lathe_exec_take_moved(run->programs.train.exec);
    if (state >= 0 || values >= 0) /* -1: nothing of this kind is offloaded */
        lathe__figures_add(f, "offload_bytes",
                           (double)((state > 0 ? state : 0) + (values > 0 ? values : 0)));
    const double waited = lathe_update_take_waited(run->opt.update);
    if (waited >= 0.0)
        lathe__figures_add(f, "offload_wait_seconds", waited);
    add_stage_metrics(f, &run->programs.train.stage, sum);
    add_stage_figures(f, run->parts.stage.table, step);
    if (run->trace.is_on)
        trace_step(step);
    lathe_progress_step line = {.step = r->step,
                                .max_steps = run->set.max_steps,
                                .epoch = lathe__run_epoch(run),
                                .elapsed = lathe_now() - t->begun,
                                .is_last =
                                    run->set.stop_after > 0 && r->step >= run->set.stop_after,
                                .loss = r->loss,
                                .grad_norm = r->grad_norm,
                                .param_norm = r->param_norm,
                                .lr = r->lr,
                                .tokens_per_second = tokens_per_second,
                                .flops_per_second = flops,
                                .peak_flops = t->peak_flops,
                                .memory_bytes = memory,
                                .step_seconds = step->seconds};
    set_headline(&line, f, run->parts.stage.table);
    lathe_progress_show(&t->progress, &line);
}

/* The training loop. */
#include "run/train.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "run/checkpoint.h"
#include "run/metrics.h"
#include "run/progress.h"

#define MAX_KEYS (24 + LATHE_MAX_STAGE_METRICS)

/* What a step's line in metrics.jsonl holds. */
typedef struct figures {
    const char *keys[MAX_KEYS];
    double values[MAX_KEYS];
    int32_t n;
} figures;

/* One call of lathe_train. */
typedef struct session {
    lathe_run *run;
    const lathe_train_options *options;
    lathe_train_result *result;
    lathe_progress progress;
    lathe_metrics metrics;
    figures figures; /* of the step at hand */
    double peak_flops, flops_per_token;
} session;

static lathe_status resume(session *s)
{
    const char *path = NULL;
    LATHE_TRY(lathe_checkpoint_refuse_mixing(s->run));
    LATHE_TRY(lathe_checkpoint_find(s->run, &path));
    if (!path)
        return LATHE_OK;
    LATHE_TRY(lathe_load(s->run, path));
    s->result->checkpoint = path;
    (void)fprintf(s->options->out, "resumed from %s at step %lld\n", path,
                  (long long)s->run->at.step);
    return LATHE_OK;
}

static lathe_status write_checkpoint(session *s)
{
    const char *path = NULL;
    char name[64];
    (void)snprintf(name, sizeof name, "step-%08lld", (long long)s->run->at.step);
    /* already there when a run is opened at its end: the same state */
    if (s->result->checkpoint && strstr(s->result->checkpoint, name))
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_write(s->run, &path));
    s->result->checkpoint = path;
    return LATHE_OK;
}

/* The micro-batches of one step. */
static lathe_status accumulate(session *s)
{
    lathe_run *run = s->run;
    while (run->sum.backwards < run->set.gradient_accumulation_steps) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        LATHE_TRY(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        if (!isfinite(f.loss_sum))
            return lathe_error(LATHE_E_NUMERIC, "step %lld, micro-batch %d: the loss is %g",
                               (long long)run->at.step + 1, run->sum.backwards + 1, f.loss_sum);
        LATHE_TRY(lathe_backward(run, NULL));
    }
    return LATHE_OK;
}

static void add_figure(figures *f, const char *key, double value)
{
    f->keys[f->n] = key;
    f->values[f->n++] = value;
}

/* Gathers the step's figures and shows the progress line. */
static void record(session *s, const lathe_step_result *r, const lathe_accumulated *sum,
                   double seconds, double optimizer_seconds)
{
    lathe_run *run = s->run;
    figures *f = &s->figures;
    f->n = 0;
    double phase[3];
    const double tokens_per_second = (double)sum->tokens / seconds;
    const double flops = tokens_per_second * s->flops_per_token;
    const int64_t memory = lathe_mem_total(&run->machine.used);
    lathe_exec_times(run->train.exec, phase);
    lathe_exec_times_reset(run->train.exec);
    add_figure(f, "loss", r->loss);
    add_figure(f, "perplexity", exp(r->loss));
    add_figure(f, "grad_norm", r->grad_norm);
    add_figure(f, "param_norm", r->param_norm);
    add_figure(f, "lr", r->lr);
    add_figure(f, "tokens_per_s", tokens_per_second);
    add_figure(f, "tokens", (double)run->at.tokens);
    add_figure(f, "epoch", (double)run->at.cursor.epoch);
    add_figure(f, "flops_per_s", flops);
    add_figure(f, "share_of_peak", s->peak_flops > 0.0 ? flops / s->peak_flops : 0.0);
    add_figure(f, "memory_bytes", (double)memory);
    add_figure(f, "step_seconds", seconds);
    add_figure(f, "forward_seconds", phase[LATHE_PHASE_FORWARD]);
    add_figure(f, "backward_seconds", phase[LATHE_PHASE_BACKWARD] + phase[LATHE_PHASE_RECOMPUTE]);
    add_figure(f, "optimizer_seconds", optimizer_seconds);
    for (int32_t i = 0; i < run->train.stage.n_metrics; i++)
        add_figure(f, run->train.stage.metrics[i].name, sum->metric_sums[i] / sum->count);
    const lathe_progress_step line = {.step = r->step,
                                      .max_steps = run->set.max_steps,
                                      .loss = r->loss,
                                      .grad_norm = r->grad_norm,
                                      .param_norm = r->param_norm,
                                      .lr = r->lr,
                                      .tokens_per_second = tokens_per_second,
                                      .flops_per_second = flops,
                                      .peak_flops = s->peak_flops,
                                      .memory_bytes = memory,
                                      .step_seconds = seconds};
    lathe_progress_show(&s->progress, &line);
}

static lathe_status one_step(session *s)
{
    lathe_run *run = s->run;
    const double begin = lathe_now();
    lathe_step_result r = {.size = (uint32_t)sizeof r};
    LATHE_TRY(accumulate(s));
    const lathe_accumulated sum = run->sum;
    const double before = lathe_now();
    LATHE_TRY(lathe_step(run, &r));
    const double now = lathe_now();
    if (r.skipped)
        return lathe_error(LATHE_E_NUMERIC,
                           "step %lld: the gradient's norm is not finite; nothing was updated",
                           (long long)r.step);
    s->result->loss = r.loss;
    record(s, &r, &sum, now - begin, now - before);
    return LATHE_OK;
}

static void observe(lathe_run *run, double metric)
{
    const lathe_scheduler_v1 *scheduler = run->scheduler.table;
    if (LATHE_HAS(scheduler, observe))
        scheduler->observe(run->scheduler.self, metric, run->base_lr, run->at.scheduler_state);
}

static lathe_status evaluate(session *s)
{
    lathe_run *run = s->run;
    lathe_evaluation e;
    LATHE_TRY(lathe_evaluate(run, run->set.eval_batches, &e));
    s->result->validation = e.loss;
    observe(run, e.loss);
    lathe_progress_break(&s->progress);
    (void)fprintf(s->options->out, "step %lld  validation loss %.4f  perplexity %.2f  over %.0f\n",
                  (long long)run->at.step, e.loss, e.perplexity, e.count);
    add_figure(&s->figures, "eval_loss", e.loss);
    add_figure(&s->figures, "eval_perplexity", e.perplexity);
    add_figure(&s->figures, "eval_count", e.count);
    return LATHE_OK;
}

static int due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

static lathe_status loop(session *s)
{
    lathe_run *run = s->run;
    int64_t taken = 0;
    while (run->at.step < run->set.max_steps) {
        LATHE_TRY(one_step(s));
        taken++;
        const int64_t step = run->at.step;
        const int last = step == run->set.max_steps;
        if (run->validation && (last || due(run->set.eval_every, step)))
            LATHE_TRY(evaluate(s));
        else if (!run->validation)
            observe(run, s->result->loss);
        LATHE_TRY(lathe_metrics_write(&s->metrics, step, s->figures.n, s->figures.keys,
                                      s->figures.values));
        if (s->options->stop && *s->options->stop)
            s->result->interrupted = 1;
        s->result->paused = run->set.stop_after > 0 && step >= run->set.stop_after && !last;
        const int ends = last || s->result->interrupted || s->result->paused;
        if (run->set.checkpoint_dir && (ends || due(run->set.checkpoint_every, step))) {
            LATHE_TRY(write_checkpoint(s));
            if (ends) {
                lathe_progress_break(&s->progress);
                (void)fprintf(s->options->out, "checkpoint %s\n", s->result->checkpoint);
            }
        }
        if (ends)
            break;
    }
    if (taken == 0)
        (void)fprintf(s->options->out, "nothing to do: step %lld of %lld\n",
                      (long long)run->at.step, (long long)run->set.max_steps);
    return LATHE_OK;
}

lathe_status lathe_train(lathe_run *run, const lathe_train_options *options,
                         lathe_train_result *out)
{
    session s = {.run = run, .options = options, .result = out};
    *out = (lathe_train_result){.validation = NAN, .loss = NAN};
    if (run->mode != LATHE_OPEN_TRAIN)
        return lathe_error(LATHE_E_STATE, "the run was not opened for training");
    s.flops_per_token = lathe_graph_flops(lathe_exec_graph(run->train.exec), 0) /
                        ((double)run->train.n_rows * (double)run->train.row_tokens);
    LATHE_TRY(lathe_peak_flops(run, &s.peak_flops));
    LATHE_TRY(resume(&s));
    if (run->set.checkpoint_dir)
        LATHE_TRY(lathe_dir_create(run->set.checkpoint_dir));
    lathe_progress_init(&s.progress, options->out, run->set.progress, run->set.log_every);
    LATHE_TRY(lathe_metrics_open(&s.metrics, run->set.checkpoint_dir, run->at.step));
    const lathe_status status = loop(&s);
    lathe_progress_break(&s.progress);
    lathe_metrics_close(&s.metrics);
    out->step = run->at.step;
    return status;
}

/* Implements forward, backward, step, zero_grad and logprobs of the C API. */
#include "run/api/primitives.h"

#include <math.h>
#include <string.h>

#include "base/api_struct.h"
#include "base/error.h"
#include "base/trace.h"
#include "exec/program/batch_load.h"
#include "exec/program/short_programs.h"
#include "optim/curvature.h"
#include "optim/rewarm.h"
#include "optim/weight_average.h"
#include "parallel/islands/island_files.h"
#include "parallel/ranks/extents.h"
#include "parallel/ranks/grad_buckets.h"
#include "run/api/agree.h"
#include "run/api/outer_step.h"
#include "run/api/router_bias.h"
#include "run/merge/merge_step.h"
#include "run/parts/run_parts.h"
#include "run/state/api_sizes.h"
#include "run/state/run_saved.h"

/* Flags of forward() in addition to LATHE_FORWARD_*. MODEL_ONLY: only the model's outputs are used,
 * not the loss. AS_GENERATED: the log-probabilities must have the bits of those that generation
 * gives. */
#define MODEL_ONLY (1U << 31)
#define AS_GENERATED (1U << 30)

/* The program of lathe_logprobs. In fp32 it adds the sums of products in the order of generation;
 * an evaluation uses a faster order. */
static lathe_program *scoring_program(lathe_run *run)
{
    return run->params.compute_dtype == LATHE_F32 ? &run->programs.scoring : &run->programs.eval;
}

/* Reads the next batch of the run's own data. inputs: [data->n_inputs], filled in. */
static lathe_status next_batch(const lathe_run_data *data, lathe_loader *loader,
                               lathe_batch_input inputs[LATHE_MAX_STAGE_INPUTS],
                               lathe_run_batch *out, int64_t *out_records, int64_t *out_longest)
{
    lathe_batch batch;
    if (!loader)
        return lathe_error(LATHE_E_STATE, "the run has no data to take a batch from");
    LATHE_TRY(lathe_loader_next(loader, &batch));
    if (batch.ended)
        return lathe_error(LATHE_E_NOT_FOUND, "the data has come to its end");
    *out = (lathe_run_batch){.size = (uint32_t)sizeof *out,
                             .n_rows = batch.n_rows,
                             .row_tokens = batch.row_tokens,
                             .tokens = batch.tokens,
                             .targets = batch.targets,
                             .positions = batch.positions,
                             .doc_start = batch.doc_start,
                             .key_end = batch.key_end,
                             .inputs = inputs,
                             .n_inputs = data->n_inputs};
    for (int32_t i = 0; i < data->n_inputs; i++)
        inputs[i] = (lathe_batch_input){.name = data->inputs[i].name, .values = batch.inputs[i]};
    *out_records = batch.n_records;
    *out_longest = batch.n_longest;
    return LATHE_OK;
}

/* A run that was opened to generate has no stage, and with it neither a loss nor log-probabilities;
 * its logits come from the model alone. */
static lathe_status check_purpose(const lathe_run *run, uint32_t flags)
{
    if ((flags & LATHE_FORWARD_TRAIN) && !lathe__run_trains(run))
        return lathe_error(LATHE_E_STATE, "the run was not opened for training");
    if (run->parts.stage.component == NULL && !(flags & LATHE_FORWARD_LOGITS))
        return lathe_error(
            LATHE_E_STATE,
            "the run was opened to generate, so it has no stage that computes a loss "
            "or log-probabilities: open it to evaluate or to train, or ask for "
            "LATHE_FORWARD_LOGITS");
    return LATHE_OK;
}

static lathe_status program_for(lathe_run *run, uint32_t flags, lathe_program **out)
{
    if ((flags & LATHE_FORWARD_TRAIN) && (flags & LATHE_FORWARD_LOGITS))
        return lathe_error(LATHE_E_ARG,
                           "logits are given by a forward without LATHE_FORWARD_TRAIN");
    LATHE_TRY(check_purpose(run, flags));
    *out = flags & LATHE_FORWARD_TRAIN    ? &run->programs.train
           : flags & LATHE_FORWARD_LOGITS ? &run->programs.logits
           : flags & AS_GENERATED         ? scoring_program(run)
                                          : &run->programs.eval;
    const int32_t kind = flags & LATHE_FORWARD_TRAIN    ? LATHE_PROGRAM_TRAIN
                         : flags & LATHE_FORWARD_LOGITS ? LATHE_PROGRAM_LOGITS
                                                        : LATHE_PROGRAM_EVAL;
    return (*out)->exec ? LATHE_OK : lathe__run_program(run, kind, *out);
}

/* Reads one of the sums that a forward computes. */
static lathe_status read_sum(lathe_program *p, lathe_val v, double *out)
{
    const void *value = NULL;
    LATHE_TRY(lathe_exec_fetch(p->exec, v, &value));
    *out = (double)*(const float *)value;
    return LATHE_OK;
}

/* Adds how many tokens of a training forward chose each expert. */
static lathe_status read_loads(lathe_program *p, const lathe_expert_loads *loads)
{
    double *to = loads->counts;
    for (int32_t i = 0; i < p->n_loads; i++) {
        const void *chosen = NULL;
        LATHE_TRY(lathe_exec_fetch(p->exec, p->loads[i].chosen, &chosen));
        for (int32_t e = 0; e < p->loads[i].n_experts; e++)
            *to++ += (double)((const float *)chosen)[e];
    }
    return LATHE_OK;
}

/* sum: of the training; NULL in an evaluation. */
static lathe_status read_loss(lathe_program *p, double count, lathe_accumulated *sum,
                              lathe_forward_result *out)
{
    LATHE_TRY(read_sum(p, p->loss, &out->loss_sum));
    out->count = count;
    if (!sum)
        return LATHE_OK;
    sum->loss_sum += out->loss_sum;
    sum->count += count;
    for (int32_t i = 0; i < p->stage.n_metrics; i++) {
        double value = 0.0;
        LATHE_TRY(read_sum(p, p->stage.metrics[i].sum, &value));
        sum->metric_sums[i] += value;
    }
    return LATHE_OK;
}

/* Queues the copy of the sums of programs->train to programs->losses, after those of earlier
 * forwards, without waiting. */
static lathe_status read_loss_later(const lathe_programs *programs, double count,
                                    lathe_accumulated *sum)
{
    const lathe_program *p = programs->trained;
    float *to = programs->losses + sum->n_losses * programs->losses_each;
    float *loads = to + 1 + LATHE_MAX_STAGE_METRICS;
    sum->n_losses++;
    sum->count += count;
    LATHE_TRY(lathe_exec_fetch_later(p->exec, p->loss, to));
    for (int32_t i = 0; i < p->stage.n_metrics; i++)
        LATHE_TRY(lathe_exec_fetch_later(p->exec, p->stage.metrics[i].sum, to + 1 + i));
    for (int32_t i = 0; i < p->n_loads; loads += p->loads[i++].n_experts)
        LATHE_TRY(lathe_exec_fetch_later(p->exec, p->loads[i].chosen, loads));
    return LATHE_OK;
}

lathe_status lathe__losses_settle(lathe_run *run, int32_t *out_bad, double *out_loss)
{
    *out_bad = 0;
    LATHE_TRY(lathe_update_expect_norm(run->opt.update)); /* one wait for losses and norm */
    LATHE_TRY(lathe_machine_sync(&run->machine));
    for (int32_t k = 0; k < run->sum.n_losses && *out_bad == 0; k++) {
        const float *from = run->programs.losses + k * run->programs.losses_each;
        *out_loss = (double)from[0];
        run->sum.loss_sum += *out_loss;
        for (int32_t i = 0; i < run->programs.train.stage.n_metrics; i++)
            run->sum.metric_sums[i] += (double)from[1 + i];
        for (int64_t i = 0; i < run->loads.n; i++)
            run->loads.counts[i] += (double)from[1 + LATHE_MAX_STAGE_METRICS + i];
        if (!isfinite(*out_loss))
            *out_bad = run->sum.backwards - run->sum.n_losses + k + 1;
    }
    run->sum.n_losses = 0;
    return LATHE_OK;
}

int32_t lathe__run_accumulates(const lathe_run *run)
{
    return run->sum.backwards > 0 && run->store.fresh_bytes == 0;
}

/* Runs a forward on the batch in the inputs of the training program p. */
static lathe_status train_forward(lathe_run *run, lathe_program *p, const lathe_run_batch *batch,
                                  int32_t own)
{
    const int64_t n_tokens = lathe__batch_tokens(batch, run->programs.are_padded, own);
    float *seed = lathe_exec_input(p->exec, p->seed);
    *seed = run->at.scaler.scale;
    LATHE_TRY(lathe_exec_send(p->exec));
    LATHE_TRY(lathe_exec_run_range(p->exec, 0, p->forward_end, lathe__run_accumulates(run)));
    run->at.micro++;
    run->at.tokens += n_tokens;
    run->sum.tokens += n_tokens;
    run->sum.flops += p->flops;
    if (own)
        lathe_loader_cursor(run->data.loader, &run->at.cursor);
    run->sum.pending = 1;
    return LATHE_OK;
}

/* The program's rows have the run's length, those of the result the batch's. */
static lathe_status read_logits(lathe_program *p, const lathe_run_batch *batch,
                                lathe_forward_result *out)
{
    const int64_t token_bytes = out->vocab_size * (int64_t)sizeof(float);
    const void *logits = NULL;
    LATHE_TRY(lathe_exec_fetch_rows(p->exec, p->logits, batch->n_rows, p->row_tokens * token_bytes,
                                    batch->row_tokens * token_bytes, &logits));
    out->logits = logits;
    return LATHE_OK;
}

/* later: the loss of a training forward is read by lathe__losses_settle. */
static lathe_status forward(lathe_run *run, const lathe_run_batch *batch, uint32_t flags,
                            int32_t later, lathe_forward_result *out)
{
    lathe_program *p = NULL;
    lathe_run_batch own = {.size = (uint32_t)sizeof own};
    lathe_batch_input inputs[LATHE_MAX_STAGE_INPUTS];
    double count = 0.0;
    int64_t n_records = 0, longest = 0;
    const int32_t train = (flags & LATHE_FORWARD_TRAIN) != 0;
    if (flags & LATHE_FORWARD_LOGITS)
        flags |= MODEL_ONLY;
    LATHE_TRY(program_for(run, flags, &p));
    if (run->checkpoints.weights_wait) /* no checkpoint was resumed */
        LATHE_TRY(lathe__run_weights(run));
    if (run->sum.pending)
        return lathe_error(LATHE_E_STATE, "the last training forward still waits for its backward");
    const lathe_run_batch *given = batch;
    if (!batch) {
        const double begun = lathe_now();
        LATHE_TRY(next_batch(&run->data, train ? run->data.loader : run->data.validation, inputs,
                             &own, &n_records, &longest));
        if (run->trace.is_on)
            lathe_trace_since("data", "next batch", begun);
        if (train)
            run->sum.data_seconds += lathe_now() - begun;
        batch = &own;
    } else {
        LATHE_TRY(lathe__batch_check(p, batch, run->model.vocab));
        n_records = batch->n_rows / p->rows_per_record;
        longest = lathe__batch_length(batch);
    }
    p = lathe__short_rows_pick(&run->programs, p, longest);
    *(train ? &run->programs.trained : &run->programs.evaluated) = p;
    LATHE_TRY(lathe__batch_load(p, &run->model, &run->parts.stage, batch, n_records,
                                !(flags & MODEL_ONLY), &count));
    if (p->rng != LATHE_NONE)
        lathe_programs_counter(&run->programs, p, p->rng, run->set.seed, run->at.micro);
    run->programs.has_batch |= train;
    *out = (lathe_forward_result){.size = (uint32_t)sizeof *out, .vocab_size = run->model.vocab};
    if (train) {
        LATHE_TRY(train_forward(run, p, batch, !given));
    } else {
        LATHE_TRY(lathe_exec_send(p->exec));
        LATHE_TRY(lathe_exec_run(p->exec, 0));
    }
    if (flags & LATHE_FORWARD_LOGITS)
        return read_logits(p, batch, out);
    if (later)
        return read_loss_later(&run->programs, count, &run->sum);
    LATHE_TRY(read_loss(p, count, train ? &run->sum : NULL, out));
    return train ? read_loads(p, &run->loads) : LATHE_OK;
}

/* A program that trains step by step may end or skip a step on one rank, and the others would wait
 * for its weights in the middle of theirs. */
static lathe_status check_steps(const lathe_run *run)
{
    if (!lathe__run_takes_batches(run) || !run->store.gathers || run->layout->copies)
        return LATHE_OK;
    return lathe_error(
        LATHE_E_UNSUPPORTED,
        "parallel.shard = \"parameters\" does not go with lathe_step and the other "
        "calls that train step by step: train with lathe train, choose \"optimizer\" "
        "or \"gradients\", or set parallel.shard_ranks");
}

lathe_status lathe_forward(lathe_run *run, const lathe_run_batch *batch, uint32_t flags,
                           lathe_forward_result *out)
{
    lathe_forward_result result;
    lathe_run_batch given;
    LATHE_TRY(lathe_struct_check(out, "lathe_forward_result", LATHE_LEAST_FORWARD));
    if (flags & LATHE_FORWARD_TRAIN)
        LATHE_TRY(check_steps(run));
    if (batch)
        LATHE_TRY(lathe_struct_read(batch, "lathe_run_batch", LATHE_LEAST_BATCH, &given,
                                    (int64_t)sizeof given));
    LATHE_TRY(forward(run, batch ? &given : NULL, flags, 0, &result));
    lathe_struct_write(out, &result, (int64_t)sizeof result);
    return LATHE_OK;
}

lathe_status lathe__forward_later(lathe_run *run)
{
    lathe_forward_result result = {.size = (uint32_t)sizeof result};
    return forward(run, NULL, LATHE_FORWARD_TRAIN, 1, &result);
}

/* Runs a backward, and adds its gradients to those of other ranks where this happens in it. */
static lathe_status run_backward(lathe_run *run, int32_t is_last)
{
    const lathe_program *p = run->programs.trained;
    const int32_t begin = p->forward_end, accumulates = lathe__run_accumulates(run);
    if (run->store.fresh_bytes > 0)
        return lathe_extents_backward(run->extents, p->exec, begin, run->sum.backwards == 0);
    if (!is_last || (!run->buckets && !run->extents))
        return lathe_exec_run_range(p->exec, begin, lathe_exec_graph(p->exec)->n_nodes,
                                    accumulates);
    run->sum.is_reduced = 1;
    LATHE_TRY(run->extents
                  ? lathe_extents_backward(run->extents, p->exec, begin, !accumulates)
                  : lathe_grad_buckets_backward(run->buckets, p->exec, begin, accumulates));
    run->sum.wait_seconds += run->extents ? lathe_extents_take_wait(run->extents)
                                          : lathe_grad_buckets_take_wait(run->buckets);
    return LATHE_OK;
}

static lathe_status backward(lathe_run *run, int32_t is_last, lathe_backward_result *out)
{
    if (!run->sum.pending)
        return lathe_error(LATHE_E_STATE,
                           "backward needs a forward with LATHE_FORWARD_TRAIN before it");
    if (out)
        LATHE_TRY(lathe_struct_check(out, "lathe_backward_result", LATHE_LEAST_BACKWARD));
    if (out && run->extents)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "with parallel.shard no rank knows the norm of a backward's gradients: "
                           "pass NULL, and read the norm from lathe_step");
    run->sum.pending = 0;
    lathe_update_forget_norm(run->opt.update);
    LATHE_TRY(run_backward(run, is_last));
    run->sum.backwards++;
    if (out) {
        double norm = 0.0;
        LATHE_TRY(lathe_update_gradient_norm(run->opt.update, &norm));
        norm = norm / (run->sum.count > 0.0 ? run->sum.count : 1.0) / (double)run->at.scaler.scale;
        const lathe_backward_result result = {.grad_norm = norm, .overflow = !isfinite(norm)};
        lathe_struct_write(out, &result, (int64_t)sizeof result);
    }
    return LATHE_OK;
}

lathe_status lathe_backward(lathe_run *run, lathe_backward_result *out)
{
    return backward(run, 0, out);
}

lathe_status lathe__backward_of_step(lathe_run *run)
{
    return backward(run, run->sum.backwards + 1 == run->set.gradient_accumulation_steps, NULL);
}

int32_t lathe__backwards_exchange(const lathe_run *run)
{
    return run->buckets != NULL || run->extents != NULL;
}

lathe_status lathe_zero_grad(lathe_run *run)
{
    memset(&run->sum, 0, sizeof run->sum);
    lathe_expert_loads_clear(&run->loads);
    run->sum.pending = run->sum.n_losses = 0;
    if (run->opt.update)
        lathe_update_forget_norm(run->opt.update);
    return LATHE_OK;
}

/* Counts a step, with or without an update. */
static void count(lathe_run *run, int32_t skipped)
{
    run->at.step++;
    run->at.skipped += skipped != 0;
    run->at.skipped_in_row = skipped ? run->at.skipped_in_row + 1 : 0;
    if (skipped && run->outer)
        lathe_islands_note_skip(run->outer->islands);
}

/* Counts a step, and adapts the loss scale. */
static void count_step(lathe_run *run, int32_t skipped)
{
    count(run, skipped);
    if (run->set.compute_dtype == LATHE_F16)
        lathe_scaler_update(&run->at.scaler, skipped, run->set.loss_scale_growth_interval);
}

/* The scheduler's rate of the next update, lower after a merge. */
static double next_rate(const lathe_run *run)
{
    const lathe_rewarm rewarm = {run->set.merge_every, run->set.merge_warmup_steps};
    return lathe_rewarm_rate(&rewarm, &run->parts.scheduler, run->at.step,
                             run->at.step - run->at.skipped, run->set.max_steps, run->opt.base_lr,
                             run->at.scheduler_state);
}

/* Ends a round of islands and merges the adapter, if they are due after the step: both change the
 * weights. */
static lathe_status end_step(lathe_run *run)
{
    run->sum.is_updating = 1;
    LATHE_TRY(lathe__round_after_step(run));
    LATHE_TRY(lathe__merge_after_step(run));
    run->sum.is_updating = 0;
    return LATHE_OK;
}

lathe_status lathe__run_left_out(lathe_run *run, lathe_step_result *out)
{
    double param_norm = 0.0;
    lathe__round_begin(run);
    LATHE_TRY(lathe_update_param_norm(run->opt.update, &param_norm));
    *out = (lathe_step_result){.size = (uint32_t)sizeof *out,
                               .skipped = 1,
                               .step = run->at.step + 1,
                               .loss = NAN,
                               .grad_norm = NAN,
                               .param_norm = param_norm,
                               .lr = next_rate(run),
                               .loss_scale = (double)run->at.scaler.scale};
    count(run, 1);
    for (int32_t g = 0; g < LATHE_MAX_GROUPS; g++)
        run->opt.group_norms[g] = NAN;
    return end_step(run);
}

/* Reads the learning rate of the next update from the scheduler. */
static lathe_status read_rate(const lathe_run *run, double *out)
{
    *out = next_rate(run);
    if (isfinite(*out) && *out >= 0.0)
        return LATHE_OK;
    return lathe_error(LATHE_E_NUMERIC,
                       "step %lld: scheduler \"%s\" gives the learning rate %g; expected a finite "
                       "number of at least 0; nothing was updated: mend its settings, or choose "
                       "another scheduler",
                       (long long)run->at.step + 1, run->parts.scheduler.component->plugin->name,
                       isnan(*out) ? (double)NAN : *out);
}

lathe_status lathe_step(lathe_run *run, lathe_step_result *out)
{
    if (!lathe__run_trains(run) || run->sum.backwards == 0 || run->sum.pending)
        return lathe_error(LATHE_E_STATE,
                           "step needs gradients: a forward and a backward before it");
    lathe_agreement agreement = {.bad = 0};
    LATHE_TRY(lathe__run_agree(run, &agreement));
    if (run->sum.count <= 0.0)
        return lathe_error(LATHE_E_STATE, "step %lld: none of the tokens was a target",
                           (long long)run->at.step + 1);
    if (out)
        LATHE_TRY(lathe_struct_check(out, "lathe_step_result", LATHE_LEAST_STEP));
    const int64_t n_updates =
        run->at.step - run->at.skipped; /* a skipped step does not advance the schedule */
    const double loss_scale = (double)run->at.scaler.scale;
    lathe_update_args args = {.count = run->sum.count,
                              .loss_scale = loss_scale,
                              .max_grad_norm = run->set.max_grad_norm,
                              .max_grad_value = run->set.max_grad_value,
                              .base_lr = run->opt.base_lr,
                              .step = n_updates + 1,
                              .seed = run->set.seed};
    LATHE_TRY(read_rate(run, &args.lr));
    lathe__round_begin(run);
    LATHE_TRY(lathe__run_reduce(run));
    run->sum.is_updating = 1;
    LATHE_TRY(lathe_update_run(run->opt.update, &args));
    LATHE_TRY(lathe_curvature_estimate(&run->programs, &run->parts.optimizer, run->opt.update,
                                       &args, run->trace.is_on));
    count_step(run, args.overflow);
    const lathe_averaging average = lathe__run_averaging(run);
    LATHE_TRY(args.overflow ? lathe_update_param_norm(run->opt.update, &args.param_norm)
                            : lathe_average_step(&average));
    if (!args.overflow)
        LATHE_TRY(lathe__routers_correct(run));
    run->opt.update_norm = args.update_norm;
    memcpy(run->opt.group_norms, args.group_norms, sizeof run->opt.group_norms);
    if (out) {
        const lathe_step_result result = {.skipped = args.overflow,
                                          .step = run->at.step,
                                          .loss = run->sum.loss_sum / run->sum.count,
                                          .count = run->sum.count,
                                          .grad_norm = args.grad_norm,
                                          .param_norm = args.param_norm,
                                          .lr = args.lr,
                                          .loss_scale = loss_scale};
        lathe_struct_write(out, &result, (int64_t)sizeof result);
    }
    LATHE_TRY(lathe_zero_grad(run));
    return end_step(run);
}

/* Copies a value per token of the program that was evaluated last to the rows of its batch. */
static lathe_status fetch_rows(const lathe_run *run, lathe_val value, const lathe_run_batch *batch,
                               float *out)
{
    const lathe_program *p = run->programs.evaluated;
    const int64_t n = p->row_tokens < batch->row_tokens ? p->row_tokens : batch->row_tokens;
    const void *all = NULL;
    LATHE_TRY(lathe_exec_fetch(p->exec, value, &all));
    for (int64_t r = 0; r < p->n_rows; r++) {
        const int64_t row = lathe__batch_row(p, batch, r);
        if (row < 0)
            continue;
        float *to = out + row * batch->row_tokens;
        /* Positions that p does not have are padding. */
        memset(to, 0, (size_t)batch->row_tokens * sizeof *to);
        memcpy(to, (const float *)all + r * p->row_tokens, (size_t)n * sizeof *to);
    }
    return LATHE_OK;
}

static lathe_status logprobs(lathe_run *run, const lathe_run_batch *batch, uint32_t flags,
                             float *out)
{
    lathe_forward_result result = {.size = (uint32_t)sizeof result};
    lathe_run_batch given;
    if (!batch)
        return lathe_error(LATHE_E_ARG, "log-probabilities need a batch");
    LATHE_TRY(lathe_struct_read(batch, "lathe_run_batch", LATHE_LEAST_BATCH, &given,
                                (int64_t)sizeof given));
    if (!given.targets)
        return lathe_error(LATHE_E_ARG, "log-probabilities need a batch with targets");
    batch = &given;
    LATHE_TRY(forward(run, batch, MODEL_ONLY | flags, 0, &result));
    const lathe_program *p = run->programs.evaluated;
    if (p->logprobs == LATHE_NONE)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "the stage's loss uses no log-probabilities of the policy");
    return fetch_rows(run, p->logprobs, batch, out);
}

lathe_status lathe_logprobs(lathe_run *run, const lathe_run_batch *batch, float *out)
{
    return logprobs(run, batch, AS_GENERATED, out);
}

lathe_status lathe__evaluated_logprobs(lathe_run *run, const lathe_run_batch *batch, float *out)
{
    return logprobs(run, batch, 0, out);
}

lathe_status lathe__evaluated_outputs(lathe_run *run, const lathe_run_batch *batch,
                                      float *const *out)
{
    lathe_forward_result result = {.size = (uint32_t)sizeof result};
    lathe_run_batch given;
    LATHE_TRY(lathe_struct_read(batch, "lathe_run_batch", LATHE_LEAST_BATCH, &given,
                                (int64_t)sizeof given));
    LATHE_TRY(forward(run, &given, MODEL_ONLY, 0, &result));
    const lathe_stage_loss *stage = &run->programs.evaluated->stage;
    if (stage->n_outputs == 0)
        return lathe_error(LATHE_E_STATE, "the stage's loss gives no outputs");
    for (int32_t i = 0; i < stage->n_outputs; i++)
        if (stage->outputs[i] != LATHE_NONE && out[i])
            LATHE_TRY(fetch_rows(run, stage->outputs[i], &given, out[i]));
    return LATHE_OK;
}

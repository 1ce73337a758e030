/* Checks keys of the core's sections against each other: refuses contradictions, and warns of keys
 * without effect. */
#include "run/open/settings_check.h"

#include <sched.h>

#include "base/error.h"
#include "config/config_changes.h"
#include "data/records/row_kind.h"
#include "plug/answers.h"
#include "run/decide/objective_check.h"
#include "run/decide/run_check.h"
#include "run/parts/curvature_check.h"
#include "run/parts/iteration.h"
#include "run/parts/rollout_noise.h"
#include "run/parts/run_ranks.h"
#include "run/parts/teacher.h"
#include "run/state/run_state.h"

/* Whether the file or the command line sets the key. */
static int is_given(const lathe_config *config, const char *section, const char *key)
{
    const lathe_value *value = lathe_config_get(config, section, key);
    return value && value->is_explicit;
}

/* Warns if a key is set that nothing reads. */
static void warn_idle(const lathe_run *run, const char *section, const char *key, const char *why)
{
    if (is_given(run->config, section, key))
        lathe__run_warn(run, section, key, "%s.%s has no effect: %s", section, key, why);
}

static void warn_idle_all(const lathe_run *run, const char *section, const char *const *keys,
                          const char *why)
{
    for (; *keys; keys++)
        warn_idle(run, section, *keys, why);
}

void lathe__settings_check_pause(const lathe_run *run)
{
    const lathe_settings *s = &run->set;
    if (s->stop_after > 0 && s->max_steps > 0 && s->stop_after >= s->max_steps &&
        is_given(run->config, "train", "stop_after"))
        lathe__run_warn(run, "train", "stop_after",
                        "train.stop_after = %lld has no effect: the run ends after step %lld",
                        (long long)s->stop_after, (long long)s->max_steps);
}

static lathe_status check_least_rate(const lathe_run *run)
{
    const lathe_status status = lathe_run_check_least_rate(run->config, run->opt.base_lr);
    return status == LATHE_E_CONFIG
               ? lathe__run_refuse(run, "scheduler", "min_lr", "%s", lathe_error_message())
               : status;
}

/* Parameter groups cannot have a rate of their own if this one is 0. */
static void warn_zero_rate(const lathe_run *run)
{
    if (is_given(run->config, "optimizer", "lr") &&
        lathe_config_float(run->config, "optimizer", "lr") == 0.0 && run->opt.base_lr == 0.0)
        lathe__run_warn(run, "optimizer", "lr",
                        "optimizer.lr = 0: the optimizer changes no parameter in this run");
}

static void warn_threads(const lathe_run *run)
{
    cpu_set_t cpus;
    const int n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
    if (!lathe__run_is_offline(run) && n > 0 && run->set.threads > n)
        lathe__run_warn(
            run, "train", "threads",
            "train.threads = %d, but this process may run on %d CPU%s: the threads will "
            "wait for each other; 0 takes one per CPU",
            run->set.threads, n, n == 1 ? "" : "s");
}

/* A smaller size would split a model into thousands of files; most likely the unit is wrong. */
#define MIN_SHARD_BYTES 1000000

static void warn_shard_size(const lathe_run *run)
{
    if (run->set.checkpoint.shard_bytes >= MIN_SHARD_BYTES ||
        !(lathe_config_float(run->config, "checkpoint", "shard_size") > 0.0))
        return;
    lathe__run_warn(run, "checkpoint", "shard_size",
                    "checkpoint.shard_size = %g GB is %lld bytes: most tensors get a file of their "
                    "own; 0 writes one file",
                    lathe_config_float(run->config, "checkpoint", "shard_size"),
                    (long long)run->set.checkpoint.shard_bytes);
}

static void warn_values(const lathe_run *run)
{
    static const char *const spikes[] = {"spike_threshold", "spike_window", NULL};
    for (int i = 0; run->set.on_spike == LATHE_POLICY_IGNORE && spikes[i]; i++)
        if (is_given(run->config, "train", spikes[i]))
            lathe__run_warn(run, "train", spikes[i],
                            "train.%s only counts spikes in metrics.jsonl, because train.on_spike "
                            "is \"ignore\"; set it to stop, skip or rewind to act on them",
                            spikes[i]);
    lathe__settings_check_pause(run);
    warn_zero_rate(run);
    warn_threads(run);
    warn_shard_size(run);
}

static void warn_training(const lathe_run *run)
{
    static const char *const scale[] = {"loss_scale_init", "loss_scale_growth_interval", NULL};
    static const char *const average[] = {"weight_average_decay", "weight_average_start",
                                          "weight_average_every", NULL};
    const lathe_settings *s = &run->set;
    if (s->precision != LATHE_F16)
        warn_idle_all(run, "train", scale, "it belongs to train.precision = \"fp16\"");
    if (s->weight_average == LATHE_AVERAGE_NONE)
        warn_idle_all(run, "train", average, "train.weight_average is \"none\"");
    else if (s->weight_average == LATHE_AVERAGE_SWA)
        warn_idle(run, "train", "weight_average_decay",
                  "it belongs to train.weight_average = \"ema\"");
    if (s->early_stopping_patience == 0)
        warn_idle(run, "train", "early_stopping_threshold",
                  "train.early_stopping_patience is unset");
    if (!s->offload_optimizer)
        warn_idle(run, "train", "offload_buffer", "train.offload_optimizer is false");
    if (!lathe_settings_has_validation(&run->set))
        warn_idle(run, "train", "eval_batches",
                  "there is nothing to evaluate: data.validation_split, data.validation_count and "
                  "data.validation are unset");
    /* A length on the command line replaces the one in the file. */
    if (s->max_steps > 0 && !lathe_config_is_override(run->config, "train", "max_steps"))
        warn_idle(run, "train", "epochs", "train.max_steps is the length of the run");
}

/* Whether some parameter begins with random values. An adapter over a frozen model, or a head of
 * the stage, may. */
static int begins_random(const lathe_run *run, const lathe_stage_v1 *stage)
{
    const lathe_adapter_v1 *adapter =
        run->parts.adapter.component ? run->parts.adapter.table : NULL;
    return run->set.model_path == NULL || LATHE_HAS(adapter, wrap) ||
           (LATHE_HAS(stage, heads) && stage->n_heads > 0);
}

static void warn_others(const lathe_run *run)
{
    static const char *const best[] = {"best_metric", "best_mode", NULL};
    static const char *const draws[] = {"top_k", "top_p", NULL};
    static const char *const teacher[] = {"path", "stored", "precision", NULL};
    const lathe_settings *s = &run->set;
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    if (stage && !(lathe_answer_needs(&run->parts.stage) & LATHE_NEEDS_TEACHER))
        warn_idle_all(run, "teacher", teacher, "the stage learns from no teacher");
    else if (s->teacher_stored && s->teacher_stored[0])
        warn_idle(run, "teacher", "precision", "teacher.stored has the numbers of the teacher");
    if (s->checkpoint.keep_best == 0)
        warn_idle(run, "checkpoint", "gate", "checkpoint.keep_best is 0");
    if (s->checkpoint.keep_best == 0 && s->early_stopping_patience == 0)
        warn_idle_all(run, "checkpoint", best,
                      "checkpoint.keep_best and train.early_stopping_patience are 0");
    if (run->set.temperature <= 0.0)
        warn_idle_all(run, "generate", draws,
                      "generate.temperature is 0, which takes the likeliest token each time");
    if (!begins_random(run, stage))
        warn_idle(run, "model", "seed", "all weights are those of model.path");
    if (s->draft_path == NULL)
        warn_idle(run, "generate", "draft_tokens", "generate.draft is unset");
    if (s->checkpoint.dir == NULL && s->tensorboard)
        warn_idle(run, "log", "tensorboard", "checkpoint.dir is empty, and the files go there");
    if (lathe_row_shape_get(lathe_rows_of(stage))->is_padded && s->packing != LATHE_PACK_AUTO) {
        char why[96] = "the stage's rows have one record each, and are not packed";
        if (lathe_row_shape_get(lathe_rows_of(stage))->n_answers > 1)
            (void)snprintf(why, sizeof why, "the stage's rows are %s, which are not packed",
                           lathe_row_kind_get(lathe_rows_of(stage))->records);
        warn_idle(run, "data", "packing", why);
    }
    if (stage && stage->rows == LATHE_ROWS_COMPLETIONS && s->packing == LATHE_PACK_SEQUENTIAL)
        warn_idle(run, "data", "packing",
                  "the stage's rows are whole examples, which are packed by multipack");
    if (stage && stage->rows == LATHE_ROWS_PACKED)
        warn_idle(run, "data", "overlong",
                  "the stage's rows are documents, which continue in the next row");
    if (s->tokenizer_train && s->model_path)
        lathe__run_warn(run, "tokenizer", "train",
                        "tokenizer.train together with model.path: the tokens of the new tokenizer "
                        "are not those that the model of %s was trained with",
                        s->model_path);
}

static lathe_status check_early_stopping(const lathe_run *run)
{
    const char *lacks = !lathe_settings_has_validation(&run->set)
                            ? "data.validation, data.validation_split or data.validation_count"
                        : run->set.eval_every == 0 ? "train.eval_every"
                                                   : NULL;
    if (run->set.early_stopping_patience == 0 || lacks == NULL)
        return LATHE_OK;
    return lathe__run_refuse(run, "train", "early_stopping_patience",
                             "train.early_stopping_patience counts evaluations, and there are "
                             "none: set %s, or remove it",
                             lacks);
}

/* The number of tokens of a micro-batch must fit in 32 bits. */
static lathe_status check_batch(const lathe_run *run)
{
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    const int64_t rows =
        (int64_t)run->set.micro_batch_size * lathe_row_shape_get(lathe_rows_of(stage))->n_rows;
    if (rows * run->set.seq_len <= INT32_MAX)
        return LATHE_OK;
    return lathe__run_refuse(
        run, "train", "micro_batch_size",
        "train.micro_batch_size = %d: %lld rows of data.seq_len = %d tokens are "
        "%lld; expected less than 2^31 tokens",
        run->set.micro_batch_size, (long long)rows, run->set.seq_len,
        (long long)(rows * run->set.seq_len));
}

/* Samples need the run's folder; a stop string is a text. */
static lathe_status check_samples(const lathe_run *run)
{
    const lathe_value *stop = lathe_config_get(run->config, "generate", "stop");
    for (int64_t i = 0; stop && stop->is_set && i < stop->n; i++)
        if (stop->strs[i][0] == '\0')
            return lathe__run_refuse(run, "generate", "stop",
                                     "generate.stop[%lld] is empty; expected a text", (long long)i);
    if (run->set.sample_every == 0 || run->set.checkpoint.dir)
        return LATHE_OK;
    return lathe__run_refuse(run, "generate", "every",
                             "generate.every writes samples.jsonl: set checkpoint.dir, its folder");
}

/* Refuses a stage with inputs that data files do not have: it is for callers of the C API, which
 * pass batches. */
static lathe_status check_stage_inputs(const lathe_run *run)
{
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    int32_t i = 0;
    const int32_t n = LATHE_HAS(stage, inputs) ? stage->n_inputs : 0;
    while (i < n && stage->inputs[i].source != LATHE_INPUT_CALLER)
        i++;
    if (i == n || lathe__run_takes_batches(run) || lathe__run_iterates(run))
        return LATHE_OK;
    return lathe__run_refuse(run, "stage", "name",
                             "stage \"%s\" needs its input \"%s\" with each batch, which data "
                             "files do not have: it is for programs that call lathe_forward with "
                             "batches of their own (lathe/lathe.h)",
                             run->parts.stage.component->plugin->name, stage->inputs[i].name);
}

/* Refuses names in checkpoint.allow_changed that need no permission, or that nothing may allow. */
static lathe_status check_allowed(const lathe_run *run)
{
    const lathe_value *list = lathe_config_get(run->config, "checkpoint", "allow_changed");
    for (int64_t i = 0; list && list->is_set && i < list->n; i++)
        if (lathe_change_effect(list->strs[i]) != LATHE_CHANGE_OBJECTIVE)
            return lathe__run_refuse(
                run, "checkpoint", "allow_changed",
                "checkpoint.allow_changed names \"%s\"; expected keys of [stage], [adapter], "
                "[quant], [moe], [reward] or [teacher], as \"stage.beta\"; other keys may change "
                "without "
                "permission, or not at all",
                list->strs[i]);
    return LATHE_OK;
}

lathe_status lathe__settings_check(lathe_run *run)
{
    lathe_status (*const checks[])(const lathe_run *run) = {
        check_batch,
        check_least_rate,
        check_early_stopping,
        check_samples,
        check_stage_inputs,
        lathe__iteration_check,
        lathe__teacher_check_keys,
        lathe__objective_check,
        check_allowed,
        lathe__curvature_check_stage,
        lathe__average_check_optimizer,
        lathe__average_check_start,
        lathe__merge_check,
        lathe__noise_check,
        lathe__run_check_shard,
    };
    lathe_status first = LATHE_OK;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        const lathe_status status = checks[i](run);
        if (status != LATHE_OK && run->open.diags == NULL)
            return status;
        first = first != LATHE_OK ? first : status;
    }
    const lathe_status best = lathe__figure_check_best(run);
    warn_training(run);
    warn_others(run);
    warn_values(run);
    return first != LATHE_OK ? first : best;
}

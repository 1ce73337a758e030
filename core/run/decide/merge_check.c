/* Decides which weights a run merges its adapter into, and refuses what merging contradicts. */
#include "run/decide/run_check.h"

#include <string.h>

#include "base/error.h"
#include "exec/store/moments_reset.h"
#include "plug/answers.h"

static int merges(const lathe_run *run)
{
    return run->set.merge_every > 0 && lathe__run_has_step(run);
}

static int is_given(const lathe_run *run, const char *key)
{
    const lathe_value *value = lathe_config_get(run->config, "adapter", key);
    return value && value->is_explicit;
}

/* A key that nothing reads is most likely a forgotten merge_every. */
static lathe_status refuse_idle(const lathe_run *run)
{
    static const char *const keys[] = {"merge_reset", "merge_prune_ratio", "merge_warmup_steps"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && run->set.merge_every == 0; i++)
        if (is_given(run, keys[i]))
            return lathe__run_refuse(run, "adapter", keys[i],
                                     "adapter.%s belongs to merging, and nothing is merged: set "
                                     "adapter.merge_every, or take it out",
                                     keys[i]);
    return LATHE_OK;
}

static lathe_status check_keys(const lathe_run *run)
{
    const lathe_settings *s = &run->set;
    if (s->merge_warmup_steps >= s->merge_every)
        return lathe__run_refuse(run, "adapter", "merge_warmup_steps",
                                 "adapter.merge_warmup_steps = %lld is not below "
                                 "adapter.merge_every = %lld: the learning rate would never reach "
                                 "that of the schedule",
                                 (long long)s->merge_warmup_steps, (long long)s->merge_every);
    if (is_given(run, "merge_prune_ratio") && s->merge_reset != LATHE_RESET_PRUNE &&
        s->merge_reset != LATHE_RESET_RANDOM)
        return lathe__run_refuse(run, "adapter", "merge_prune_ratio",
                                 "adapter.merge_prune_ratio has no effect: it belongs to "
                                 "adapter.merge_reset = \"prune\" or \"random\"");
    if (s->merge_reset != LATHE_RESET_NONE && s->merge_warmup_steps == 0)
        lathe__run_warn(
            run, "adapter", "merge_every",
            "adapter.merge_every without adapter.merge_warmup_steps: after a merge most "
            "second moments are 0, so the next steps can be far too large; set "
            "merge_warmup_steps, or merge_reset = \"none\"");
    if (s->max_steps > 0 && s->merge_every > s->max_steps)
        lathe__run_warn(run, "adapter", "merge_every",
                        "adapter.merge_every = %lld merges nothing: the run ends after step %lld",
                        (long long)s->merge_every, (long long)s->max_steps);
    return LATHE_OK;
}

/* An average of A and of B over a merge is that of two unrelated pairs. */
static lathe_status check_average(const lathe_run *run)
{
    if (run->set.weight_average != LATHE_AVERAGE_NONE)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every with train.weight_average: after a merge the "
                                 "adapter begins anew, and its average with the values before has "
                                 "no meaning; leave weight_average at \"none\"");
    if (run->parts.optimizer.component && lathe_optimizer_averages(&run->parts.optimizer))
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every with optimizer \"%s\", whose state is an "
                                 "average of the weights: after a merge the adapter begins anew, "
                                 "and the average would pull it back; use adamw",
                                 run->parts.optimizer.component->plugin->name);
    return LATHE_OK;
}

/* With such a stage the base without the adapter is the model before training. */
static lathe_status check_stage(const lathe_run *run)
{
    if (!(lathe_answer_needs(&run->parts.stage) & LATHE_NEEDS_REFERENCE))
        return LATHE_OK;
    return lathe__run_refuse(run, "adapter", "merge_every",
                             "adapter.merge_every with stage \"%s\", which compares the model with "
                             "the one before training: that is the base without its adapter, and a "
                             "merge changes the base; leave merge_every at 0 here, or merge in a "
                             "stage before it",
                             run->parts.stage.component->plugin->name);
}

lathe_status lathe__merge_check(const lathe_run *run)
{
    const lathe_instance *adapter = &run->parts.adapter;
    if (!lathe__run_has_step(run))
        return LATHE_OK;
    LATHE_TRY(refuse_idle(run));
    if (!merges(run) || adapter->component == NULL)
        return LATHE_OK;
    if (!LATHE_HAS((const lathe_adapter_v1 *)adapter->table, merge))
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter \"%s\" has nothing to merge: it adds no weights of its "
                                 "own; use lora, or leave merge_every at 0",
                                 adapter->component->plugin->name);
    LATHE_TRY(check_keys(run));
    LATHE_TRY(check_average(run));
    return check_stage(run);
}

/* Whether a merge concerns a row of the table: a parameter that the adapter added. */
static int is_of_adapter(const lathe_run *run, int32_t i)
{
    const lathe_param *row = run->params.rows[i];
    return i >= run->params.n_model && !row->reference && !row->stage_head;
}

/* Whether the adapter changes the embedding and the head of a tied model alike. */
static int ties(const lathe_run *run)
{
    const lathe_value *value = lathe_config_get(run->config, "adapter", "ensure_weight_tying");
    return value && value->i != 0;
}

/* Marks the bias to which the adapter adds at a weight. */
static lathe_status mark_bias(const lathe_run *run, int32_t weight)
{
    const char *name = run->params.rows[weight]->name;
    const int32_t bias = lathe_params_bias_of(&run->params, weight);
    if (bias < 0)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every: the adapter adds a bias at '%s' "
                                 "(lora_bias), and the model's layer has none, so it cannot be "
                                 "merged: leave lora_bias out, or do not merge",
                                 name);
    if (run->params.rows[bias]->trainable)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every: '%s' trains by itself, besides its adapter",
                                 run->params.rows[bias]->name);
    run->params.rows[bias]->is_merged = 1;
    return LATHE_OK;
}

static lathe_status mark(const lathe_run *run, const lathe_param *of)
{
    const int32_t weight = lathe_params_weight_of(&run->params, of->name);
    lathe_param *row = weight < 0 ? NULL : run->params.rows[weight];
    if (row == NULL)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every: '%s' belongs to a layer without a weight of "
                                 "its own (a head that is the embedding), so it cannot be merged: "
                                 "take the layer out of the adapter's targets",
                                 of->name);
    if (row->is_tied && !ties(run))
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every: '%s' changes the embedding alone, which is "
                                 "the head, too, in this model (tie_word_embeddings), so it cannot "
                                 "be merged: set adapter.ensure_weight_tying = true, or take the "
                                 "embedding out of the adapter's targets",
                                 of->name);
    if (row->format)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every: '%s' is quantized (%s), and what an adapter "
                                 "learns is mostly smaller than the steps of the format, to which "
                                 "a merge would round it: train the adapter over a base in full "
                                 "precision (adapter.name = \"lora\" without quant.name), or do "
                                 "not merge",
                                 row->name, row->format->component->plugin->name);
    if (row->trainable)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every: '%s' trains by itself, besides its adapter",
                                 row->name);
    row->is_merged = 1;
    return lathe_answer_adds_bias(&run->parts.adapter) ? mark_bias(run, weight) : LATHE_OK;
}

lathe_status lathe__merge_plan(lathe_run *run)
{
    LATHE_TRY(lathe__merge_check(run));
    for (int32_t i = 0; i < run->params.n && merges(run); i++)
        if (is_of_adapter(run, i))
            LATHE_TRY(mark(run, run->params.rows[i]));
    return LATHE_OK;
}

lathe_status lathe__merge_check_reset(const lathe_run *run)
{
    for (int32_t i = 0; i < run->params.n && merges(run); i++) {
        if (!is_of_adapter(run, i) || !run->params.rows[i]->trainable)
            continue;
        if (lathe_moments_check(&run->store, i, run->set.merge_reset) == LATHE_OK)
            continue;
        return lathe__run_refuse(
            run, "adapter", "merge_reset", "adapter.merge_reset = \"%s\" with optimizer \"%s\": %s",
            lathe_reset_name(run->set.merge_reset), run->parts.optimizer.component->plugin->name,
            lathe_error_message());
    }
    return LATHE_OK;
}

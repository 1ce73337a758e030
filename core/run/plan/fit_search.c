/* Searches for settings with which a plan fits the machine. */
#include "run/plan/fit_search.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/precision.h"
#include "exec/store/division.h"
#include "graph/passes/passes.h"
#include "parallel/ranks/ranks.h"
#include "run/decide/micro_batches.h"
#include "run/plan/methods.h"
#include "run/plan/trial.h"

/* Each try makes a plan, which takes tens of milliseconds. */
enum { MAX_TRIES = 100, MAX_RANKS = 4096 };

typedef struct search {
    const lathe_run *run;
    lathe_fit *fit;
    int32_t tries;
    int32_t n_ranks; /* as one of which each try is planned; below 2: alone */
} search;

/* Plans the run as one of n_ranks, or alone in a mode like its own. */
static lathe_status plan_as(const lathe_run *run, int32_t n_ranks, const lathe_edits *edits,
                            lathe_run **out)
{
    const lathe_trial alone = {.wants = lathe__run_alike(run)};
    return n_ranks > 1 ? lathe_run_open_as_rank(run, n_ranks, edits, out)
                       : lathe__run_try(run, &alone, edits, out);
}

/* Plans with the changes as one of n_ranks. A plan that fails (for example because an adapter does
 * not suit the model) does not fit. */
static int plan_fits_on(search *s, const lathe_edits *changes, int32_t n_ranks, int64_t *out_peak)
{
    lathe_edits all = {.n = 0};
    lathe_run *run = NULL;
    lathe_fit fit;
    if (s->tries++ >= MAX_TRIES)
        return 0;
    if (!lathe__run_has_step(s->run)) /* measured once, not again for each try */
        lathe_edits_text(&all, LATHE_BY_TRIAL, "train.precision",
                         lathe_precision_name(s->run->set.precision));
    lathe_edits_take(&all, changes, 0);
    const lathe_status status =
        all.status == LATHE_OK ? plan_as(s->run, n_ranks, &all, &run) : all.status;
    lathe_edits_fini(&all);
    if (status != LATHE_OK)
        return 0;
    lathe_fit_check(run, &fit);
    lathe_run_close(run);
    *out_peak = fit.need;
    return fit.need <= fit.have;
}

static int plan_fits(search *s, const lathe_edits *changes, int64_t *out_peak)
{
    return plan_fits_on(s, changes, s->n_ranks, out_peak);
}

/* Adds the changes to the advice. more_ranks: 0, or the number of ranks that they need. */
static int add_option(search *s, const lathe_edits *changes, int32_t more_ranks, int64_t peak)
{
    lathe_fit_option *option = &s->fit->options[s->fit->n_options];
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_edits_put(changes, &text);
    if (more_ranks > 0)
        lathe_buffer_printf(&text, " on %d ranks", more_ranks);
    const int is_whole = text.status == LATHE_OK && text.len < (int64_t)sizeof option->settings;
    if (is_whole)
        (void)snprintf(option->settings, sizeof option->settings, "%s", text.data ? text.data : "");
    option->peak = peak;
    s->fit->n_options += is_whole;
    lathe_buffer_fini(&text);
    return is_whole;
}

/* Plans with the changes; returns 1 and adds them to the advice if the plan fits. */
static int fits(search *s, const lathe_edits *changes)
{
    int64_t peak = 0;
    return s->fit->n_options < LATHE_FIT_OPTIONS && plan_fits(s, changes, &peak) &&
           add_option(s, changes, 0, peak);
}

/* The changes, with micro-batches of `rows`. */
static void put_rows(const search *s, const lathe_edits *base, lathe_micro_batches batch,
                     int32_t rows, lathe_edits *out)
{
    const int trains = !lathe__run_evaluates(s->run);
    lathe_edits_take(out, base, 0);
    lathe_micro_batches_put(lathe_micro_batches_of(batch, rows), trains, LATHE_BY_TRIAL, out);
}

/* Tries smaller micro-batches for the same step: the largest that fits, if one row does. */
static int smaller_batches(search *s, const lathe_edits *base)
{
    const lathe_settings *set = &s->run->set;
    const lathe_micro_batches batch = {set->micro_batch_size, set->gradient_accumulation_steps};
    lathe_edits one = {.n = 0};
    int64_t peak;
    if (!lathe_micro_batches_may_split(s->run, batch))
        return 0;
    put_rows(s, base, batch, 1, &one);
    int goes_on = plan_fits(s, &one, &peak), found = 0;
    lathe_edits_fini(&one);
    for (int32_t rows = batch.rows; goes_on && !found;) {
        lathe_edits c = {.n = 0};
        rows = lathe_micro_batches_next(batch, rows);
        put_rows(s, base, batch, rows, &c);
        found = fits(s, &c);
        goes_on = rows > 1;
        lathe_edits_fini(&c);
    }
    return found;
}

static int is_named(const lathe_instance *instance, const char *name)
{
    return instance->component && strcmp(instance->component->plugin->name, name) == 0;
}

/* Whether offloading the optimizer's state would free device memory. */
static int may_offload(const lathe_machine *m, const lathe_store *store)
{
    return !lathe_machine_memory(m)->is_of_host && !store->slots_on_host && store->slot_bytes > 0 &&
           LATHE_HAS(m->dev, event_record);
}

/* Whether offloading activations would free device memory. */
static int may_offload_values(const lathe_run *run)
{
    return !lathe_machine_memory(&run->machine)->is_of_host && !run->set.offload_activations &&
           lathe_machine_has_events(&run->machine);
}

static int with_text(search *s, lathe_edits *c, const char *key, const char *value)
{
    lathe_edits_text(c, LATHE_BY_TRIAL, key, value);
    return fits(s, c);
}

static int with(search *s, lathe_edits *c, const char *key, int32_t value)
{
    lathe_edits_bool(c, LATHE_BY_TRIAL, key, value);
    return fits(s, c);
}

/* Tries offloading to host memory: the optimizer's state, activations, or both. */
static void search_offload(search *s)
{
    lathe_edits state = {.n = 0}, values = {.n = 0};
    if (may_offload(&s->run->machine, &s->run->store))
        (void)with(s, &state, "train.offload_optimizer", 1);
    if (may_offload_values(s->run))
        (void)with(s, &values, "train.offload_activations", 1);
    if (state.n > 0 && values.n > 0 && s->fit->n_options == 0)
        (void)with(s, &state, "train.offload_activations", 1);
    lathe_edits_fini(&state);
    lathe_edits_fini(&values);
}

/* Tries recomputation of the layers, with offloading if needed. */
static void search_layers(search *s)
{
    lathe_edits c = {.n = 0};
    int done = with_text(s, &c, "train.recompute", "layer") || s->fit->n_options > 0;
    if (!done && may_offload_values(s->run))
        done = with(s, &c, "train.offload_activations", 1);
    if (!done)
        done = smaller_batches(s, &c);
    if (!done && may_offload(&s->run->machine, &s->run->store) &&
        !with(s, &c, "train.offload_optimizer", 1))
        (void)smaller_batches(s, &c);
    lathe_edits_fini(&c);
}

/* Tries 16-bit gradients, with recomputation of the layers if needed. */
static void search_narrow(search *s)
{
    lathe_edits c = {.n = 0};
    if (s->run->set.compute_dtype == LATHE_BF16 && s->run->set.grad_dtype == LATHE_F32 &&
        !with_text(s, &c, "train.grad_dtype", "bf16") && s->fit->n_options == 0)
        (void)with_text(s, &c, "train.recompute", "layer");
    lathe_edits_fini(&c);
}

/* Tries fewer trained parameters: lora, then also recomputation, smaller micro-batches, 4-bit
 * weights. */
static void search_lora(search *s)
{
    lathe_edits c = {.n = 0};
    int done = with_text(s, &c, "adapter.name", "lora") || s->fit->n_options > 0;
    if (!done)
        done = with_text(s, &c, "train.recompute", "layer") || smaller_batches(s, &c);
    if (!done && !with_text(s, &c, "quant.name", "nf4"))
        (void)smaller_batches(s, &c);
    lathe_edits_fini(&c);
}

/* The changes with which ranks of an island divide as much as they can. */
static void divide(const search *s, int32_t shard, int32_t n_ranks, lathe_edits *out)
{
    const int32_t islands = s->run->set.diloco_islands > 0 ? s->run->set.diloco_islands : 1;
    lathe_edits_text(out, LATHE_BY_TRIAL, "parallel.shard", lathe_shard_name(shard));
    if (islands > 1 || s->run->set.shard_ranks > 0) /* all ranks, but those of other islands */
        lathe_edits_int(out, LATHE_BY_TRIAL, "parallel.shard_ranks",
                        islands > 1 ? n_ranks / islands : 0);
}

/* Tries what ranks may divide, from the least: the step has the same result. */
static void search_shards(search *s)
{
    const int32_t set = s->run->set.shard;
    const int32_t first = set >= LATHE_SHARD_AUTO ? LATHE_SHARD_OPTIMIZER : set + 1;
    int found = 0;
    for (int32_t shard = first; shard <= LATHE_SHARD_PARAMETERS && !found; shard++) {
        lathe_edits c = {.n = 0};
        divide(s, shard, s->n_ranks, &c);
        found = fits(s, &c);
        lathe_edits_fini(&c);
    }
}

/* Whether n ranks that divide the parameters fit. */
static int is_enough(search *s, int32_t n_ranks, int64_t *peak)
{
    lathe_edits c = {.n = 0};
    divide(s, LATHE_SHARD_PARAMETERS, n_ranks, &c);
    const int result = plan_fits_on(s, &c, n_ranks, peak);
    lathe_edits_fini(&c);
    return result;
}

/* Finds the fewest ranks that fit when they divide the parameters: doubles their number, then
 * halves the step. Multiples of `each` can be laid out. */
static void search_more_ranks(search *s)
{
    const int32_t each = s->run->set.diloco_islands > 0 ? s->run->set.diloco_islands : 1;
    int64_t peak = 0, best_peak = 0;
    int32_t low = s->n_ranks / each, high = low;
    lathe_edits c = {.n = 0};
    s->tries = 0; /* it comes last */
    s->fit->tried_ranks = 1;
    while (best_peak == 0 && high <= MAX_RANKS / 2 / each) {
        low = high;
        high *= 2;
        if (is_enough(s, high * each, &peak))
            best_peak = peak;
    }
    while (best_peak > 0 && high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        const int enough = is_enough(s, middle * each, &peak);
        best_peak = enough ? peak : best_peak;
        *(enough ? &high : &low) = middle;
    }
    divide(s, LATHE_SHARD_PARAMETERS, high * each, &c);
    if (best_peak > 0)
        (void)add_option(s, &c, high * each, best_peak);
    lathe_edits_fini(&c);
}

/* Tries options in this order: those with the same result, 16-bit gradients, fewer trained
 * parameters, shorter rows. */
static void search_training(search *s)
{
    const lathe_edits none = {.n = 0};
    if (s->n_ranks > 1)
        search_shards(s);
    if (s->run->planned.by[LATHE_MEM_CHECKPOINT] > 0) {
        lathe_edits c = {.n = 0};
        (void)with(s, &c, "checkpoint.async", 0);
        lathe_edits_fini(&c);
    }
    search_offload(s);
    (void)smaller_batches(s, &none);
    if (may_offload(&s->run->machine, &s->run->store) && s->fit->n_options == 0) {
        lathe_edits c = {.n = 0};
        lathe_edits_bool(&c, LATHE_BY_TRIAL, "train.offload_optimizer", 1);
        (void)smaller_batches(s, &c);
        lathe_edits_fini(&c);
    }
    if (s->run->set.recompute != LATHE_RECOMPUTE_LAYER)
        search_layers(s);
    search_narrow(s);
    if (is_named(&s->run->parts.adapter, "full"))
        search_lora(s);
}

/* Adds the fine-tuning methods that fit, from the one that trains most. */
static void search_methods(search *s)
{
    lathe_methods methods;
    const lathe_run *run = s->run;
    if (lathe_edits_have(&run->decided.edits, LATHE_BY_AUTO, "adapter.name") ||
        run->parts.adapter.component == NULL)
        return; /* adapter.name = "auto" has tried them */
    if (s->n_ranks > 1)
        return; /* they are planned alone; lora and qlora have been tried */
    if (lathe_methods_plan(run, 1, &methods) != LATHE_OK) {
        lathe_error_clear();
        return;
    }
    for (int32_t i = 0; i < methods.n && s->fit->n_options < LATHE_FIT_OPTIONS; i++) {
        lathe_fit_option *option = &s->fit->options[s->fit->n_options];
        lathe_buffer text = LATHE_BUFFER_INIT;
        if (!lathe_method_fits(&methods, &methods.rows[i], &option->peak))
            continue;
        lathe_method_settings(&methods.rows[i], &text);
        (void)snprintf(option->settings, sizeof option->settings, "%s", text.data ? text.data : "");
        s->fit->n_options += text.status == LATHE_OK && text.len < (int64_t)sizeof option->settings;
        lathe_buffer_fini(&text);
    }
    s->fit->auto_fits = s->fit->n_options > 0;
}

static void search_rows(search *s)
{
    int done = 0;
    for (int32_t tokens = s->run->set.seq_len / 2; tokens >= 16 && !done; tokens /= 2) {
        lathe_edits c = {.n = 0};
        lathe_edits_int(&c, LATHE_BY_TRIAL, "data.seq_len", tokens);
        if (!lathe__run_infers(s->run) && s->run->set.micro_batch_size > 1)
            lathe_edits_int(&c, LATHE_BY_TRIAL, "train.micro_batch_size", 1);
        if (lathe__run_has_step(s->run) && s->run->set.recompute != LATHE_RECOMPUTE_LAYER)
            lathe_edits_text(&c, LATHE_BY_TRIAL, "train.recompute", "layer");
        done = fits(s, &c);
        lathe_edits_fini(&c);
    }
}

void lathe_fit_search(const lathe_run *run, lathe_fit *fit)
{
    const int32_t n = run->ranks ? lathe_ranks_count(run->ranks) : run->open.as_ranks;
    lathe_fit_search_ranks(run, n, fit);
}

void lathe_fit_search_ranks(const lathe_run *run, int32_t n_ranks, lathe_fit *fit)
{
    search s = {.run = run, .fit = fit, .n_ranks = n_ranks};
    const lathe_edits none = {.n = 0};
    fit->is_searched = 1;
    if (lathe__run_has_step(run))
        search_training(&s);
    else if (lathe__run_evaluates(run))
        (void)smaller_batches(&s, &none);
    if (!lathe__run_has_step(run) && run->set.compute_dtype == LATHE_F32) {
        lathe_edits half = {.n = 0};
        (void)with_text(&s, &half, "train.precision", "bf16");
        lathe_edits_fini(&half);
    }
    if (fit->n_options == 0 && lathe__run_has_step(run))
        search_methods(&s);
    if (fit->n_options == 0)
        search_rows(&s);
    if (fit->n_options == 0 && n_ranks > 1)
        search_more_ranks(&s);
}

int64_t lathe_fit_saved(const lathe_run *run, const char *key)
{
    const lathe_trial how = {.wants = lathe__run_alike(run)};
    lathe_edits off = {.n = 0};
    lathe_run *without = NULL;
    int64_t peak = 0;
    lathe_edits_bool(&off, LATHE_BY_TRIAL, key, 0);
    if (lathe__run_try(run, &how, &off, &without) == LATHE_OK)
        peak = lathe_machine_total(&without->machine, &without->planned) -
               lathe_machine_total(&run->machine, &run->planned);
    lathe_run_close(without);
    lathe_edits_fini(&off);
    return peak;
}

/* ---- the check of a run ---- */

lathe_status lathe__run_fits(const lathe_run *run)
{
    lathe_fit fit;
    lathe_fit_check(run, &fit);
    if (fit.need <= fit.have)
        return LATHE_OK;
    lathe_fit_search(run, &fit);
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_fit_text(&fit, &text);
    lathe_status status = text.status;
    for (char *at = text.data; run->ranks && at && (at = strchr(at, '\n')) != NULL;)
        *at = ' '; /* one line from one rank */
    if (status == LATHE_OK)
        status = lathe__run_refuse(
            run, run->set.memory_limit > 0 ? "train" : "", "memory_limit",
            "the plan %s%strain.memory_limit (GiB) replaces the limit that was found", text.data,
            run->ranks ? "; " : "\n");
    lathe_buffer_fini(&text);
    return status;
}

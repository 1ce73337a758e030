/* Searches for settings with which a plan fits the machine. */
#include "opening/fit_search.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "opening/methods.h"
#include "opening/opening.h"
#include "passes/passes.h"

/* Limits, large enough for every case below. Each try makes a plan, which takes tens of
 * milliseconds. */
enum { MAX_TRIES = 40, MAX_CHANGES = 8, MAX_USER = 256 };

typedef struct search {
    const lathe_run *run;
    lathe_fit *fit;
    int32_t tries;
} search;

/* Settings of one try, on top of the user's. */
typedef struct changes {
    lathe_override list[MAX_CHANGES];
    char values[MAX_CHANGES][24];
    int32_t n;
} changes;

static void change(changes *c, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void change(changes *c, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(c->values[c->n], sizeof c->values[c->n], format, args);
    va_end(args);
    c->list[c->n] = (lathe_override){key, c->values[c->n]};
    c->n++;
}

/* Plans with the changes; returns 1 and stores them if the plan fits. A plan that fails (for
 * example because an adapter does not suit the model) does not count. */
static int fits(search *s, const changes *c)
{
    lathe_override list[MAX_USER + MAX_CHANGES + 2];
    lathe_run *run = NULL;
    lathe_fit fit;
    const lathe_opening *open = &s->run->open;
    if (s->tries++ >= MAX_TRIES || open->n_overrides > MAX_USER ||
        s->fit->n_options == LATHE_FIT_OPTIONS)
        return 0;
    int32_t n = 0;
    for (; n < open->n_overrides; n++)
        list[n] = open->overrides[n];
    if (open->mode > LATHE_OPEN_TRAIN) /* measured once, not again for each try */
        list[n++] =
            (lathe_override){"train.precision", lathe_precision_name(s->run->set.precision)};
    for (int32_t i = 0; i < c->n; i++)
        list[n++] = c->list[i];
    list[n++] = (lathe_override){"log.level", "error"};
    const int32_t mode = open->mode <= LATHE_OPEN_TRAIN ? LATHE_OPEN_PLAN : open->mode;
    if (lathe__run_open_planned(open->path, list, n, mode, 0, 0, &run) != LATHE_OK)
        return 0;
    lathe_fit_check(run, &fit);
    lathe_run_close(run);
    if (fit.need > fit.have)
        return 0;
    lathe_fit_option *option = &s->fit->options[s->fit->n_options++];
    size_t at = 0;
    for (int32_t i = 0; i < c->n; i++)
        at += (size_t)snprintf(option->settings + at, sizeof option->settings - at, "%s--%s %s",
                               i > 0 ? " " : "", c->list[i].key, c->list[i].value);
    option->peak = fit.need;
    return 1;
}

/* Tries smaller micro-batches for the same step; finds the largest that fits. */
static int smaller_batches(search *s, const changes *base)
{
    const int32_t rows = s->run->set.micro_batch_size;
    const int64_t step = (int64_t)rows * s->run->set.gradient_accumulation_steps;
    for (int32_t b = rows / 2; b >= 1; b /= 2) {
        while (step % b != 0)
            b--;
        changes c = *base;
        for (int32_t i = 0; i < c.n; i++)
            c.list[i].value = c.values[i];
        change(&c, "train.micro_batch_size", "%d", b);
        if (s->run->open.mode != LATHE_OPEN_EVALUATE)
            change(&c, "train.gradient_accumulation_steps", "%lld", (long long)(step / b));
        if (fits(s, &c))
            return 1;
    }
    return 0;
}

static int is_named(const lathe_instance *instance, const char *name)
{
    return instance->component && strcmp(instance->component->plugin->name, name) == 0;
}

/* Whether offloading the optimizer's state would free device memory. */
static int may_offload(const lathe_machine *m, const lathe_store *store)
{
    return !lathe_machine_shares(m) && !store->slots_on_host && store->slot_bytes > 0 &&
           LATHE_HAS(m->dev, event_record);
}

/* Whether offloading activations would free device memory. */
static int may_offload_values(const lathe_run *run)
{
    return !lathe_machine_shares(&run->machine) && !run->set.offload_activations &&
           lathe_machine_has_events(&run->machine);
}

static int with(search *s, changes *c, const char *key, const char *value)
{
    change(c, key, "%s", value);
    return fits(s, c);
}

/* Tries offloading to host memory: the optimizer's state, activations, or both; then also with the
 * smallest micro-batch. */
static void search_offload(search *s)
{
    changes state = {.n = 0}, values = {.n = 0};
    if (may_offload(&s->run->machine, &s->run->store))
        (void)with(s, &state, "train.offload_optimizer", "true");
    if (may_offload_values(s->run))
        (void)with(s, &values, "train.offload_activations", "true");
    if (state.n > 0 && values.n > 0 && s->fit->n_options == 0)
        (void)with(s, &state, "train.offload_activations", "true");
}

/* Tries recomputation of the layers, with offloading if needed. */
static int search_layers(search *s, changes *layer)
{
    if (with(s, layer, "train.recompute", "layer") || s->fit->n_options > 0)
        return 1;
    if (may_offload_values(s->run) && with(s, layer, "train.offload_activations", "true"))
        return 1;
    if (smaller_batches(s, layer))
        return 1;
    if (!may_offload(&s->run->machine, &s->run->store))
        return 0;
    return with(s, layer, "train.offload_optimizer", "true") || smaller_batches(s, layer);
}

/* Tries 16-bit gradients, with recomputation of the layers if needed. */
static void search_narrow(search *s)
{
    changes narrow = {.n = 0};
    if (s->run->set.compute_dtype == LATHE_BF16 && s->run->set.grad_dtype == LATHE_F32 &&
        !with(s, &narrow, "train.grad_dtype", "bf16") && s->fit->n_options == 0)
        (void)with(s, &narrow, "train.recompute", "layer");
}

/* Tries options in this order: those with the same result, 16-bit gradients, fewer trained
 * parameters, shorter rows. */
static void search_training(search *s)
{
    const changes none = {.n = 0};
    changes alone = {.n = 0}, layer = {.n = 0}, lora = {.n = 0}, offload = {.n = 0};
    if (s->run->planned.by[LATHE_MEM_CHECKPOINT] > 0)
        (void)with(s, &alone, "checkpoint.async", "false");
    search_offload(s);
    (void)smaller_batches(s, &none);
    if (may_offload(&s->run->machine, &s->run->store) && s->fit->n_options == 0) {
        change(&offload, "train.offload_optimizer", "true");
        (void)smaller_batches(s, &offload);
    }
    if (s->run->set.recompute != LATHE_RECOMPUTE_LAYER)
        (void)search_layers(s, &layer);
    search_narrow(s);
    if (is_named(&s->run->parts.adapter, "full")) {
        change(&lora, "adapter.name", "lora");
        if (!fits(s, &lora) && s->fit->n_options == 0) {
            change(&lora, "train.recompute", "layer");
            if (!fits(s, &lora) && !smaller_batches(s, &lora)) {
                change(&lora, "quant.name", "nf4");
                if (!fits(s, &lora))
                    (void)smaller_batches(s, &lora);
            }
        }
    }
}

/* Adds the fine-tuning methods that fit, from the one that trains most. */
static void search_methods(search *s)
{
    lathe_methods methods;
    const lathe_run *run = s->run;
    if (run->open.n_chosen > 0 || !run->parts.adapter.component)
        return; /* adapter.name = "auto" has tried them */
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
    for (int32_t tokens = s->run->set.seq_len / 2; tokens >= 16; tokens /= 2) {
        changes c = {.n = 0};
        change(&c, "data.seq_len", "%d", tokens);
        if (s->run->open.mode != LATHE_OPEN_INFER && s->run->set.micro_batch_size > 1)
            change(&c, "train.micro_batch_size", "1");
        if (s->run->open.mode <= LATHE_OPEN_TRAIN && s->run->set.recompute != LATHE_RECOMPUTE_LAYER)
            change(&c, "train.recompute", "layer");
        if (fits(s, &c))
            return;
    }
}

void lathe_fit_search(const lathe_run *run, lathe_fit *fit)
{
    search s = {run, fit, 0};
    const changes none = {.n = 0};
    fit->is_searched = 1;
    if (run->open.mode <= LATHE_OPEN_TRAIN)
        search_training(&s);
    else if (run->open.mode == LATHE_OPEN_EVALUATE)
        (void)smaller_batches(&s, &none);
    if (run->open.mode > LATHE_OPEN_TRAIN && run->set.compute_dtype == LATHE_F32) {
        changes half = {.n = 0};
        change(&half, "train.precision", "bf16");
        (void)fits(&s, &half);
    }
    if (fit->n_options == 0 && run->open.mode <= LATHE_OPEN_TRAIN)
        search_methods(&s);
    if (fit->n_options == 0)
        search_rows(&s);
    lathe_log_set_level(run->set.log_level);
}

int64_t lathe_fit_saved(const lathe_run *run, const char *key)
{
    lathe_override list[MAX_USER + 2];
    lathe_run *without = NULL;
    const int32_t n_overrides = run->open.n_overrides;
    if (n_overrides > MAX_USER)
        return 0;
    for (int32_t i = 0; i < n_overrides; i++)
        list[i] = run->open.overrides[i];
    list[n_overrides] = (lathe_override){key, "false"};
    list[n_overrides + 1] = (lathe_override){"log.level", "error"};
    int64_t peak = 0;
    if (lathe__run_open_planned(run->open.path, list, n_overrides + 2, run->open.mode, 0, 0,
                                &without) == LATHE_OK)
        peak = lathe_machine_total(&without->machine, &without->planned) -
               lathe_machine_total(&run->machine, &run->planned);
    lathe_run_close(without);
    lathe_log_set_level(run->set.log_level);
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

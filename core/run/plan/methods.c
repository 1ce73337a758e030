/* Plans a run with each fine-tuning method and chooses one. */
#include "run/plan/methods.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "run/plan/fit.h"
#include "run/plan/trial.h"
#include "run/resume/resume_check.h"

enum { MAX_OWN = LATHE_MAX_METHOD_SETTINGS - 1 };

/* A number that depends on the model: half of its layers, rounded up. */
enum { HALF = -1 };

/* From the method that trains most to the one that needs least memory. Ends at a NULL key. */
static const lathe_method_setting all_methods[][MAX_OWN] = {
    {{"adapter.name", "full", 0}},
    {{"adapter.name", "freeze", 0}, {"adapter.layers", NULL, HALF}},
    {{"adapter.name", "lora", 0}, {"adapter.r", NULL, 128}, {"adapter.alpha", NULL, 128}},
    {{"adapter.name", "lora", 0}, {"adapter.r", NULL, 32}, {"adapter.alpha", NULL, 32}},
    {{"adapter.name", "lora", 0}, {"adapter.r", NULL, 8}, {"adapter.alpha", NULL, 8}},
    {{"adapter.name", "qlora", 0},
     {"adapter.r", NULL, 32},
     {"adapter.alpha", NULL, 32},
     {"quant.name", "nf4", 0}},
    {{"adapter.name", "qlora", 0},
     {"adapter.r", NULL, 8},
     {"adapter.alpha", NULL, 8},
     {"quant.name", "nf4", 0}},
};
enum { N_METHODS = sizeof all_methods / sizeof all_methods[0] };
_Static_assert((int)N_METHODS <= (int)LATHE_MAX_METHODS, "lathe_methods holds every method");

static const char recompute_key[] = "train.recompute";

/* Whether the run itself chose a value for the key, in place of adapter.name = "auto". */
static int is_chosen(const lathe_run *run, const char *key)
{
    return lathe_edits_have(&run->decided.edits, LATHE_BY_AUTO, key);
}

/* Whether the user sets train.recompute. */
static int sets_recomputation(const lathe_run *run)
{
    return lathe_config_is_explicit(run->config, "train", "recompute") &&
           !is_chosen(run, recompute_key);
}

/* Whether the user names the format of the frozen weights. */
static int is_quantized(const lathe_run *run)
{
    return lathe_config_part(run->config, LATHE_KIND_QUANT)->component != NULL &&
           !is_chosen(run, "quant.name");
}

/* Makes the row of a method. Returns 0 if another method has the same settings for this run: the
 * file itself names the format of the frozen weights. */
static int make_row(const lathe_run *run, int32_t index, int64_t n_layers, lathe_method_row *row)
{
    memset(row, 0, sizeof *row);
    for (int32_t i = 0; i < MAX_OWN && all_methods[index][i].key; i++) {
        lathe_method_setting *to = &row->set[row->n_set++];
        *to = all_methods[index][i];
        if (strcmp(to->key, "quant.name") == 0 && is_quantized(run))
            return 0;
        if (to->text == NULL && to->number == HALF)
            to->number = (n_layers + 1) / 2;
    }
    return 1;
}

void lathe_method_edits(const lathe_method_row *row, int32_t by, lathe_edits *out)
{
    for (int32_t i = 0; i < row->n_set; i++)
        if (row->set[i].text)
            lathe_edits_text(out, by, row->set[i].key, row->set[i].text);
        else
            lathe_edits_int(out, by, row->set[i].key, row->set[i].number);
    if (row->recomputes)
        lathe_edits_text(out, by, recompute_key, "layer");
    if (row->split.rows)
        lathe_micro_batches_put(row->split, 1, by, out);
}

/* ---- planning ---- */

/* Plans the run with the row's settings, and recomputation if asked for. */
static lathe_status plan(const lathe_run *run, const lathe_method_row *row, int recompute,
                         lathe_run **out)
{
    const lathe_trial how = {.wants = LATHE_OPEN_PLAN, .is_other_method = 1, .drops_auto = 1};
    lathe_method_row with = *row;
    lathe_edits edits = {.n = 0};
    with.recomputes = recompute;
    lathe_method_edits(&with, LATHE_BY_TRIAL, &edits);
    const lathe_status status = lathe__run_try(run, &how, &edits, out);
    lathe_edits_fini(&edits);
    return status;
}

static int64_t count_trained(const lathe_params *params)
{
    int64_t n = 0;
    for (int32_t i = 0; i < params->n; i++)
        if (params->rows[i]->trainable)
            n += lathe_desc_count(&params->rows[i]->desc);
    return n;
}

/* Plans a row. Returns 1 and *out_peak if it can be planned; otherwise fills in the refusal. */
static int plan_row(const lathe_run *run, int recompute, lathe_methods *all, lathe_method_row *row,
                    int64_t *out_peak)
{
    lathe_run *planned = NULL;
    lathe_fit fit;
    if (plan(run, row, recompute, &planned) != LATHE_OK) {
        (void)lathe_error_line(row->refusal, sizeof row->refusal);
        return 0;
    }
    lathe_fit_check(planned, &fit);
    row->n_trained = count_trained(&planned->params);
    *out_peak = fit.need;
    all->have = fit.have;
    memcpy(all->source, fit.source, sizeof all->source);
    lathe_run_close(planned);
    return 1;
}

/* Looks for the largest micro-batches with which a method fits, after it has asked whether one row
 * fits. Tries each size without recomputation first. */
static int plan_split(const lathe_run *run, lathe_micro_batches batch, lathe_methods *all,
                      lathe_method_row *row)
{
    const int32_t layers = !sets_recomputation(run);
    lathe_method_row found = *row;
    found.split = lathe_micro_batches_of(batch, 1);
    if (!plan_row(run, layers, all, &found, &found.peak_split) || found.peak_split > all->have)
        return 0;
    for (int32_t d = batch.rows; (d = lathe_micro_batches_next(batch, d)) > 0;) {
        found.split = lathe_micro_batches_of(batch, d);
        for (found.recomputes = 0; found.recomputes <= layers; found.recomputes++)
            if (plan_row(run, found.recomputes, all, &found, &found.peak_split) &&
                found.peak_split <= all->have) {
                *row = found;
                return 1;
            }
    }
    return 0;
}

/* Plans a method, then with layers recomputed, then with smaller micro-batches; chooses it if it is
 * the first that fits. */
static void plan_method(const lathe_run *run, lathe_micro_batches batch, int32_t everything,
                        lathe_methods *all)
{
    lathe_method_row *row = &all->rows[all->n];
    row->is_refused = !plan_row(run, 0, all, row, &row->peak);
    int fits = !row->is_refused && row->peak <= all->have;
    if (!row->is_refused && (everything || !fits) && !sets_recomputation(run) &&
        plan_row(run, 1, all, row, &row->peak_layers) && !fits)
        fits = row->recomputes = row->peak_layers <= all->have;
    if (!row->is_refused && !fits && lathe_micro_batches_may_split(run, batch))
        fits = plan_split(run, batch, all, row);
    if (fits && all->chosen < 0)
        all->chosen = all->n;
    all->n++;
}

/* Properties of a run's model and batches that its run file gives. */
typedef struct file_facts {
    int64_t n_layers;
    lathe_micro_batches batch;
    int32_t is_quantized; /* the folder of model.path has quantized weights */
} file_facts;

/* Reads it from the first method that can be planned. The run's own settings may be those of a
 * chosen method. Returns 0 if none can be planned. */
static int read_file(const lathe_run *run, file_facts *out)
{
    *out = (file_facts){.batch = {1, 1}};
    for (int32_t i = 0; i < N_METHODS; i++) {
        lathe_method_row row;
        lathe_run *planned = NULL;
        if (!make_row(run, i, 1, &row) || plan(run, &row, 0, &planned) != LATHE_OK)
            continue;
        out->n_layers = planned->model.n_layers;
        out->batch = (lathe_micro_batches){planned->set.micro_batch_size,
                                           planned->set.gradient_accumulation_steps};
        out->is_quantized = planned->model.is_quantized;
        lathe_run_close(planned);
        return 1;
    }
    return 0;
}

/* Whether [quant] would encode nothing in a folder whose weights are quantized already, so that the
 * method is the same as one without it. */
static int repeats(const lathe_method_row *row)
{
    int sets_format = 0;
    for (int32_t i = 0; i < row->n_set; i++)
        sets_format |= strcmp(row->set[i].key, "quant.name") == 0;
    return sets_format && row->is_refused;
}

lathe_status lathe_methods_plan(const lathe_run *run, int32_t all, lathe_methods *out)
{
    file_facts file;
    const int is_known = read_file(run, &file);
    memset(out, 0, sizeof *out);
    out->chosen = -1;
    out->have = INT64_MAX;
    out->is_auto = is_chosen(run, "adapter.name") ||
                   lathe_config_part(run->config, LATHE_KIND_ADAPTER)->is_auto;
    const char *adapter = lathe_config_part(run->config, LATHE_KIND_ADAPTER)->name;
    (void)snprintf(out->adapter, sizeof out->adapter, "%s", adapter ? adapter : "");
    if (!is_known) /* the thread's message is that of the last method */
        return LATHE_E_CONFIG;
    for (int32_t i = 0; i < N_METHODS && (all || out->chosen < 0); i++) {
        if (!make_row(run, i, file.n_layers, &out->rows[out->n]))
            continue;
        plan_method(run, file.batch, all, out);
        out->n -= file.is_quantized && repeats(&out->rows[out->n - 1]);
    }
    out->is_split = lathe_micro_batches_may_split(run, file.batch);
    out->micro_batch = file.batch.rows;
    return LATHE_OK;
}

/* ---- the choice ---- */

/* Adds the settings of a method to those of the run. */
static lathe_status apply(lathe_run *run, const lathe_method_row *row)
{
    lathe_method_edits(row, LATHE_BY_AUTO, &run->decided.edits);
    return run->decided.edits.status == LATHE_OK
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "no memory for the settings of a method");
}

/* The value of "section.key" in a checkpoint's configuration; NULL: it has none. */
static const json_t *value_of(const json_t *config, const char *name)
{
    char section[32];
    const size_t dot = strcspn(name, ".");
    (void)snprintf(section, sizeof section, "%.*s", (int)dot, name);
    return json_object_get(json_object_get(config, section), name + dot + 1);
}

/* Whether a checkpoint's configuration has this text. */
static int has_text(const json_t *config, const char *name, const char *text)
{
    const json_t *found = value_of(config, name);
    return json_is_string(found) && strcmp(json_string_value(found), text) == 0;
}

/* Whether it has this number. Numbers of a method are small integers, also where the key takes
 * others. */
static int has_number(const json_t *config, const char *name, int64_t number)
{
    const json_t *found = value_of(config, name);
    const double difference = json_number_value(found) - (double)number;
    return json_is_number(found) && !(difference < 0.0) && !(difference > 0.0);
}

/* Whether a checkpoint was written with the method. */
static int is_method_of(const lathe_run *run, const json_t *config, const lathe_method_row *row)
{
    int names_format = 0;
    for (int32_t i = 0; i < row->n_set; i++) {
        names_format |= strcmp(row->set[i].key, "quant.name") == 0;
        if (row->set[i].text ? !has_text(config, row->set[i].key, row->set[i].text)
                             : !has_number(config, row->set[i].key, row->set[i].number))
            return 0;
    }
    const lathe_part *quant = lathe_config_part(run->config, LATHE_KIND_QUANT);
    return names_format || has_text(config, "quant.name", quant->name);
}

/* Takes the micro-batches of a checkpoint, if the batch of a step is that of the file. */
static void take_split(const lathe_run *run, lathe_micro_batches batch, const json_t *config,
                       lathe_method_row *row)
{
    const json_t *train = json_object_get(config, "train");
    const json_int_t rows = json_integer_value(json_object_get(train, "micro_batch_size"));
    const json_int_t n = json_integer_value(json_object_get(train, "gradient_accumulation_steps"));
    if (!lathe_micro_batches_may_split(run, batch) || rows < 1 || rows >= batch.rows ||
        batch.rows % rows != 0)
        return;
    row->split = lathe_micro_batches_of(batch, (int32_t)rows);
    if (row->split.n != n)
        row->split = (lathe_micro_batches){0, 0};
}

static int trains(const lathe_run *run)
{
    return lathe__run_has_step(run);
}

/* Finds the facts from which the table of methods is made. A run that does not train plans nothing:
 * the number of its layers is one that gives the recorded half. */
static void find_facts(const lathe_run *run, const json_t *config, file_facts *out)
{
    const json_t *adapter = json_object_get(config, "adapter");
    *out = (file_facts){.n_layers = 2 * json_integer_value(json_object_get(adapter, "layers"))};
    if (trains(run))
        (void)read_file(run, out);
}

/* Applies the method of the checkpoint that the run reads or resumes from, if there is one.
 * *out_done 0: there is no checkpoint, or it has another method; then reading it says what is
 * wrong. */
static lathe_status choose_recorded(lathe_run *run, int32_t *out_done)
{
    const char *dir = NULL;
    json_t *meta = NULL;
    *out_done = 0;
    /* "never" and "restart" are about training; the settings are read again after the choice */
    if (!trains(run) && run->set.checkpoint.resume &&
        lathe_resume_begins_anew(run->set.checkpoint.resume))
        run->set.checkpoint.resume = "auto";
    LATHE_TRY(lathe_resume_meta(run, &dir, &meta));
    if (meta == NULL)
        return LATHE_OK;
    const json_t *config = json_object_get(meta, "config");
    file_facts file;
    find_facts(run, config, &file);
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < N_METHODS && status == LATHE_OK && !*out_done; i++) {
        lathe_method_row row;
        if (!make_row(run, i, file.n_layers, &row) || !is_method_of(run, config, &row))
            continue;
        row.recomputes =
            trains(run) && !sets_recomputation(run) && has_text(config, recompute_key, "layer");
        if (trains(run))
            take_split(run, file.batch, config, &row);
        status = apply(run, &row);
        *out_done = 1;
        lathe_log(LATHE_LOG_INFO, "adapter.name = \"auto\": \"%s\", as in %s", row.set[0].text,
                  dir);
    }
    json_decref(meta);
    return status;
}

static lathe_status refuse(const lathe_run *run, const lathe_methods *methods)
{
    const char *what = methods->is_split
                           ? ", even with train.micro_batch_size = 1; lower data.seq_len"
                       : methods->micro_batch > 1 ? "; lower train.micro_batch_size or data.seq_len"
                                                  : "; lower data.seq_len";
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_methods_text(methods, &text);
    lathe_status status = text.status;
    if (status == LATHE_OK)
        status = lathe__run_refuse(run, "adapter", "name",
                                   "adapter.name = \"auto\": no method fits the memory%s, or raise "
                                   "train.memory_limit\n%s",
                                   what, text.data);
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status choose_by_plan(lathe_run *run)
{
    lathe_methods methods;
    lathe_buffer text = LATHE_BUFFER_INIT;
    LATHE_TRY(lathe_methods_plan(run, 0, &methods));
    if (methods.chosen < 0)
        return refuse(run, &methods);
    lathe_methods_text(&methods, &text);
    lathe_log(LATHE_LOG_INFO, "adapter.name = \"auto\": the first method that fits is used\n%s",
              text.data ? text.data : "");
    lathe_buffer_fini(&text);
    return apply(run, &methods.rows[methods.chosen]);
}

lathe_status lathe__methods_choose(lathe_run *run)
{
    int32_t done = 0;
    if (!lathe__run_is_offline(run))
        LATHE_TRY(choose_recorded(run, &done));
    if (done)
        return LATHE_OK;
    if (!trains(run) || lathe__run_is_offline(run)) {
        lathe_method_row row;
        (void)make_row(run, 0, 1, &row);
        return apply(run, &row);
    }
    return choose_by_plan(run);
}

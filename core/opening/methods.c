/* Plans a run with each fine-tuning method and chooses one. */
#include "opening/methods.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint_info.h"
#include "opening/fit.h"
#include "opening/opening.h"
#include "opening/resume_check.h"

enum {
    MAX_USER = 256,
    MAX_OWN = LATHE_MAX_METHOD_SETTINGS - 1,
    MAX_SPLIT = 1000000 /* micro-batches */
};

/* A value that depends on the model: half of its layers, rounded up. */
#define HALF "half"

/* From the method that trains most to the one that needs least memory. Ends at a NULL key. */
static const lathe_override all_methods[][MAX_OWN] = {
    {{"adapter.name", "full"}},
    {{"adapter.name", "freeze"}, {"adapter.layers", HALF}},
    {{"adapter.name", "lora"}, {"adapter.r", "128"}, {"adapter.alpha", "128"}},
    {{"adapter.name", "lora"}, {"adapter.r", "32"}, {"adapter.alpha", "32"}},
    {{"adapter.name", "lora"}, {"adapter.r", "8"}, {"adapter.alpha", "8"}},
    {{"adapter.name", "qlora"},
     {"adapter.r", "32"},
     {"adapter.alpha", "32"},
     {"quant.name", "nf4"}},
    {{"adapter.name", "qlora"}, {"adapter.r", "8"}, {"adapter.alpha", "8"}, {"quant.name", "nf4"}},
};
enum { N_METHODS = sizeof all_methods / sizeof all_methods[0] };
_Static_assert((int)N_METHODS <= (int)LATHE_MAX_METHODS, "lathe_methods holds every method");

static const lathe_override recomputation = {"train.recompute", "layer"};
static const char micro_key[] = "train.micro_batch_size";
static const char accumulation_key[] = "train.gradient_accumulation_steps";

/* Whether the run itself chose a value for the key, in place of adapter.name = "auto". */
static int is_chosen(const lathe_opening *open, const char *key)
{
    for (int32_t i = open->n_overrides - open->n_chosen; i < open->n_overrides; i++)
        if (strcmp(open->overrides[i].key, key) == 0)
            return 1;
    return 0;
}

/* Whether the user sets train.recompute. */
static int sets_recomputation(const lathe_run *run)
{
    const lathe_value *value = lathe_config_get(run->config, "train", "recompute");
    return value && value->is_explicit && !is_chosen(&run->open, recomputation.key);
}

/* Whether the user names the format of the frozen weights. */
static int is_quantized(const lathe_run *run)
{
    return lathe_config_part(run->config, LATHE_KIND_QUANT)->component != NULL &&
           !is_chosen(&run->open, "quant.name");
}

/* Makes the row of a method. Returns 0 if another method has the same settings for this run: the
 * file itself names the format of the frozen weights. */
static int make_row(const lathe_run *run, int32_t index, int64_t n_layers, lathe_method_row *row)
{
    memset(row, 0, sizeof *row);
    for (int32_t i = 0; i < MAX_OWN && all_methods[index][i].key; i++) {
        const lathe_override *from = &all_methods[index][i];
        lathe_method_setting *to = &row->set[row->n_set++];
        if (strcmp(from->key, "quant.name") == 0 && is_quantized(run))
            return 0;
        to->key = from->key;
        if (strcmp(from->value, HALF) == 0)
            (void)snprintf(to->value, sizeof to->value, "%lld", (long long)(n_layers + 1) / 2);
        else
            (void)snprintf(to->value, sizeof to->value, "%s", from->value);
    }
    return 1;
}

/* ---- smaller micro-batches ---- */

/* train.micro_batch_size and gradient_accumulation_steps of the file. */
typedef struct file_batch {
    int32_t rows, n;
} file_batch;

/* Whether n micro-batches of one row are the same training as one of n rows: not for a stage that
 * makes its own batches or takes mismatched examples from them, nor where the caller brings them.
 */
static int may_split(const lathe_run *run, const file_batch *batch)
{
    const lathe_component *stage = lathe_config_part(run->config, LATHE_KIND_STAGE)->component;
    const lathe_stage_v1 *table = stage ? stage->plugin->table : NULL;
    return batch->rows > 1 && (int64_t)batch->rows * batch->n <= MAX_SPLIT &&
           !run->open.data_is_optional &&
           (!table || (table->rows != LATHE_ROWS_UNPAIRED && !LATHE_HAS(table, iterate)));
}

/* Gives the row micro-batches of n rows, a divisor of the file's, and accumulates more of them. */
static void split(const file_batch *batch, int32_t n, lathe_method_row *row)
{
    row->micro_batch = n;
    row->accumulation = batch->n * (batch->rows / n);
}

/* The largest divisor of n below `below`, at least 1. */
static int32_t next_divisor(int32_t n, int32_t below)
{
    int32_t d = below - 1;
    while (d > 1 && n % d != 0)
        d--;
    return d;
}

/* ---- planning ---- */

/* Adds the row's micro-batches to a list of settings; texts: room for the values. */
static int32_t put_split(const lathe_method_row *row, char texts[2][16], lathe_override *out)
{
    if (row->micro_batch == 0)
        return 0;
    (void)snprintf(texts[0], sizeof texts[0], "%d", row->micro_batch);
    (void)snprintf(texts[1], sizeof texts[1], "%d", row->accumulation);
    out[0] = (lathe_override){micro_key, texts[0]};
    out[1] = (lathe_override){accumulation_key, texts[1]};
    return 2;
}

/* Plans the run with the row's settings after the user's, and recomputation if asked for. */
static lathe_status plan(const lathe_run *run, const lathe_method_row *row, int recompute,
                         lathe_run **out)
{
    lathe_override list[MAX_USER + LATHE_MAX_METHOD_SETTINGS + 4];
    char texts[2][16];
    int32_t n = run->open.n_overrides - run->open.n_chosen;
    if (n > MAX_USER)
        return lathe_error(LATHE_E_ARG, "more than %d settings on the command line", MAX_USER);
    for (int32_t i = 0; i < n; i++)
        list[i] = run->open.overrides[i];
    for (int32_t i = 0; i < row->n_set; i++)
        list[n++] = (lathe_override){row->set[i].key, row->set[i].value};
    if (recompute)
        list[n++] = recomputation;
    n += put_split(row, texts, list + n);
    list[n++] = (lathe_override){"log.level", "error"};
    const lathe_status status =
        lathe__run_open_planned(run->open.path, list, n, LATHE_OPEN_PLAN, 1, 0, out);
    lathe_log_set_level(run->set.log_level);
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
        const char *text = lathe_error_message();
        (void)snprintf(row->refusal, sizeof row->refusal, "%.*s", (int)strcspn(text, "\n"), text);
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
static int plan_split(const lathe_run *run, const file_batch *batch, lathe_methods *all,
                      lathe_method_row *row)
{
    const int32_t n = batch->rows, layers = !sets_recomputation(run);
    lathe_method_row found = *row;
    split(batch, 1, &found);
    if (!plan_row(run, layers, all, &found, &found.peak_split) || found.peak_split > all->have)
        return 0;
    for (int32_t d = next_divisor(n, n); d >= 1; d = next_divisor(n, d)) {
        split(batch, d, &found);
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
static void plan_method(const lathe_run *run, const file_batch *batch, int32_t everything,
                        lathe_methods *all)
{
    lathe_method_row *row = &all->rows[all->n];
    row->is_refused = !plan_row(run, 0, all, row, &row->peak);
    int fits = !row->is_refused && row->peak <= all->have;
    if (!row->is_refused && (everything || !fits) && !sets_recomputation(run) &&
        plan_row(run, 1, all, row, &row->peak_layers) && !fits)
        fits = row->recomputes = row->peak_layers <= all->have;
    if (!row->is_refused && !fits && may_split(run, batch))
        fits = plan_split(run, batch, all, row);
    if (fits && all->chosen < 0)
        all->chosen = all->n;
    all->n++;
}

/* Properties of a run's model and batches that its run file gives. */
typedef struct file_facts {
    int64_t n_layers;
    file_batch batch;
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
        out->batch =
            (file_batch){planned->set.micro_batch_size, planned->set.gradient_accumulation_steps};
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
    out->is_auto =
        run->open.n_chosen > 0 || lathe_config_part(run->config, LATHE_KIND_ADAPTER)->is_auto;
    const char *adapter = lathe_config_part(run->config, LATHE_KIND_ADAPTER)->name;
    (void)snprintf(out->adapter, sizeof out->adapter, "%s", adapter ? adapter : "");
    if (!is_known) /* the thread's message is that of the last method */
        return LATHE_E_CONFIG;
    for (int32_t i = 0; i < N_METHODS && (all || out->chosen < 0); i++) {
        if (!make_row(run, i, file.n_layers, &out->rows[out->n]))
            continue;
        plan_method(run, &file.batch, all, out);
        out->n -= file.is_quantized && repeats(&out->rows[out->n - 1]);
    }
    out->is_split = may_split(run, &file.batch);
    out->micro_batch = file.batch.rows;
    return LATHE_OK;
}

/* ---- the choice ---- */

/* Adds the settings of a method to the run's overrides. */
static lathe_status apply(lathe_run *run, const lathe_method_row *row)
{
    const int32_t n = run->open.n_overrides;
    lathe_override own[LATHE_MAX_METHOD_SETTINGS + 3];
    char texts[2][16];
    int32_t more = 0;
    for (; more < row->n_set; more++)
        own[more] = (lathe_override){row->set[more].key, row->set[more].value};
    if (row->recomputes)
        own[more++] = recomputation;
    more += put_split(row, texts, own + more);
    lathe_override *list = lathe_arena_alloc(&run->arena, (n + more) * (int64_t)sizeof *list);
    if (!list)
        return lathe_error(LATHE_E_NOMEM, "no memory for the settings of a method");
    for (int32_t i = 0; i < n; i++)
        list[i] = run->open.overrides[i];
    for (int32_t i = 0; i < more; i++) {
        list[n + i].key = own[i].key;
        list[n + i].value = lathe_arena_strdup(&run->arena, own[i].value);
        if (!list[n + i].value)
            return lathe_error(LATHE_E_NOMEM, "no memory for the settings of a method");
    }
    run->open.overrides = list;
    run->open.n_overrides = n + more;
    run->open.n_chosen = more;
    return LATHE_OK;
}

/* Whether a checkpoint's configuration has this value. */
static int has_value(const json_t *config, const char *name, const char *value)
{
    char section[32], text[64] = "";
    const size_t dot = strcspn(name, ".");
    (void)snprintf(section, sizeof section, "%.*s", (int)dot, name);
    const json_t *found = json_object_get(json_object_get(config, section), name + dot + 1);
    if (json_is_string(found))
        return strcmp(json_string_value(found), value) == 0;
    if (json_is_number(found))
        (void)snprintf(text, sizeof text, "%g", json_number_value(found));
    return strcmp(text, value) == 0;
}

/* Whether a checkpoint was written with the method. */
static int is_method_of(const lathe_run *run, const json_t *config, const lathe_method_row *row)
{
    int names_format = 0;
    for (int32_t i = 0; i < row->n_set; i++) {
        names_format |= strcmp(row->set[i].key, "quant.name") == 0;
        if (!has_value(config, row->set[i].key, row->set[i].value))
            return 0;
    }
    const lathe_part *quant = lathe_config_part(run->config, LATHE_KIND_QUANT);
    return names_format || has_value(config, "quant.name", quant->name);
}

/* Takes the micro-batches of a checkpoint, if the batch of a step is that of the file. */
static void take_split(const lathe_run *run, const file_batch *batch, const json_t *config,
                       lathe_method_row *row)
{
    const json_t *train = json_object_get(config, "train");
    const json_int_t rows = json_integer_value(json_object_get(train, "micro_batch_size"));
    const json_int_t n = json_integer_value(json_object_get(train, "gradient_accumulation_steps"));
    if (!may_split(run, batch) || rows < 1 || rows >= batch->rows || batch->rows % rows != 0)
        return;
    split(batch, (int32_t)rows, row);
    if (row->accumulation != n)
        row->micro_batch = row->accumulation = 0;
}

static int trains(const lathe_run *run)
{
    return run->open.mode <= LATHE_OPEN_TRAIN;
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
    if (lathe_resume_find(run, &dir) != LATHE_OK || !dir ||
        lathe_checkpoint_meta(dir, &meta) != LATHE_OK || !meta) {
        lathe_error_clear();
        return LATHE_OK;
    }
    const json_t *config = json_object_get(meta, "config");
    file_facts file;
    find_facts(run, config, &file);
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < N_METHODS && status == LATHE_OK && !*out_done; i++) {
        lathe_method_row row;
        if (!make_row(run, i, file.n_layers, &row) || !is_method_of(run, config, &row))
            continue;
        row.recomputes = trains(run) && !sets_recomputation(run) &&
                         has_value(config, recomputation.key, recomputation.value);
        if (trains(run))
            take_split(run, &file.batch, config, &row);
        status = apply(run, &row);
        *out_done = 1;
        lathe_log(LATHE_LOG_INFO, "adapter.name = \"auto\": \"%s\", as in %s", row.set[0].value,
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
    if (!run->open.is_offline)
        LATHE_TRY(choose_recorded(run, &done));
    if (done)
        return LATHE_OK;
    if (!trains(run) || run->open.is_offline) {
        lathe_method_row row;
        (void)make_row(run, 0, 1, &row);
        return apply(run, &row);
    }
    return choose_by_plan(run);
}

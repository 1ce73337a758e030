/* Writes and reads the training state. Doubles are stored as the hexadecimal form of their bits,
 * which is exact for infinities too.
 *
 * Version 1 (0.1.0 before fp16) had no skipped steps, no loss scale and no gradients between two
 * backward passes; it is read as a state without them. Writing and reading of one format are in one
 * file, which is therefore long.
 */
#include "checkpoint/train_state.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/batch_rows.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_file.h"
#include "checkpoint/state_rows.h"
#include "data/data_sources.h"
#include "io/manifest.h"
#include "io/safetensors.h"
#include "io/st_writer.h"
#include "ir/desc_text.h"

#define STATE_VERSION 2

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void put_part(lathe_buffer *b, const char *kind, const lathe_instance *instance)
{
    if (!instance->component)
        return;
    lathe_buffer_printf(b, "    \"%s\": ", kind);
    lathe_buffer_json_string(b, instance->component->plugin->name);
    lathe_buffer_puts(b, ",\n");
}

static void put_double(lathe_buffer *b, int32_t follows, double x)
{
    lathe_buffer_printf(b, "%s\"%016" PRIx64 "\"", follows ? ", " : "", bits_of(x));
}

/* Writes the losses of loss_spike.h, oldest first. */
static void put_losses(lathe_buffer *b, const lathe_loss_spike *spike, int32_t window)
{
    const int32_t n = lathe_loss_spike_count(spike, window);
    lathe_buffer_printf(b, "  \"loss_spikes\": {\"seen\": %lld, \"losses\": [",
                        (long long)spike->n_spikes);
    for (int32_t i = 0; i < n; i++)
        put_double(b, i > 0, lathe_loss_spike_get(spike, n, i));
    lathe_buffer_puts(b, "]},\n");
}

static void put_counters(lathe_buffer *b, const lathe_saved_state *saved)
{
    const lathe_counters *at = saved->at;
    lathe_buffer_printf(
        b,
        "  \"step\": %lld,\n  \"micro\": %lld,\n  \"tokens\": %lld,\n  \"seed\": \"%" PRIx64
        "\",\n",
        (long long)at->step, (long long)at->micro, (long long)at->tokens, saved->seed);
    lathe_buffer_printf(b,
                        "  \"cursor\": {\"seed\": %lld, \"epoch\": %lld, \"index\": %lld, "
                        "\"rows_per_epoch\": %lld, \"identity\": %lld},\n",
                        (long long)at->cursor.seed, (long long)at->cursor.epoch,
                        (long long)at->cursor.index, (long long)at->cursor.rows_per_epoch,
                        (long long)at->cursor.identity);
    lathe_buffer_printf(b,
                        "  \"early_stopping\": {\"best\": \"%016" PRIx64
                        "\", \"evaluations\": %lld, \"since\": %lld},\n",
                        bits_of(at->early.best), (long long)at->early.n_evaluations,
                        (long long)at->early.n_since);
    lathe_buffer_puts(b, "  \"scheduler_state\": [");
    for (int i = 0; i < LATHE_MAX_SCHEDULER_STATE; i++)
        put_double(b, i > 0, at->scheduler_state[i]);
    lathe_buffer_puts(b, "],\n");
    lathe_buffer_printf(b, "  \"skipped\": %lld,\n  \"skipped_in_row\": %lld,\n",
                        (long long)at->skipped, (long long)at->skipped_in_row);
    lathe_buffer_puts(b, "  \"scaler\": {\"scale\": ");
    put_double(b, 0, (double)at->scaler.scale);
    lathe_buffer_printf(b, ", \"n_good\": %d},\n", at->scaler.n_good);
    put_losses(b, &at->spike, saved->spike_window);
    lathe_buffer_printf(b, "  \"weight_average\": {\"kind\": \"%s\", \"n\": %lld},\n",
                        lathe_average_name(saved->store, &saved->parts->optimizer, saved->average),
                        (long long)at->averaged);
}

static void put_sums(lathe_buffer *b, const lathe_accumulated *sum)
{
    lathe_buffer_printf(b, "  \"accumulated\": {\"backwards\": %d, \"tokens\": %lld, \"sums\": [",
                        sum->backwards, (long long)sum->tokens);
    put_double(b, 0, sum->loss_sum);
    put_double(b, 1, sum->count);
    for (int i = 0; i < LATHE_MAX_STAGE_METRICS; i++)
        put_double(b, 1, sum->metric_sums[i]);
    lathe_buffer_puts(b, "]}\n");
}

static lathe_status write_run_json(const lathe_saved_state *saved, const char *path)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    lathe_buffer_printf(&b,
                        "{\n  \"format\": \"lathe-state\",\n  \"version\": %d,\n  \"parts\": {\n",
                        STATE_VERSION);
    put_part(&b, "optimizer", &saved->parts->optimizer);
    put_part(&b, "scheduler", &saved->parts->scheduler);
    put_part(&b, "adapter", &saved->parts->adapter);
    put_part(&b, "quant", &saved->parts->quant);
    put_part(&b, "device", &saved->parts->device);
    lathe_buffer_puts(&b, "    \"stage\": ");
    lathe_buffer_json_string(&b, saved->parts->stage.component->plugin->name);
    lathe_buffer_puts(&b, "\n  },\n");
    lathe_buffer_puts(&b, "  \"precision\": ");
    lathe_precision_json(saved->precision, saved->compute_dtype, saved->fp8, &b);
    lathe_buffer_puts(&b, ",\n");
    lathe_buffer_printf(&b, "  \"threads\": %d,\n  \"sources\": ", saved->machine->n_threads);
    lathe_data_sources_json(saved->data->shards, &b);
    lathe_buffer_puts(&b, ",\n");
    put_counters(&b, saved);
    put_sums(&b, saved->sum);
    lathe_buffer_puts(&b, "}\n");
    lathe_status status = b.status;
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(path, b.data, b.len);
    lathe_buffer_fini(&b);
    return status;
}

/* Calls visit for every slot of every trainable parameter, in table order. */
typedef lathe_status (*slot_fn)(const lathe_saved_state *saved, void *arg, int32_t param,
                                int32_t slot, const char *name);

static lathe_status each_slot(const lathe_saved_state *saved, slot_fn visit, void *arg)
{
    char name[512];
    for (int32_t i = 0; i < saved->store->n_rows; i++)
        for (int32_t k = 0; k < saved->store->rows[i].n_slots; k++) {
            (void)snprintf(name, sizeof name, "%s.%s", saved->params->rows[i]->name,
                           saved->store->rows[i].slots[k].name);
            LATHE_TRY(visit(saved, arg, i, k, name));
        }
    return LATHE_OK;
}

typedef struct slot_writer {
    lathe_st_writer *w;
    lathe_store_part *parts; /* [n] */
    int64_t n;
} slot_writer;

static lathe_status declare_slot(const lathe_saved_state *saved, void *arg, int32_t param,
                                 int32_t slot, const char *name)
{
    slot_writer *s = arg;
    const lathe_desc *desc = &saved->store->rows[param].slots[slot].desc;
    if (s->parts)
        s->parts[s->n] = (lathe_store_part){s->n, lathe_store_slot(saved->store, param, slot),
                                            lathe_desc_bytes(desc)};
    s->n++;
    return s->parts ? lathe_st_writer_add(s->w, name, desc) : LATHE_OK;
}

static lathe_status write_slots(const lathe_saved_state *saved, const char *dir)
{
    slot_writer s = {NULL, NULL, 0};
    LATHE_TRY(each_slot(saved, declare_slot, &s)); /* counts them */
    LATHE_TRY(lathe_st_writer_create(dir, "optimizer", LATHE_STATE_FILE_BYTES, &s.w));
    s.parts = calloc((size_t)s.n + 1, sizeof *s.parts);
    s.n = 0;
    lathe_status status = s.parts ? each_slot(saved, declare_slot, &s)
                                  : lathe_error(LATHE_E_NOMEM, "no memory for optimizer states");
    if (status == LATHE_OK)
        status = lathe_st_writer_begin(s.w);
    if (status == LATHE_OK)
        status = lathe_store_write_all(saved->store, s.w, s.parts, s.n);
    if (status == LATHE_OK)
        status = lathe_st_writer_finish(s.w);
    lathe_st_writer_destroy(s.w);
    free(s.parts);
    return status;
}

static int32_t writes_masters(const lathe_saved_state *saved)
{
    return lathe__checkpoint_has_model(saved) && lathe__model_file_rounds_any(saved);
}

/* Whether average.safetensors is written: if the average is a separate state, or if the files in
 * average/ round it. */
static int32_t writes_average(const lathe_saved_state *saved)
{
    return lathe_average_is_state(saved->store, &saved->parts->optimizer) ||
           (saved->store->average_bytes > 0 && writes_masters(saved));
}

lathe_status lathe__train_state_write(const lathe_saved_state *saved, const char *dir)
{
    if (saved->sum->pending)
        return lathe_error(LATHE_E_STATE,
                           "a forward waits for its backward: nothing is saved between "
                           "the two");
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *state = lathe_path_join(&arena, dir, "state");
    const char *json = state ? lathe_path_join(&arena, state, "run.json") : NULL;
    lathe_status status = json ? lathe_dir_create(state) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = write_slots(saved, state);
    if (status == LATHE_OK && saved->sum->backwards > 0)
        status = lathe__state_rows_write(saved, state, LATHE_ROWS_GRADIENTS);
    if (status == LATHE_OK && writes_average(saved))
        status = lathe__state_rows_write(saved, state, LATHE_ROWS_AVERAGES);
    if (status == LATHE_OK && writes_masters(saved))
        status = lathe__state_rows_write(saved, state, LATHE_ROWS_MASTERS);
    if (status == LATHE_OK)
        status = write_run_json(saved, json);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status check_part(const json_t *parts, const char *path, const char *kind,
                               const lathe_instance *instance)
{
    const char *was = json_string_value(json_object_get(parts, kind));
    const char *is = instance->component ? instance->component->plugin->name : NULL;
    if ((was == NULL) == (is == NULL) && (!was || strcmp(was, is) == 0))
        return LATHE_OK;
    return lathe_error(
        LATHE_E_CONFIG,
        "%s was written with %s %s, the run has %s: resume with the same, or start a new "
        "run from its weights with model.path",
        path, kind, was ? was : "none", is ? is : "none");
}

/* End of the messages: the files are undamaged, so a state that does not match was written with
 * other settings. */
#define OTHER_SETTINGS                                                                             \
    "optimizer \"%s\" was set up otherwise then: resume with the settings it was written with, "   \
    "or start a new run from its weights with model.path"

static lathe_status check_slot(const lathe_saved_state *saved, void *arg, int32_t param,
                               int32_t slot, const char *name)
{
    const lathe_safetensors *set = arg;
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    const lathe_desc *want = &saved->store->rows[param].slots[slot].desc;
    const char *optimizer = saved->parts->optimizer.component->plugin->name;
    char was[96], is[96];
    if (!t)
        return lathe_error(LATHE_E_CONFIG, "%s has no '%s', the run keeps %s; " OTHER_SETTINGS,
                           lathe_safetensors_path(set), name, lathe_desc_text(want, is, sizeof is),
                           optimizer);
    if (t->desc.dtype != want->dtype || lathe_desc_count(&t->desc) != lathe_desc_count(want))
        return lathe_error(LATHE_E_CONFIG, "%s: '%s' is %s, the run keeps %s; " OTHER_SETTINGS,
                           t->file, name, lathe_desc_text(&t->desc, was, sizeof was),
                           lathe_desc_text(want, is, sizeof is), optimizer);
    return LATHE_OK;
}

static lathe_status check_slots(const lathe_saved_state *saved, lathe_safetensors *set)
{
    int64_t n = 0;
    LATHE_TRY(each_slot(saved, check_slot, set));
    for (int32_t i = 0; i < saved->store->n_rows; i++)
        n += saved->store->rows[i].n_slots;
    if (lathe_safetensors_count(set) == n)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "%s holds %lld states, the run keeps %lld; " OTHER_SETTINGS,
                       lathe_safetensors_path(set), (long long)lathe_safetensors_count(set),
                       (long long)n, saved->parts->optimizer.component->plugin->name);
}

static lathe_status read_slot(const lathe_saved_state *saved, void *arg, int32_t param,
                              int32_t slot, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(arg, name);
    return lathe_store_put(saved->store, lathe_store_slot(saved->store, param, slot), t->data,
                           lathe_desc_bytes(&t->desc));
}

/* ---- slots in one pass with the hash of their files ---- */

typedef struct slot_parts {
    const lathe_safetensors *set;
    lathe_manifest_part *list;
    int64_t n;
} slot_parts;

static lathe_status count_slot(const lathe_saved_state *saved, void *arg, int32_t param,
                               int32_t slot, const char *name)
{
    slot_parts *p = arg;
    p->n++;
    return check_slot(saved, (void *)(uintptr_t)p->set, param, slot, name);
}

static lathe_status add_slot(const lathe_saved_state *saved, void *arg, int32_t param, int32_t slot,
                             const char *name)
{
    slot_parts *p = arg;
    const lathe_st_tensor *t = lathe_safetensors_find(p->set, name);
    p->list[p->n++] = (lathe_manifest_part){
        t->file,
        {t->offset, lathe_desc_bytes(&t->desc), lathe_store_slot(saved->store, param, slot)}};
    return LATHE_OK;
}

static int by_place(const void *a, const void *b)
{
    const lathe_manifest_part *x = a, *y = b;
    const int order = strcmp(x->path, y->path);
    return order ? order : x->part.offset < y->part.offset ? -1 : x->part.offset > y->part.offset;
}

lathe_status lathe__train_state_verify(const lathe_saved_state *saved, const char *dir,
                                       int32_t *out_read)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_safetensors *set = NULL;
    slot_parts parts = {.n = 0};
    const char *file = lathe_path_join(&arena, dir, "state/optimizer.safetensors");
    *out_read = 0;
    lathe_status status = file ? lathe_safetensors_open(file, &set) : LATHE_E_NOMEM;
    parts.set = set;
    if (status == LATHE_OK)
        status = each_slot(saved, count_slot, &parts);
    if (status == LATHE_OK) {
        parts.list = lathe_arena_alloc(&arena, (parts.n + 1) * (int64_t)sizeof *parts.list);
        status = parts.list ? LATHE_OK : LATHE_E_NOMEM;
    }
    if (status == LATHE_OK) {
        parts.n = 0;
        (void)each_slot(saved, add_slot, &parts);
        qsort(parts.list, (size_t)parts.n, sizeof *parts.list, by_place);
        status = lathe_manifest_verify_read(dir, parts.list, parts.n);
        *out_read = status == LATHE_OK;
        if (status != LATHE_OK &&
            saved->store->slot_bytes > 0) /* as in a run that never read any */
            memset(saved->store->slots, 0, (size_t)saved->store->slot_bytes);
    } else { /* damaged, or of another run: the manifest's say comes first, the reader's after it */
        status = lathe_manifest_verify(dir);
    }
    lathe_safetensors_close(set);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status integer(const json_t *object, const char *path, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_integer(v))
        return lathe_error(LATHE_E_CORRUPT, "%s: '%s' is no integer", path, key);
    *out = (int64_t)json_integer_value(v);
    return LATHE_OK;
}

static lathe_status bits(const json_t *v, const char *path, const char *key, double *out)
{
    const char *text = json_string_value(v);
    uint64_t word;
    if (!text || strlen(text) != 16 || sscanf(text, "%" SCNx64, &word) != 1)
        return lathe_error(LATHE_E_CORRUPT, "%s: '%s' holds a bad number", path, key);
    *out = double_of(word);
    return LATHE_OK;
}

static lathe_status read_early(const json_t *root, const char *path, lathe_early_stop *out)
{
    const json_t *early = json_object_get(root, "early_stopping");
    if (!early) /* written before there was any */
        return LATHE_OK;
    LATHE_TRY(bits(json_object_get(early, "best"), path, "early_stopping", &out->best));
    LATHE_TRY(integer(early, path, "evaluations", &out->n_evaluations));
    return integer(early, path, "since", &out->n_since);
}

/* A count, at least 0 and at most `most`. */
static lathe_status count(const json_t *object, const char *path, const char *key, int64_t most,
                          int64_t *out)
{
    LATHE_TRY(integer(object, path, key, out));
    if (*out < 0 || *out > most)
        return lathe_error(LATHE_E_CORRUPT, "%s: '%s' is %lld, expected 0 to %lld", path, key,
                           (long long)*out, (long long)most);
    return LATHE_OK;
}

static lathe_status read_losses(const json_t *root, const char *path, lathe_loss_spike *out)
{
    const json_t *spikes = json_object_get(root, "loss_spikes"),
                 *losses = json_object_get(spikes, "losses");
    const size_t n = json_array_size(losses);
    if (!spikes) /* written before there was any */
        return LATHE_OK;
    LATHE_TRY(count(spikes, path, "seen", INT64_MAX, &out->n_spikes));
    if (!json_is_array(losses) || n > LATHE_MAX_SPIKE_WINDOW)
        return lathe_error(LATHE_E_CORRUPT, "%s: 'losses' wants a list of at most %d", path,
                           LATHE_MAX_SPIKE_WINDOW);
    for (size_t i = 0; i < n; i++) {
        double loss = 0.0;
        LATHE_TRY(bits(json_array_get(losses, i), path, "losses", &loss));
        if (!isfinite(loss))
            return lathe_error(LATHE_E_CORRUPT, "%s: 'losses' holds %g", path, loss);
        lathe_loss_spike_accept(out, loss);
    }
    return LATHE_OK;
}

/* Reads the fields added in version 2. */
static lathe_status read_version_2(const json_t *root, const char *path, lathe_counters *at,
                                   lathe_accumulated *sum)
{
    const json_t *scaler = json_object_get(root, "scaler"),
                 *accumulated = json_object_get(root, "accumulated"),
                 *sums = json_object_get(accumulated, "sums");
    double x[2 + LATHE_MAX_STAGE_METRICS] = {0.0}, scale = 0.0;
    int64_t n_good = 0, backwards = 0;
    LATHE_TRY(count(root, path, "skipped", at->step, &at->skipped));
    LATHE_TRY(count(root, path, "skipped_in_row", at->skipped, &at->skipped_in_row));
    LATHE_TRY(bits(json_object_get(scaler, "scale"), path, "scale", &scale));
    LATHE_TRY(count(scaler, path, "n_good", INT32_MAX, &n_good));
    if (!(scale > 0.0 && scale <= (double)FLT_MAX))
        return lathe_error(LATHE_E_CORRUPT, "%s: 'scale' is %g, expected a positive number", path,
                           scale);
    at->scaler = (lathe_scaler){(float)scale, (int32_t)n_good};
    LATHE_TRY(read_losses(root, path, &at->spike));
    LATHE_TRY(count(accumulated, path, "backwards", INT32_MAX, &backwards));
    LATHE_TRY(count(accumulated, path, "tokens", INT64_MAX, &sum->tokens));
    if (json_array_size(sums) != sizeof x / sizeof x[0])
        return lathe_error(LATHE_E_CORRUPT, "%s: 'sums' wants %zu entries", path,
                           sizeof x / sizeof x[0]);
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        LATHE_TRY(bits(json_array_get(sums, i), path, "sums", &x[i]));
    sum->backwards = (int32_t)backwards;
    sum->loss_sum = x[0];
    sum->count = x[1];
    memcpy(sum->metric_sums, x + 2, sizeof sum->metric_sums);
    return LATHE_OK;
}

static lathe_status read_counters(const json_t *root, const char *path, lathe_counters *out)
{
    const json_t *cursor = json_object_get(root, "cursor"),
                 *state = json_object_get(root, "scheduler_state");
    memset(out, 0, sizeof *out);
    LATHE_TRY(integer(root, path, "step", &out->step));
    LATHE_TRY(integer(root, path, "micro", &out->micro));
    LATHE_TRY(integer(root, path, "tokens", &out->tokens));
    LATHE_TRY(integer(cursor, path, "seed", &out->cursor.seed));
    LATHE_TRY(integer(cursor, path, "epoch", &out->cursor.epoch));
    LATHE_TRY(integer(cursor, path, "index", &out->cursor.index));
    LATHE_TRY(integer(cursor, path, "rows_per_epoch", &out->cursor.rows_per_epoch));
    LATHE_TRY(integer(cursor, path, "identity", &out->cursor.identity));
    LATHE_TRY(read_early(root, path, &out->early));
    if (json_array_size(state) != LATHE_MAX_SCHEDULER_STATE)
        return lathe_error(LATHE_E_CORRUPT, "%s: 'scheduler_state' wants %d entries", path,
                           LATHE_MAX_SCHEDULER_STATE);
    for (size_t i = 0; i < LATHE_MAX_SCHEDULER_STATE; i++) {
        LATHE_TRY(
            bits(json_array_get(state, i), path, "scheduler_state", &out->scheduler_state[i]));
    }
    return LATHE_OK;
}

/* Before a word that may be none. */
static const char *gap(const char *word)
{
    return word[0] ? " " : "";
}

/* Checks the precision. Another precision may resume, but not in the middle of a step, because the
 * sums are scaled. */
static lathe_status check_precision(const lathe_saved_state *saved, const json_t *root,
                                    const char *path, lathe_counters *at,
                                    const lathe_accumulated *sum)
{
    const json_t *precision = json_object_get(root, "precision");
    const char *now = lathe_precision_used(saved->compute_dtype, saved->fp8);
    const char *recipe_now = lathe_fp8_recipe_name(saved->fp8);
    const char *was = json_string_value(json_object_get(precision, "used"));
    const char *recipe = json_string_value(json_object_get(precision, "fp8_recipe"));
    if (!was)
        return lathe_error(LATHE_E_CORRUPT, "%s: 'precision' is missing", path);
    recipe = recipe ? recipe : "";
    if (strcmp(was, now) == 0 && strcmp(recipe, recipe_now) == 0)
        return LATHE_OK;
    if (sum->backwards > 0)
        return lathe_error(LATHE_E_CONFIG,
                           "%s was written in %s%s%s in the middle of a step, the run computes in "
                           "%s%s%s: finish the step in %s%s%s",
                           path, was, gap(recipe), recipe, now, gap(recipe_now), recipe_now, was,
                           gap(recipe), recipe);
    lathe_log(LATHE_LOG_WARN, "%s was written in %s%s%s, the run goes on in %s%s%s", path, was,
              gap(recipe), recipe, now, gap(recipe_now), recipe_now);
    at->scaler.scale = saved->compute_dtype == LATHE_F16 ? (float)saved->loss_scale_init : 1.0f;
    at->scaler.n_good = 0;
    return LATHE_OK;
}

/* The precision of a state in the middle of a step. */
static lathe_status check_middle(const lathe_saved_state *saved, const json_t *root,
                                 const char *path)
{
    const json_t *accumulated = json_object_get(root, "accumulated");
    const lathe_accumulated middle = {.backwards = 1};
    lathe_counters at = {0};
    return json_integer_value(json_object_get(accumulated, "backwards")) > 0
               ? check_precision(saved, root, path, &at, &middle)
               : LATHE_OK;
}

/* Warns of differences that change the rounding of the same step: another device or number of
 * threads sums in another order. */
static void warn_of_machine(const lathe_saved_state *saved, const json_t *root, const char *path)
{
    const char *was = json_string_value(json_object_get(json_object_get(root, "parts"), "device"));
    const char *now =
        saved->parts->device.component ? saved->parts->device.component->plugin->name : NULL;
    const json_t *threads = json_object_get(root, "threads");
    if (was && now && strcmp(was, now) != 0)
        lathe_log(LATHE_LOG_WARN,
                  "%s was written on device %s, the run goes on on %s: not bit for bit what the "
                  "uninterrupted run would have been",
                  path, was, now);
    else if (json_is_integer(threads) && json_integer_value(threads) != saved->machine->n_threads &&
             lathe_machine_shares(saved->machine))
        lathe_log(
            LATHE_LOG_WARN,
            "%s was written with %lld thread%s, the run goes on with %d: not bit for bit what "
            "the uninterrupted run would have been; train.threads = %lld would be",
            path, (long long)json_integer_value(threads),
            json_integer_value(threads) == 1 ? "" : "s", saved->machine->n_threads,
            (long long)json_integer_value(threads));
}

/* Checks the version, the parts and the counters. */
static lathe_status check_parts(const lathe_saved_state *saved, const json_t *root,
                                const char *path, lathe_counters *at, int64_t *out_version)
{
    int64_t version = 0;
    const json_t *parts = json_object_get(root, "parts");
    LATHE_TRY(integer(root, path, "version", &version));
    *out_version = version;
    if (version < 1 || version > STATE_VERSION)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s is of version %lld, this Lathe reads 1 to %d",
                           path, (long long)version, STATE_VERSION);
    LATHE_TRY(check_part(parts, path, "optimizer", &saved->parts->optimizer));
    LATHE_TRY(check_part(parts, path, "scheduler", &saved->parts->scheduler));
    LATHE_TRY(check_part(parts, path, "adapter", &saved->parts->adapter));
    LATHE_TRY(check_part(parts, path, "quant", &saved->parts->quant));
    LATHE_TRY(check_part(parts, path, "stage", &saved->parts->stage));
    return read_counters(root, path, at);
}

static lathe_status check_json(const lathe_saved_state *saved, const json_t *root, const char *path,
                               lathe_counters *at, lathe_accumulated *sum)
{
    int64_t version = 0;
    LATHE_TRY(check_parts(saved, root, path, at, &version));
    warn_of_machine(saved, root, path);
    at->scaler.scale = saved->compute_dtype == LATHE_F16 ? (float)saved->loss_scale_init : 1.0f;
    memset(sum, 0, sizeof *sum);
    if (version == 1)
        return LATHE_OK;
    LATHE_TRY(read_version_2(root, path, at, sum));
    return check_precision(saved, root, path, at, sum);
}

/* Opens and checks the saved average. If it is of another kind, none is read and a new average
 * begins. */
static lathe_status open_average(const lathe_saved_state *saved, const json_t *root,
                                 const char *path, const char *dir, lathe_counters *at,
                                 lathe_safetensors **out)
{
    const json_t *average = json_object_get(root, "weight_average");
    const char *was = json_string_value(json_object_get(average, "kind"));
    const char *now = lathe_average_name(saved->store, &saved->parts->optimizer, saved->average);
    if (!average) /* written before there was any */
        was = "none";
    if (!was)
        return lathe_error(LATHE_E_CORRUPT, "%s: 'weight_average' has no kind", path);
    if (strcmp(was, now) != 0)
        lathe_log(LATHE_LOG_WARN, "%s was written with weight average %s, the run has %s%s", path,
                  was, now,
                  lathe_average_is_state(saved->store, &saved->parts->optimizer)
                      ? ": it begins with the weights of this step"
                      : "");
    if (strcmp(was, now) != 0 || !lathe_average_is_state(saved->store, &saved->parts->optimizer))
        return LATHE_OK;
    LATHE_TRY(count(average, path, "n", at->step, &at->averaged));
    return lathe__state_rows_open(saved, dir, LATHE_ROWS_AVERAGES, out);
}

/* Checks that the data read from these files were correct; NULL: the file was not opened. */
static lathe_status check_read(const lathe_safetensors *slots, const lathe_safetensors *gradients,
                               const lathe_safetensors *average)
{
    LATHE_TRY(lathe_safetensors_check(slots));
    LATHE_TRY(gradients ? lathe_safetensors_check(gradients) : LATHE_OK);
    return average ? lathe_safetensors_check(average) : LATHE_OK;
}

lathe_status lathe__train_state_check(const lathe_saved_state *saved, const char *dir,
                                      int32_t *out_what)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_safetensors *slots = NULL;
    json_t *root = NULL;
    lathe_counters at;
    int64_t version;
    const char *path = lathe_path_join(&arena, dir, "state/run.json");
    const char *file = lathe_path_join(&arena, dir, "state/optimizer.safetensors");
    lathe_status status = path && file ? lathe_json_load_file(path, &root) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = check_parts(saved, root, path, &at, &version);
    *out_what = status == LATHE_OK ? LATHE_STATE_PRECISION : LATHE_STATE_PARTS;
    if (status == LATHE_OK)
        status = check_middle(saved, root, path);
    if (status == LATHE_OK)
        *out_what = LATHE_STATE_DATA;
    if (status == LATHE_OK && saved->data->loader)
        status =
            lathe_data_sources_explain(saved->data->shards, root, dir,
                                       lathe_loader_check_cursor(saved->data->loader, &at.cursor));
    if (status == LATHE_OK) {
        *out_what = LATHE_STATE_SLOTS;
        status = lathe_safetensors_open(file, &slots);
    }
    if (status == LATHE_OK)
        status = check_slots(saved, slots);
    lathe_safetensors_close(slots);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__train_state_read(const lathe_saved_state *saved, const char *dir,
                                     int32_t has_slots)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_safetensors *slots = NULL, *gradients = NULL, *average = NULL;
    json_t *root = NULL;
    lathe_counters at;
    lathe_accumulated sum;
    const char *path = lathe_path_join(&arena, dir, "state/run.json");
    const char *file = lathe_path_join(&arena, dir, "state/optimizer.safetensors");
    lathe_status status = path && file ? lathe_json_load_file(path, &root) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = check_json(saved, root, path, &at, &sum);
    if (status == LATHE_OK)
        status = lathe_safetensors_open(file, &slots);
    if (status == LATHE_OK)
        status = check_slots(saved, slots);
    if (status == LATHE_OK)
        status = open_average(saved, root, path, dir, &at, &average);
    if (status == LATHE_OK && sum.backwards > 0)
        status = lathe__state_rows_open(saved, dir, LATHE_ROWS_GRADIENTS, &gradients);
    if (status == LATHE_OK)
        status = lathe__batch_rows_check(saved, gradients);
    if (status == LATHE_OK && saved->data->loader)
        status = lathe_data_sources_explain(saved->data->shards, root, dir,
                                            lathe_loader_seek(saved->data->loader, &at.cursor));
    if (status == LATHE_OK && !has_slots)
        status = each_slot(saved, read_slot, slots);
    if (status == LATHE_OK)
        status = lathe__state_rows_read(saved, gradients, LATHE_ROWS_GRADIENTS);
    if (status == LATHE_OK)
        status = lathe__state_rows_read(saved, average, LATHE_ROWS_AVERAGES);
    if (status == LATHE_OK)
        status = check_read(slots, gradients, average);
    if (status == LATHE_OK) {
        *saved->at = at;
        *saved->sum = sum;
        lathe__batch_rows_read(saved, gradients);
    }
    lathe_safetensors_close(average);
    lathe_safetensors_close(gradients);
    lathe_safetensors_close(slots);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

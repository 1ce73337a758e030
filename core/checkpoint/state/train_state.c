/* Writes, checks and reads the training state: state_counters.c has the numbers of run.json,
 * state_slots.c and state_rows.c the tensors.
 *
 * Version 1 (0.1.0 before fp16) had no skipped steps, no loss scale and no gradients between two
 * backward passes; it is read as a state without them.
 */
#include "checkpoint/state/train_state.h"

#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log.h"
#include "checkpoint/state/batch_rows.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/model_file.h"
#include "checkpoint/state/state_counters.h"
#include "checkpoint/state/state_rows.h"
#include "checkpoint/state/state_slots.h"
#include "data/rows/data_sources.h"
#include "exec/program/precision.h"
#include "files/safetensors/safetensors.h"

#define STATE_VERSION 2

static void put_part(lathe_buffer *b, const char *kind, const lathe_instance *instance)
{
    if (instance->component == NULL)
        return;
    lathe_buffer_printf(b, "    \"%s\": ", kind);
    lathe_buffer_json_string(b, instance->component->plugin->name);
    lathe_buffer_puts(b, ",\n");
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
    lathe__state_counters_put(saved, &b);
    if (saved->sum->backwards > 0)
        lathe__state_loads_put(saved->loads, &b);
    lathe__state_sums_put(saved->sum, &b);
    lathe_buffer_puts(&b, "}\n");
    lathe_status status = b.status;
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(path, b.data, b.len);
    lathe_buffer_fini(&b);
    return status;
}

static int32_t writes_masters(const lathe_saved_state *saved)
{
    return lathe__checkpoint_has_model(saved) && lathe__model_file_rounds_any(saved);
}

/* Whether average.safetensors is written: yes if the average is a separate state, or if the
 * files in average/ hold it rounded. */
static int32_t writes_average(const lathe_saved_state *saved)
{
    return lathe_average_is_state(saved->store, &saved->parts->optimizer) ||
           (saved->store->has_averages && writes_masters(saved));
}

lathe_status lathe__train_state_write(const lathe_saved_state *saved, const char *dir)
{
    if (saved->sum->pending)
        return lathe_error(LATHE_E_STATE,
                           "nothing can be saved between a forward and its backward");
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *state = lathe_path_join(&arena, dir, "state");
    const char *json = state ? lathe_path_join(&arena, state, "run.json") : NULL;
    lathe_status status = json ? lathe_dir_create(state) : LATHE_E_NOMEM;
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__state_slots_write(saved, state)) != LATHE_OK)
        goto out;
    if ((status = lathe__stage_state_write(saved->stage_state, state)) != LATHE_OK)
        goto out;
    if (saved->sum->backwards > 0)
        status = lathe__state_rows_write(saved, state, LATHE_ROWS_GRADIENTS);
    if (status != LATHE_OK)
        goto out;
    if (writes_average(saved))
        status = lathe__state_rows_write(saved, state, LATHE_ROWS_AVERAGES);
    if (status != LATHE_OK)
        goto out;
    if (writes_masters(saved))
        status = lathe__state_rows_write(saved, state, LATHE_ROWS_MASTERS);
    if (status != LATHE_OK)
        goto out;
    if (saved->extra && (status = saved->extra->write(saved->extra->arg, state)) != LATHE_OK)
        goto out;
    status = write_run_json(saved, json);
out:
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status check_part(const json_t *parts, const char *path, const char *kind,
                               const lathe_instance *instance)
{
    const char *was = json_string_value(json_object_get(parts, kind));
    const char *is = instance->component ? instance->component->plugin->name : NULL;
    if ((was == NULL) == (is == NULL) && (was == NULL || strcmp(was, is) == 0))
        return LATHE_OK;
    return lathe_error_at(
        LATHE_E_CONFIG, kind, "name",
        "%s was written with %s %s, the run has %s: resume with the same, or start a new "
        "run from its weights with model.path",
        path, kind, was ? was : "none", is ? is : "none");
}

/* Separator before a word that may be empty. */
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
    if (was == NULL)
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
    /* A change of train.precision was reported before, with the other changed settings. This
     * warning is for a device that chose another precision by itself. */
    const char *asked = json_string_value(json_object_get(precision, "asked"));
    if (asked == NULL || strcmp(asked, lathe_precision_name(saved->precision)) == 0)
        lathe_log(LATHE_LOG_WARN, "%s was written in %s%s%s, the run continues in %s%s%s", path,
                  was, gap(recipe), recipe, now, gap(recipe_now), recipe_now);
    at->scaler.scale = saved->compute_dtype == LATHE_F16 ? (float)saved->loss_scale_init : 1.0f;
    at->scaler.n_good = 0;
    return LATHE_OK;
}

/* Checks that a state in the middle of a step has the run's precision, and counts its experts. */
static lathe_status check_middle(const lathe_saved_state *saved, const json_t *root,
                                 const char *path)
{
    const json_t *accumulated = json_object_get(root, "accumulated");
    const lathe_accumulated middle = {.backwards = 1};
    lathe_counters at = {0};
    if (json_integer_value(json_object_get(accumulated, "backwards")) <= 0)
        return LATHE_OK;
    LATHE_TRY(check_precision(saved, root, path, &at, &middle));
    return lathe__state_loads_check(root, path, saved->loads);
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
                  "%s was written on device %s, the run continues on %s: its numbers will differ "
                  "in the last bits from those of the uninterrupted run",
                  path, was, now);
    else if (json_is_integer(threads) && json_integer_value(threads) != saved->machine->n_threads &&
             lathe_machine_memory(saved->machine)->runs_host_code)
        lathe_log(LATHE_LOG_WARN,
                  "%s was written with %lld thread%s, the run continues with %d: its numbers will "
                  "differ in the last bits from those of the uninterrupted run; train.threads = "
                  "%lld gives the same numbers",
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
    LATHE_TRY(lathe__state_integer(root, path, "version", &version));
    *out_version = version;
    if (version < 1 || version > STATE_VERSION)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s is of version %lld, this Lathe reads 1 to %d",
                           path, (long long)version, STATE_VERSION);
    LATHE_TRY(check_part(parts, path, "optimizer", &saved->parts->optimizer));
    LATHE_TRY(check_part(parts, path, "scheduler", &saved->parts->scheduler));
    LATHE_TRY(check_part(parts, path, "adapter", &saved->parts->adapter));
    LATHE_TRY(check_part(parts, path, "quant", &saved->parts->quant));
    LATHE_TRY(check_part(parts, path, "stage", &saved->parts->stage));
    return lathe__state_counters_read(root, path, at);
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
    LATHE_TRY(lathe__state_sums_read(root, path, at, sum));
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
    if (average == NULL) /* written before there was any */
        was = "none";
    if (was == NULL)
        return lathe_error(LATHE_E_CORRUPT, "%s: 'weight_average' has no kind", path);
    if (strcmp(was, now) != 0)
        lathe_log(LATHE_LOG_WARN, "%s was written with weight average %s, the run has %s%s", path,
                  was, now,
                  lathe_average_is_state(saved->store, &saved->parts->optimizer)
                      ? ": it begins with the weights of this step"
                      : "");
    if (strcmp(was, now) != 0 || !lathe_average_is_state(saved->store, &saved->parts->optimizer))
        return LATHE_OK;
    LATHE_TRY(lathe__state_count(average, path, "n", at->step, &at->averaged));
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
    lathe_safetensors *slots = NULL, *stage = NULL;
    json_t *root = NULL;
    lathe_counters at;
    int64_t version;
    const char *path = lathe_path_join(&arena, dir, "state/run.json");
    const char *file = lathe_path_join(&arena, dir, "state/optimizer.safetensors");
    lathe_status status = path && file ? lathe_json_load_file(path, &root) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = check_parts(saved, root, path, &at, &version);
    *out_what = status == LATHE_OK ? LATHE_STATE_PRECISION : LATHE_STATE_PARTS;
    if (status != LATHE_OK)
        goto out;
    if ((status = check_middle(saved, root, path)) != LATHE_OK)
        goto out;
    *out_what = LATHE_STATE_DATA;
    if (saved->data->loader)
        status =
            lathe_data_sources_explain(saved->data->shards, root, dir,
                                       lathe_loader_check_cursor(saved->data->loader, &at.cursor));
    if (status != LATHE_OK)
        goto out;
    *out_what = LATHE_STATE_SLOTS;
    if ((status = lathe_safetensors_open(file, &slots)) != LATHE_OK)
        goto out;
    if ((status = lathe__state_slots_check(saved, slots)) != LATHE_OK)
        goto out;
    *out_what = LATHE_STATE_STAGE;
    status = lathe__stage_state_open(saved->stage_state, dir, &stage);
out:
    lathe_safetensors_close(stage);
    lathe_safetensors_close(slots);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__train_state_read(const lathe_saved_state *saved, const char *dir,
                                     int32_t has_slots)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_safetensors *slots = NULL, *gradients = NULL, *average = NULL, *stage = NULL;
    double *loads = NULL; /* of experts, in the step that is not finished */
    json_t *root = NULL;
    lathe_counters at;
    lathe_accumulated sum;
    const char *path = lathe_path_join(&arena, dir, "state/run.json");
    const char *file = lathe_path_join(&arena, dir, "state/optimizer.safetensors");
    lathe_status status = path && file ? lathe_json_load_file(path, &root) : LATHE_E_NOMEM;
    if (status != LATHE_OK)
        goto out;
    if ((status = check_json(saved, root, path, &at, &sum)) != LATHE_OK)
        goto out;
    if ((status = lathe_safetensors_open(file, &slots)) != LATHE_OK)
        goto out;
    if ((status = lathe__state_slots_check(saved, slots)) != LATHE_OK)
        goto out;
    if ((status = open_average(saved, root, path, dir, &at, &average)) != LATHE_OK)
        goto out;
    if (sum.backwards > 0)
        status = lathe__state_rows_open(saved, dir, LATHE_ROWS_GRADIENTS, &gradients);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__batch_rows_check(saved, gradients)) != LATHE_OK)
        goto out;
    if ((status = lathe__stage_state_open(saved->stage_state, dir, &stage)) != LATHE_OK)
        goto out;
    if (saved->data->loader)
        status = lathe_data_sources_explain(saved->data->shards, root, dir,
                                            lathe_loader_seek(saved->data->loader, &at.cursor));
    if (status != LATHE_OK)
        goto out;
    loads = lathe_arena_alloc(&arena, (saved->loads->n + 1) * (int64_t)sizeof *loads);
    status = loads != NULL ? LATHE_OK : LATHE_E_NOMEM;
    if (status == LATHE_OK && sum.backwards > 0)
        status = lathe__state_loads_read(root, path, saved->loads, loads);
    if (status != LATHE_OK) /* from here on the run's state is overwritten */
        goto out;
    if (!has_slots && (status = lathe__state_slots_read(saved, slots)) != LATHE_OK)
        goto out;
    if ((status = lathe__state_rows_read(saved, gradients, LATHE_ROWS_GRADIENTS)) != LATHE_OK)
        goto out;
    if ((status = lathe__state_rows_read(saved, average, LATHE_ROWS_AVERAGES)) != LATHE_OK)
        goto out;
    if ((status = check_read(slots, gradients, average)) != LATHE_OK)
        goto out;
    if (stage && (status = lathe_safetensors_check(stage)) != LATHE_OK)
        goto out;
    lathe_expert_loads_clear(saved->loads);
    if (sum.backwards > 0 && saved->loads->n > 0)
        memcpy(saved->loads->counts, loads, (size_t)saved->loads->n * sizeof *loads);
    *saved->at = at;
    *saved->sum = sum;
    lathe__batch_rows_read(saved, gradients);
    lathe__stage_state_read(saved->stage_state, stage);
out:
    lathe_safetensors_close(stage);
    lathe_safetensors_close(average);
    lathe_safetensors_close(gradients);
    lathe_safetensors_close(slots);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

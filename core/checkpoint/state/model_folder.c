/* Says which model a folder means. */
#include "checkpoint/state/model_folder.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checkpoint_path.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log_once.h"
#include "base/model_path.h"
#include "checkpoint/state/checkpoint_info.h"
#include "checkpoint/state/parents.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/manifest.h"

static const char average_name[] = "average";

int32_t lathe_folder_has_adapter(const char *dir)
{
    static const char *const files[] = {
        "adapter_config.json", "adapter_model.safetensors", "adapter_model.safetensors.index.json",
        "adapter_model.bin" /* in Python's pickle format: named when it is opened */};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (lathe_model_has(dir, files[i]))
            return 1;
    return 0;
}

/* ---- the choice ---- */

/* Whether the optimizer of the run keeps the average itself: the folder has one, and the run did
 * not ask for it. A manifest that cannot be read is reported by lathe_model_folder_check. */
static lathe_status optimizer_averages(const char *dir, int32_t *out)
{
    json_t *meta = NULL;
    const lathe_status status = lathe_checkpoint_meta(dir, &meta);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK)
        lathe_error_clear();
    const json_t *train = json_object_get(json_object_get(meta, "config"), "train");
    const char *asked = json_string_value(json_object_get(train, "weight_average"));
    *out = asked && strcmp(asked, "none") == 0;
    json_decref(meta);
    return LATHE_OK;
}

lathe_status lathe_model_folder_find(const char *path, int32_t which, lathe_arena *arena,
                                     lathe_model_folder *out)
{
    *out = (lathe_model_folder){.dir = path};
    LATHE_TRY(lathe_checkpoint_resolve(arena, path, &out->dir));
    out->weights = out->dir;
    if (!lathe_path_is_dir(out->dir)) {
        out->has_model = lathe_path_is_gguf(out->dir);
        return which == LATHE_WEIGHTS_AVERAGE
                   ? lathe_error(LATHE_E_CONFIG, "%s holds no averaged weights", path)
                   : LATHE_OK;
    }
    const char *average = lathe_path_join(arena, out->dir, average_name);
    if (!average)
        return LATHE_E_NOMEM;
    out->has_model = lathe_model_has(out->dir, "config.json");
    out->has_adapter = lathe_folder_has_adapter(out->dir);
    /* a folder average/ of another program's model means nothing */
    out->has_average = lathe_path_is_dir(average) && (lathe_model_has(average, "config.json") ||
                                                      lathe_folder_has_adapter(average));
    if (which == LATHE_WEIGHTS_AVERAGE && !out->has_average)
        return lathe_error(LATHE_E_CONFIG, "%s holds no averaged weights", path);
    out->is_average = out->has_average && which != LATHE_WEIGHTS_TRAINING;
    out->weights = out->is_average ? average : out->dir;
    LATHE_TRY(lathe__manifest_folder(out->weights, arena, &out->manifest));
    return out->has_average && !out->is_average ? optimizer_averages(out->dir, &out->is_no_model)
                                                : LATHE_OK;
}

/* ---- damage ---- */

/* Files beside the weights that people edit: tokenizer, chat template, settings of generation. */
static int32_t is_text(const char *name)
{
    return !lathe__is_weight_file(name);
}

/* lathe_damage_fn: collects the messages. */
static void add_message(void *arg, const char *message)
{
    lathe_buffer *all = arg;
    lathe_buffer_printf(all, "%s%s", all->len > 0 ? "; " : "", message);
}

/* Warns of texts that are not those that were written. */
static lathe_status warn_of_texts(const lathe_model_folder *f, const char *prefix)
{
    lathe_buffer changed = LATHE_BUFFER_INIT;
    lathe_status status =
        lathe_manifest_compare(f->manifest, prefix, is_text, add_message, &changed);
    if (status == LATHE_E_CORRUPT) {
        lathe_error_clear();
        status = changed.status;
    }
    if (status == LATHE_OK && changed.len > 0) {
        lathe_buffer_puts(&changed, "; it is read as it is now");
        status = changed.status;
    }
    if (status == LATHE_OK && changed.len > 0) /* a command may open a model several times */
        lathe_log_once(LATHE_LOG_WARN, changed.data);
    lathe_buffer_fini(&changed);
    return status;
}

lathe_status lathe_model_folder_check(const lathe_model_folder *folder)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    if (!folder->manifest)
        return LATHE_OK;
    if (!lathe_manifest_is_own(folder->manifest)) {
        const char *text = lathe_arena_printf(
            &arena, "%s/%s is no manifest of Lathe: the weights are compared with nothing",
            folder->manifest, LATHE_MANIFEST_NAME);
        if (text)
            lathe_log_once(LATHE_LOG_WARN, text);
        lathe_arena_fini(&arena);
        return text ? LATHE_OK : LATHE_E_NOMEM;
    }
    const char *prefix = strcmp(folder->manifest, folder->weights) == 0 ? "" : "average/";
    lathe_status status =
        lathe_manifest_compare(folder->manifest, prefix, lathe__is_weight_file, NULL, NULL);
    if (status == LATHE_OK)
        status = warn_of_texts(folder, prefix);
    const char *why =
        status == LATHE_E_CORRUPT ? lathe_arena_strdup(&arena, lathe_error_message()) : NULL;
    if (why)
        status = lathe_error(LATHE_E_CORRUPT,
                             "%s: restore it from a copy (lathe checkpoint verify %s lists every "
                             "damaged file); if it was changed on purpose, remove %s/%s",
                             why, folder->manifest, folder->manifest, LATHE_MANIFEST_NAME);
    lathe_arena_fini(&arena);
    return status;
}

/* ---- adapters ---- */

lathe_status lathe_model_folder_refuse_adapter(const lathe_model_folder *folder)
{
    if (!folder->has_adapter)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s holds an adapter%s, and a whole model is needed: lathe merge %s -o OUT "
                       "makes one of it",
                       folder->dir, folder->has_model ? " beside its model" : "", folder->dir);
}

static int is_same_path(const char *a, const char *b)
{
    char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
    const int same = real_a && real_b && strcmp(real_a, real_b) == 0;
    free(real_a);
    free(real_b);
    return same;
}

lathe_status lathe_adapter_folder_refuse_merged(const char *dir, const char *base)
{
    if (is_same_path(dir, base))
        return LATHE_OK;
    if (lathe_path_is_dir(base) && lathe_folder_has_adapter(base))
        return lathe_error(LATHE_E_CONFIG,
                           "%s holds an adapter of its own, which is part of that model and would "
                           "be left out under the adapter in %s: lathe merge %s -o OUT makes a "
                           "plain model of it",
                           base, dir, base);
    if (!lathe_folder_has_adapter(dir) || !lathe_model_has(dir, "config.json"))
        return LATHE_OK;
    return lathe_error(
        LATHE_E_CONFIG,
        "%s holds a whole model beside its adapter, which belongs to that model and "
        "not to %s: use the folder alone, as a model (lathe merge %s -o OUT makes a plain "
        "one of it)",
        dir, base, dir);
}

/* How the model is stored, where that alone explains other weights than an adapter's base had; "":
 * it does not. */
static lathe_status why_stored_otherwise(const char *base, lathe_arena *arena, const char **out)
{
    json_t *config = NULL;
    *out = "";
    if (lathe_path_is_gguf(base)) {
        *out = "it is a GGUF file, which may have rounded the weights: ";
        return LATHE_OK;
    }
    if (!lathe_path_exists(base) || lathe_model_json(base, "config.json", &config) != LATHE_OK) {
        lathe_error_clear();
        return LATHE_OK;
    }
    const json_t *quantized = json_object_get(config, "quantization_config");
    const char *method = json_string_value(json_object_get(quantized, "quant_method"));
    if (json_is_object(quantized))
        *out = lathe_arena_printf(arena, "its weights are quantized%s%s: ", method ? ", as " : "",
                                  method ? method : "");
    json_decref(config);
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

/* Compares the weights before config.json: that is what the adapter was trained over. */
static lathe_status compare_files(const char *base, const json_t *files)
{
    json_t *weights = json_deep_copy(files);
    if (weights == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the files of a model");
    (void)json_object_del(weights, "config.json");
    lathe_status status = lathe_files_compare(base, weights, LATHE_HASH_UNKNOWN, NULL, NULL);
    json_decref(weights);
    return status == LATHE_OK ? lathe_files_compare(base, files, LATHE_HASH_UNKNOWN, NULL, NULL)
                              : status;
}

lathe_status lathe_adapter_base_compare(const char *dir, const char *base, lathe_arena *arena,
                                        lathe_base_difference *out)
{
    json_t *meta = NULL;
    *out = (lathe_base_difference){.is_known = 0};
    const char *from = NULL;
    LATHE_TRY(lathe__manifest_folder(dir, arena, &from));
    if (!from || is_same_path(dir, base) || !lathe_manifest_is_own(from))
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_meta(from, &meta));
    const json_t *model = lathe__parent_of(json_object_get(meta, "parents"), "model");
    const json_t *files = json_object_get(model, "files");
    const char *was = json_string_value(json_object_get(model, "path"));
    lathe_status status = LATHE_OK;
    out->is_known = json_object_size(files) > 0;
    out->was = lathe_arena_strdup(arena, was ? was : "?");
    if (out->is_known)
        status = compare_files(base, files);
    const int was_folder = json_object_get(files, "config.json") != NULL;
    json_decref(meta);
    if (status == LATHE_E_CORRUPT) {
        const char *stored, *what = lathe_arena_strdup(arena, lathe_error_message());
        lathe_error_clear();
        if (lathe_path_is_gguf(base) && was_folder)
            what = "the adapter was trained over a folder"; /* of which the file has no parts */
        LATHE_TRY(why_stored_otherwise(base, arena, &stored));
        out->detail = what ? lathe_arena_printf(arena, "%s%s", stored, what) : NULL;
        status = out->detail ? LATHE_OK : LATHE_E_NOMEM;
    }
    return out->was ? status : LATHE_E_NOMEM;
}

lathe_status lathe_adapter_base_check(const char *dir, const char *base)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_base_difference d;
    lathe_status status = lathe_adapter_base_compare(dir, base, &arena, &d);
    if (status == LATHE_OK && d.detail)
        status = lathe_error(LATHE_E_CONFIG,
                             "the adapter in %s was trained over the model %s, which has other "
                             "weights now: %s; restore it, or, if this model is meant, name it "
                             "in model.path (in a run file: model.path = the model, "
                             "model.adapter = the adapter)",
                             dir, base, d.detail);
    lathe_arena_fini(&arena);
    return status;
}

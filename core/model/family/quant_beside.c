/* Reads quantize_config.json, quant_config.json and hf_quant_config.json: programs that quantize,
 * or older versions of them, write the settings there and leave config.json as it was. */
#include "model/family/quant_beside.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/log_once.h"
#include "base/model_path.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/convert.h"

/* The first file that the folder has counts. method: quant_method where the file names none. */
static const struct {
    const char *name, *method;
} files[] = {{"quantize_config.json", "gptq"},
             {"quant_config.json", "awq"},
             {"hf_quant_config.json", "modelopt"}};

/* Says that the settings in config.json change nothing, where all tensors of the folder are plain
 * numbers: mostly they were left over by a merge into the weights of a quantized model. */
static lathe_status say_leftover(const char *folder, const char *text, int64_t bytes)
{
    static const char key[] = "quantization_config";
    json_t *root = NULL;
    lathe_safetensors *set = NULL;
    int64_t i = 0;
    if (memmem(text, (size_t)bytes, key, sizeof key - 1) == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_json_load("config.json", text, bytes, &root));
    const int has_settings = json_object_size(json_object_get(root, key)) > 0;
    json_decref(root);
    if (!has_settings)
        return LATHE_OK;
    if (lathe_model_weights(folder, &set) != LATHE_OK) {
        lathe_error_clear(); /* reading the weights reports it */
        return LATHE_OK;
    }
    const int64_t n = lathe_safetensors_count(set);
    while (i < n && lathe_convert_takes(lathe_safetensors_at(set, i)->desc.dtype))
        i++;
    lathe_safetensors_close(set);
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *words = i == n && n > 0
                            ? lathe_arena_printf(&arena,
                                                 "%s/config.json: quantization_config changes "
                                                 "nothing: the weights beside it are plain numbers",
                                                 folder)
                            : NULL;
    if (words != NULL)
        lathe_log_once(LATHE_LOG_WARN, words);
    lathe_arena_fini(&arena);
    return LATHE_OK;
}

/* Whether the folder has tensors that are no plain numbers; 1: it has no weights, or they cannot be
 * opened, which reading them reports. */
static int is_quantized(const char *folder)
{
    lathe_safetensors *set = NULL;
    if (lathe_model_weights(folder, &set) != LATHE_OK) {
        lathe_error_clear();
        return 1;
    }
    int found = 0;
    for (int64_t i = 0; i < lathe_safetensors_count(set) && !found; i++) {
        const char *name = lathe_safetensors_at(set, i)->name, *dot = strrchr(name, '.');
        /* .weight_packed and .qweight, too; scales beside them may be plain numbers */
        const int is_weight =
            dot != NULL && (strncmp(dot, ".weight", 7) == 0 || strcmp(dot, ".qweight") == 0);
        found = is_weight && !lathe_convert_takes(lathe_safetensors_at(set, i)->desc.dtype);
    }
    lathe_safetensors_close(set);
    return found;
}

/* ModelOpt's file has the settings within "quantization", under other names than config.json. */
static json_t *of_modelopt(json_t *root)
{
    json_t *out = json_deep_copy(json_object_get(root, "quantization"));
    json_t *ignore = json_object_get(out, "exclude_modules");
    if (out == NULL)
        return NULL;
    json_object_set(out, "ignore", ignore != NULL ? ignore : json_null());
    (void)json_object_del(out, "exclude_modules");
    json_object_set(out, "producer", json_object_get(root, "producer"));
    return out;
}

/* *out NULL: the folder has none of the files, or its weights are plain. */
static lathe_status find(const char *folder, json_t **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *root = NULL;
    size_t k = 0;
    *out = NULL;
    while (k < sizeof files / sizeof files[0] && !lathe_model_has(folder, files[k].name))
        k++;
    if (k == sizeof files / sizeof files[0])
        return LATHE_OK;
    const char *place = lathe_model_place(&arena, folder, files[k].name);
    lathe_status status = place != NULL ? LATHE_OK : LATHE_E_NOMEM;
    if (status == LATHE_OK && !is_quantized(folder)) {
        lathe_log(LATHE_LOG_WARN, "%s changes nothing: the weights beside it are plain numbers",
                  place);
    } else if (status == LATHE_OK) {
        status = lathe_model_json(folder, files[k].name, &root);
        *out = strcmp(files[k].method, "modelopt") == 0 ? of_modelopt(root) : json_incref(root);
        if (status == LATHE_OK && !json_is_object(*out))
            status = lathe_error(LATHE_E_CONFIG, "%s: expected an object with the settings of %s",
                                 place, files[k].method);
        if (status == LATHE_OK && json_object_get(*out, "quant_method") == NULL)
            json_object_set_new(*out, "quant_method", json_string(files[k].method));
        json_decref(root);
    }
    lathe_arena_fini(&arena);
    if (status != LATHE_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

lathe_status lathe_quant_beside_add(const char *folder, const char *text, int64_t bytes, char **out)
{
    json_t *root = NULL, *settings = NULL;
    *out = NULL;
    if (lathe_path_is_gguf(folder))
        return LATHE_OK;
    LATHE_TRY(say_leftover(folder, text, bytes));
    LATHE_TRY(find(folder, &settings));
    if (settings == NULL)
        return LATHE_OK;
    lathe_status status = lathe_json_load("config.json", text, bytes, &root);
    /* config.json has priority; the text is a copy in memory, and the file stays as it is */
    if (status == LATHE_OK && json_is_object(root) &&
        !json_is_object(json_object_get(root, "quantization_config"))) {
        json_object_set(root, "quantization_config", settings);
        *out = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        if (*out == NULL)
            status = lathe_error(LATHE_E_NOMEM, "no memory for config.json");
    }
    json_decref(root);
    json_decref(settings);
    return status;
}

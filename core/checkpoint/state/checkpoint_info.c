/* Reads the description of a checkpoint from its manifest. */
#include "checkpoint/state/checkpoint_info.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "files/safetensors/manifest.h"

lathe_status lathe_checkpoint_meta(const char *path, json_t **out)
{
    char *text = NULL;
    *out = NULL;
    LATHE_TRY(lathe_manifest_meta(path, &text));
    const lathe_status status =
        text ? lathe_json_load(path, text, (int64_t)strlen(text), out) : LATHE_OK;
    free(text);
    return status;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

lathe_status lathe_checkpoint_info_read(const char *path, lathe_arena *arena,
                                        lathe_checkpoint_info *out)
{
    json_t *meta = NULL;
    *out = (lathe_checkpoint_info){.step = -1, .loss = NAN, .best = NAN};
    const lathe_status status = lathe_manifest_survey(path, 0, NULL, NULL, &out->bytes);
    if (status != LATHE_OK) {
        out->damage = lathe_arena_strdup(arena, lathe_error_message());
        if (out->damage == NULL)
            return LATHE_E_NOMEM;
    }
    const lathe_status read = lathe_checkpoint_meta(path, &meta);
    if (read == LATHE_E_NOMEM)
        return read;
    const json_t *figures = json_object_get(meta, "figures");
    const json_t *settings = json_object_get(json_object_get(meta, "config"), "checkpoint");
    const json_t *step = json_object_get(meta, "step");
    const char *metric = json_string_value(json_object_get(settings, "best_metric"));
    out->step = json_is_integer(step) ? (int64_t)json_integer_value(step) : -1;
    out->time = (int64_t)json_integer_value(json_object_get(meta, "time"));
    out->read_back = json_is_true(json_object_get(meta, "read_back"));
    out->loss = number(figures, "loss");
    out->metric = metric ? lathe_arena_strdup(arena, metric) : NULL;
    out->best = metric ? number(figures, metric) : (double)NAN;
    json_decref(meta);
    return LATHE_OK;
}

lathe_status lathe_checkpoint_entries(const char *path, lathe_arena *arena,
                                      lathe_checkpoint_entry **out, int64_t *out_n)
{
    if (!lathe_path_is_dir(path))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no such folder", path);
    LATHE_TRY(lathe_checkpoint_list(path, arena, out, out_n));
    if (*out_n > 0)
        return LATHE_OK;
    const char *manifest = lathe_path_join(arena, path, LATHE_MANIFEST_NAME);
    const char *slash = strrchr(path, '/');
    lathe_checkpoint_entry *one = lathe_arena_alloc(arena, (int64_t)sizeof *one);
    if (manifest == NULL || one == NULL)
        return LATHE_E_NOMEM;
    one->path = path;
    one->name = slash ? slash + 1 : path;
    one->step = -1;
    (void)lathe_checkpoint_step(one->name, &one->step);
    if (one->step < 0 && !lathe_path_exists(manifest))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: neither a checkpoint nor a folder with any",
                           path);
    *out = one;
    *out_n = 1;
    return LATHE_OK;
}

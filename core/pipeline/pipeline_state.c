/* Finds out how far the steps of a pipeline are. */
#include "pipeline/pipeline_state.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_info.h"
#include "checkpoint/config_changes.h"
#include "io/manifest.h"

static int has(const char *dir, const char *name, lathe_arena *arena)
{
    const char *path = lathe_path_join(arena, dir, name);
    return path && lathe_path_exists(path);
}

/* A string as a TOML literal. */
static const char *quoted(const char *text, lathe_arena *arena)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    lathe_buffer_json_string(&b, text);
    const char *out = b.status == LATHE_OK ? lathe_arena_strdup(arena, b.data) : NULL;
    lathe_buffer_fini(&b);
    return out;
}

lathe_status lathe_pipeline_resolve(lathe_pipeline *pipeline, int32_t i, lathe_arena *arena,
                                    const lathe_step_state *states)
{
    lathe_pipeline_step *step = &pipeline->steps[i];
    for (int32_t k = 0; k < step->n_uses; k++) {
        const lathe_pipeline_use *use = &step->uses[k];
        const lathe_pipeline_step *from = &pipeline->steps[use->step];
        const lathe_step_state *state = &states[use->step];
        if (state->kind != LATHE_STEP_DONE)
            continue;
        const char *path = lathe_arena_printf(arena, "%s%s", state->checkpoint, use->rest);
        if (!path)
            return LATHE_E_NOMEM;
        if (!lathe_path_is_dir(path))
            return lathe_error(
                LATHE_E_CONFIG,
                "%s:%d:%d: step \"%s\": %s = \"%s\", but %s holds no averaged weights "
                "(train.weight_average of step \"%s\")",
                step->place.file, step->place.line, step->place.column, step->name,
                step->overrides[use->at].key, use->written, state->checkpoint, from->name);
        if (!has(path, "config.json", arena))
            return lathe_error(LATHE_E_CONFIG,
                               "%s:%d:%d: step \"%s\": %s = \"%s\", but %s holds an adapter and no "
                               "model: train step \"%s\" with adapter.name = \"full\"",
                               step->place.file, step->place.line, step->place.column, step->name,
                               step->overrides[use->at].key, use->written, path, from->name);
        step->overrides[use->at].value = quoted(path, arena);
        if (!step->overrides[use->at].value)
            return LATHE_E_NOMEM;
    }
    return LATHE_OK;
}

/* ---- what a step began with ---- */

/* Whether the manifest of the checkpoint names a parent with this hash of its manifest. */
static int began_with(const json_t *meta, const char *hex)
{
    const json_t *parents = json_object_get(meta, "parents");
    for (size_t i = 0; i < json_array_size(parents); i++) {
        const char *was =
            json_string_value(json_object_get(json_array_get(parents, i), "manifest"));
        if (was && strcmp(was, hex) == 0)
            return 1;
    }
    return 0;
}

/* Checks that a step with checkpoints follows from the present checkpoints of earlier steps. */
static lathe_status check_origin(const lathe_pipeline *pipeline, const lathe_pipeline_step *step,
                                 const lathe_step_state *states, const json_t *meta)
{
    char hex[65];
    for (int32_t k = 0; k < step->n_uses; k++) {
        const lathe_pipeline_step *from = &pipeline->steps[step->uses[k].step];
        const lathe_step_state *state = &states[step->uses[k].step];
        if (state->kind != LATHE_STEP_DONE)
            return lathe_error(LATHE_E_CONFIG,
                               "%s:%d:%d: step \"%s\" has checkpoints in %s, but step \"%s\", from "
                               "which it starts, is not finished: move %s away, or give the step "
                               "another checkpoint.dir",
                               step->place.file, step->place.line, step->place.column, step->name,
                               step->dir, from->name, step->dir);
        LATHE_TRY(lathe_manifest_self(state->checkpoint, hex));
        if (!began_with(meta, hex))
            return lathe_error(
                LATHE_E_CONFIG,
                "%s:%d:%d: step \"%s\": the checkpoints in %s were trained from "
                "another checkpoint of step \"%s\" than its present one, %s: move %s "
                "away, or give the step another checkpoint.dir, to train it again",
                step->place.file, step->place.line, step->place.column, step->name, step->dir,
                from->name, state->checkpoint, step->dir);
    }
    return LATHE_OK;
}

/* ---- whether it is finished ---- */

/* Whether run.json says that the last start of the run came to its end. */
static int has_ended(const char *dir, lathe_arena *arena)
{
    const char *path = lathe_path_join(arena, dir, "run.json");
    json_t *root = NULL;
    if (!path || !lathe_path_exists(path) || lathe_json_load_file(path, &root) != LATHE_OK) {
        lathe_error_clear();
        return 0;
    }
    const json_t *starts = json_object_get(root, "lineage");
    const size_t n = json_array_size(starts);
    const json_t *last = n ? json_array_get(starts, n - 1) : NULL;
    const char *end = json_string_value(json_object_get(last, "end"));
    const int ended = end && (strcmp(end, "finished") == 0 || strcmp(end, "stopped early") == 0);
    json_decref(root);
    return ended;
}

/* The settings of a step as its file and overrides give them, before plugins are chosen. NULL: the
 * run file has errors. */
static json_t *settings_of(const lathe_pipeline_step *step)
{
    lathe_registry *registry = NULL;
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    json_t *out = NULL;
    if (lathe_registry_create(&registry) != LATHE_OK ||
        lathe_config_load(step->run, step->overrides, step->n_overrides, 0, registry, &diags,
                          &config) != LATHE_OK ||
        lathe_config_object(config, &out) != LATHE_OK)
        lathe_error_clear();
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    lathe_registry_destroy(registry);
    return out;
}

/* Whether a setting that has an influence on the training differs from those that the step finished
 * with. */
static int has_changed(const lathe_pipeline_step *step, lathe_arena *arena)
{
    const char *path = lathe_path_join(arena, step->dir, LATHE_PIPELINE_RECORD), *name;
    json_t *was = NULL, *now = NULL, *changes = NULL, *change;
    int changed = 1;
    if (path && lathe_path_exists(path) && lathe_json_load_file(path, &was) == LATHE_OK &&
        (now = settings_of(step)) != NULL)
        changes = lathe_config_changes(json_object_get(was, "config"), now);
    if (changes) {
        changed = 0;
        json_object_foreach(changes, name, change)
        {
            const int32_t effect = lathe_change_effect(name);
            changed |= !(effect & LATHE_CHANGE_QUIET) || (effect & LATHE_CHANGE_DATA);
        }
    }
    lathe_error_clear();
    json_decref(changes);
    json_decref(now);
    json_decref(was);
    return changed;
}

lathe_status lathe_step_state_write(const lathe_pipeline_step *step)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, step->dir, LATHE_PIPELINE_RECORD);
    json_t *config = settings_of(step);
    json_t *root = config ? json_pack("{s:s, s:i, s:s, s:o}", "format", "lathe-pipeline-step",
                                      "version", 1, "step", step->name, "config", config)
                          : NULL;
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    lathe_status status = path && text
                              ? lathe_file_write_atomic(path, text, (int64_t)strlen(text))
                              : lathe_error(LATHE_E_NOMEM, "no memory to record a finished step");
    free(text);
    json_decref(root);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_step_state_read(lathe_pipeline *pipeline, int32_t i, lathe_arena *arena,
                                   lathe_step_state *states)
{
    const lathe_pipeline_step *step = &pipeline->steps[i];
    const char *latest = NULL;
    json_t *meta = NULL;
    states[i] = (lathe_step_state){.kind = LATHE_STEP_NEW};
    LATHE_TRY(lathe_pipeline_resolve(pipeline, i, arena, states));
    if (!step->dir || !lathe_path_is_dir(step->dir))
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_resolve(arena, step->dir, &latest));
    if (strcmp(latest, step->dir) == 0)
        return LATHE_OK; /* no `latest` */
    const lathe_status status = lathe_checkpoint_meta(latest, &meta);
    if (status != LATHE_OK) { /* resuming names the damage, and takes the one before */
        lathe_error_clear();
        states[i].kind = LATHE_STEP_BEGUN;
        return status == LATHE_E_NOMEM ? status : LATHE_OK;
    }
    char *real = realpath(latest, NULL);
    states[i].checkpoint = lathe_arena_strdup(arena, real ? real : latest);
    free(real);
    states[i].at = (int64_t)json_integer_value(json_object_get(meta, "step"));
    const lathe_status checked = check_origin(pipeline, step, states, meta);
    if (checked == LATHE_OK)
        states[i].kind = has_ended(step->dir, arena) && !has_changed(step, arena)
                             ? LATHE_STEP_DONE
                             : LATHE_STEP_BEGUN;
    json_decref(meta);
    return checked;
}

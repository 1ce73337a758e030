/* Finds out how far the steps of a pipeline are. */
#include "cmd/pipeline/pipeline_state.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/model_path.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "checkpoint/state/checkpoint_info.h"
#include "config/config_changes.h"
#include "files/safetensors/manifest.h"

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
            return lathe_error_in(LATHE_E_CONFIG, step->place.file, step->place.line,
                                  step->place.column,
                                  "step \"%s\": %s = \"%s\", but %s holds no averaged weights "
                                  "(train.weight_average of step \"%s\")",
                                  step->name, step->edits.list[use->at].key, use->written,
                                  state->checkpoint, from->name);
        const int is_model = strcmp(step->edits.list[use->at].key, "model.path") == 0;
        if (!lathe_folder_holds(path, "config.json") &&
            !(is_model && lathe_folder_holds(path, "adapter_model.safetensors")))
            return lathe_error_in(
                LATHE_E_CONFIG, step->place.file, step->place.line, step->place.column,
                "step \"%s\": %s = \"%s\", but %s holds an adapter and no "
                "model: train step \"%s\" with adapter.name = \"full\"",
                step->name, step->edits.list[use->at].key, use->written, path, from->name);
        lathe_edits_set_text(&step->edits, use->at, path);
    }
    return step->edits.status;
}

/* ---- what a step began with ---- */

/* Whether a recorded parent has the role. */
static int has_role(const json_t *parent, const char *role)
{
    const json_t *roles = json_object_get(parent, "roles");
    for (size_t i = 0; i < json_array_size(roles); i++) {
        const char *one = json_string_value(json_array_get(roles, i));
        if (one && strcmp(one, role) == 0)
            return 1;
    }
    return 0;
}

/* Whether the manifest of the checkpoint names a parent with this hash of its manifest. Earlier
 * versions of Lathe recorded no reward model, so that nothing is known of it. */
static int began_with(const json_t *meta, const char *key, const char *hex)
{
    const json_t *parents = json_object_get(meta, "parents");
    int is_unknown = lathe_pipeline_is_key(key, "reward.model");
    for (size_t i = 0; i < json_array_size(parents); i++) {
        const json_t *parent = json_array_get(parents, i);
        const char *was = json_string_value(json_object_get(parent, "manifest"));
        if (was && strcmp(was, hex) == 0)
            return 1;
        is_unknown &= !has_role(parent, "reward");
    }
    return is_unknown;
}

/* Checks that a step with checkpoints follows from the present checkpoints of earlier steps. */
static lathe_status check_origin(const lathe_pipeline *pipeline, const lathe_pipeline_step *step,
                                 const lathe_step_state *states, const json_t *meta)
{
    char hex[65];
    for (int32_t k = 0; k < step->n_uses; k++) {
        const lathe_pipeline_step *from = &pipeline->steps[step->uses[k].step];
        const lathe_step_state *state = &states[step->uses[k].step];
        const char *why = state->why ? state->why : "";
        if (state->kind != LATHE_STEP_DONE)
            return lathe_error_in(
                LATHE_E_CONFIG, step->place.file, step->place.line, step->place.column,
                "step \"%s\" has checkpoints in %s, but step \"%s\", from "
                "which it starts, is not finished%s%s: move %s away, or give the step "
                "another checkpoint.dir",
                step->name, step->dir, from->name, why[0] ? ", because " : "", why, step->dir);
        LATHE_TRY(lathe_manifest_self(state->checkpoint, hex));
        if (!began_with(meta, step->edits.list[step->uses[k].at].key, hex))
            return lathe_error_in(
                LATHE_E_CONFIG, step->place.file, step->place.line, step->place.column,
                "step \"%s\": the checkpoints in %s were trained from "
                "another checkpoint of step \"%s\" than its present one, %s: move %s "
                "away, or give the step another checkpoint.dir, to train it again",
                step->name, step->dir, from->name, state->checkpoint, step->dir);
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

/* Makes the settings of a step as its file and overrides give them, before plugins are chosen.
 * *out_config and *out_json are NULL if the run file has errors. */
static void settings_of(const lathe_pipeline_step *step, lathe_config **out_config,
                        json_t **out_json)
{
    lathe_diags diags = {0};
    *out_config = NULL;
    *out_json = NULL;
    if (lathe_pipeline_config(step, &step->edits, &diags, out_config) != LATHE_OK ||
        lathe_config_object(*out_config, out_json) != LATHE_OK)
        lathe_error_clear();
    lathe_diags_fini(&diags);
}

/* Whether a change has an influence on the training. A key that a newer Lathe has, with its
 * default, has none, nor has the version of a plugin. */
static int counts(const lathe_config *config, const char *name, const json_t *change)
{
    const int32_t effect = lathe_change_effect(name);
    const char *dot = strchr(name, '.');
    char section[64];
    if (!dot || strcmp(dot, ".version") == 0 ||
        ((effect & LATHE_CHANGE_QUIET) && !(effect & LATHE_CHANGE_DATA)))
        return 0;
    (void)snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    const lathe_value *value = lathe_config_get(config, section, dot + 1);
    return !json_is_null(json_object_get(change, "from")) || (value && value->is_explicit);
}

/* Lists the settings that differ from those that the step finished with; "": none. *out_n: their
 * number; 0 also if something else keeps the step from being finished. */
static const char *list_changes(const lathe_pipeline_step *step, lathe_arena *arena, int32_t *out_n)
{
    const char *path = lathe_path_join(arena, step->dir, LATHE_PIPELINE_RECORD), *name;
    lathe_config *config;
    json_t *was = NULL, *now, *change;
    lathe_buffer list = LATHE_BUFFER_INIT;
    int32_t n = 0;
    settings_of(step, &config, &now);
    if (!path || !lathe_path_exists(path) || lathe_json_load_file(path, &was) != LATHE_OK)
        lathe_buffer_puts(&list, "lathe pipeline did not train it to its end");
    else if (!now)
        lathe_buffer_puts(&list, "its run file has errors");
    json_t *changes =
        list.len == 0 ? lathe_config_changes(json_object_get(was, "config"), now) : NULL;
    json_object_foreach(changes, name, change)
    {
        if (!counts(config, name, change))
            continue;
        lathe_buffer_printf(&list, "%s%s ", n++ ? ", " : "", name);
        lathe_change_put(change, &list);
    }
    lathe_error_clear();
    const char *out = lathe_arena_strdup(arena, list.data ? list.data : "");
    *out_n = n;
    lathe_buffer_fini(&list);
    json_decref(changes);
    json_decref(now);
    json_decref(was);
    lathe_config_destroy(config);
    return out ? out : "no memory";
}

lathe_status lathe_step_state_write(const lathe_pipeline_step *step)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, step->dir, LATHE_PIPELINE_RECORD);
    lathe_config *config;
    json_t *settings;
    settings_of(step, &config, &settings);
    json_t *root = settings ? json_pack("{s:s, s:i, s:s, s:o}", "format", "lathe-pipeline-step",
                                        "version", 1, "step", step->name, "config", settings)
                            : NULL;
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    lathe_status status = path && text
                              ? lathe_file_write_atomic(path, text, (int64_t)strlen(text))
                              : lathe_error(LATHE_E_NOMEM, "no memory to record a finished step");
    free(text);
    json_decref(root);
    lathe_config_destroy(config);
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
    if (checked == LATHE_OK) {
        states[i].why =
            has_ended(step->dir, arena) ? list_changes(step, arena, &states[i].n_changed) : "";
        states[i].kind =
            has_ended(step->dir, arena) && !states[i].why[0] ? LATHE_STEP_DONE : LATHE_STEP_BEGUN;
    }
    json_decref(meta);
    return checked;
}

/* Checks the steps of a pipeline. */
#include "pipeline/pipeline_check.h"

#include <string.h>

#include "base/error.h"
#include "base/toml.h"
#include "opening/opening.h"

/* model.path of a run, of its file or its overrides; NULL: a new model, or an error. */
static const char *model_path(const lathe_pipeline_step *step, lathe_arena *arena)
{
    lathe_registry *registry = NULL;
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    const char *path = NULL;
    lathe_toml_node *node = NULL;
    for (int32_t i = step->n_overrides; i-- > 0;)
        if (strcmp(step->overrides[i].key, "model.path") == 0 &&
            lathe_toml_literal(step->overrides[i].value, arena, &node) == LATHE_OK)
            return node->s;
    if (lathe_registry_create(&registry) == LATHE_OK &&
        lathe_config_load(step->run, step->overrides, step->n_overrides, 0, registry, &diags,
                          &config) == LATHE_OK)
        path = lathe_config_string(config, "model", "path");
    path = path ? lathe_arena_strdup(arena, path) : NULL;
    lathe_error_clear();
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    lathe_registry_destroy(registry);
    return path;
}

/* The model that a step begins with, or that the steps before it begin with; NULL: a new one. */
static const char *stand_in(const lathe_pipeline *p, const lathe_step_state *states, int32_t i,
                            lathe_arena *arena)
{
    const lathe_pipeline_step *step = &p->steps[i];
    if (states[i].kind == LATHE_STEP_DONE)
        return states[i].checkpoint;
    for (int32_t k = 0; k < step->n_uses; k++)
        if (strcmp(step->overrides[step->uses[k].at].key, "model.path") == 0)
            return stand_in(p, states, step->uses[k].step, arena);
    return model_path(step, arena);
}

static const char *quoted(const char *text, lathe_arena *arena)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    lathe_buffer_json_string(&b, text);
    const char *out = b.status == LATHE_OK ? lathe_arena_strdup(arena, b.data) : NULL;
    lathe_buffer_fini(&b);
    return out;
}

/* Copies the step's overrides. A model that an earlier step will write ("@NAME") is replaced by one
 * that exists now. Returns NULL if there is none. */
static lathe_override *with_models(const lathe_pipeline *p, const lathe_step_state *states,
                                   int32_t i, lathe_arena *arena)
{
    const lathe_pipeline_step *step = &p->steps[i];
    lathe_override *list =
        lathe_arena_alloc(arena, (step->n_overrides + 1) * (int64_t)sizeof *list);
    if (!list)
        return NULL;
    for (int32_t k = 0; k < step->n_overrides; k++)
        list[k] = step->overrides[k];
    for (int32_t k = 0; k < step->n_uses; k++) {
        const lathe_pipeline_use *use = &step->uses[k];
        if (states[use->step].kind == LATHE_STEP_DONE)
            continue;
        const char *path = stand_in(p, states, use->step, arena);
        list[use->at].value = path ? quoted(path, arena) : NULL;
        if (!list[use->at].value)
            return NULL;
    }
    return list;
}

/* Checks the keys of a run file alone. */
static lathe_status check_keys(const lathe_pipeline_step *step, lathe_diags *diags)
{
    lathe_registry *registry = NULL;
    lathe_config *config = NULL;
    LATHE_TRY(lathe_registry_create(&registry));
    const lathe_status status = lathe_config_load(step->run, step->overrides, step->n_overrides, 0,
                                                  registry, diags, &config);
    lathe_config_destroy(config);
    lathe_registry_destroy(registry);
    return status;
}

/* Refuses an adapter alone where a whole model is needed. As model.path it will do: the step begins
 * with it over its base. */
static void check_saved(const lathe_pipeline *p, const int32_t *saves_model, int32_t i,
                        lathe_diags *diags)
{
    const lathe_pipeline_step *step = &p->steps[i];
    for (int32_t k = 0; k < step->n_uses; k++)
        if (!saves_model[step->uses[k].step] &&
            strcmp(step->overrides[step->uses[k].at].key, "model.path") != 0)
            lathe_diags_add(
                diags, LATHE_DIAG_ERROR, &step->place, NULL,
                "step \"%s\": %s = \"%s\", but the checkpoints of step \"%s\" will hold "
                "an adapter and no model: train that step with adapter.name = \"full\"",
                step->name, step->overrides[step->uses[k].at].key, step->uses[k].written,
                p->steps[step->uses[k].step].name);
}

/* Copies what the check of one step found, and a failure that it found without a diagnostic. */
static lathe_status tell(const lathe_pipeline_step *step, lathe_status status,
                         const lathe_diags *found, lathe_diags *diags)
{
    for (int64_t i = 0; i < found->n; i++) {
        const lathe_place place = lathe_pipeline_place(step, &found->items[i].place);
        lathe_diags_add(diags, found->items[i].severity, &place, found->items[i].suggestion, "%s",
                        found->items[i].message);
    }
    if (status == LATHE_OK || status == LATHE_E_NOMEM || status == LATHE_E_DEVICE ||
        status == LATHE_E_INTERRUPTED)
        return status;
    if (found->n_errors == 0)
        lathe_diags_add(diags, LATHE_DIAG_ERROR, &step->place, NULL, "step \"%s\": %s", step->name,
                        lathe_error_message());
    lathe_error_clear();
    return LATHE_OK;
}

lathe_status lathe_pipeline_check(const lathe_pipeline *pipeline, const lathe_step_state *states,
                                  lathe_arena *arena, lathe_diags *diags, int32_t *out_partly)
{
    int32_t *saves_model =
        lathe_arena_alloc(arena, (pipeline->n + 1) * (int64_t)sizeof *saves_model);
    if (!saves_model)
        return LATHE_E_NOMEM;
    *out_partly = 0;
    for (int32_t i = 0; i < pipeline->n; i++) {
        const lathe_pipeline_step *step = &pipeline->steps[i];
        lathe_diags found = {0};
        saves_model[i] = 1; /* of a finished step it is known: lathe_pipeline_resolve */
        if (states[i].kind == LATHE_STEP_DONE)
            continue;
        const lathe_override *list = with_models(pipeline, states, i, arena);
        *out_partly += list == NULL;
        const lathe_status status = list ? lathe_run_check(step->run, list, step->n_overrides, 0, 0,
                                                           &found, &saves_model[i])
                                         : check_keys(step, &found);
        const lathe_status told = tell(step, status, &found, diags);
        lathe_diags_fini(&found);
        LATHE_TRY(told);
        if (status != LATHE_OK)
            saves_model[i] = 1; /* one error is enough */
        check_saved(pipeline, saves_model, i, diags);
    }
    return lathe_diags_status(diags);
}

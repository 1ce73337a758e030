/* Checks the steps of a pipeline. */
#include "cmd/pipeline/pipeline_check.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "run/open/opening.h"

/* model.path of a run, of its file or its overrides; NULL: a new model, or an error. */
static const char *model_path(const lathe_pipeline_step *step, lathe_arena *arena)
{
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    const char *path = NULL;
    for (int32_t i = step->edits.n; i-- > 0;)
        if (strcmp(step->edits.list[i].key, "model.path") == 0)
            return step->edits.list[i].value->s;
    if (lathe_pipeline_config(step, &step->edits, &diags, &config) == LATHE_OK)
        path = lathe_config_string(config, "model", "path");
    path = path ? lathe_arena_strdup(arena, path) : NULL;
    lathe_error_clear();
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
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
        if (strcmp(step->edits.list[step->uses[k].at].key, "model.path") == 0)
            return stand_in(p, states, step->uses[k].step, arena);
    return model_path(step, arena);
}

static int is_key(const lathe_pipeline_step *step, const lathe_pipeline_use *use, const char *key)
{
    return lathe_pipeline_is_key(step->edits.list[use->at].key, key);
}

/* Copies the step's overrides. A model that an earlier step will write ("@NAME") is replaced by one
 * that exists now. *out_is_whole 0: there is none. *out_reward 1: reward.model is one of them. */
static lathe_status with_models(const lathe_pipeline *p, const lathe_step_state *states, int32_t i,
                                lathe_arena *arena, lathe_edits *out, int32_t *out_is_whole,
                                int32_t *out_reward)
{
    const lathe_pipeline_step *step = &p->steps[i];
    lathe_edits_take(out, &step->edits, 0);
    *out_is_whole = 1;
    *out_reward = 0;
    for (int32_t k = 0; k < step->n_uses && out->status == LATHE_OK; k++) {
        const lathe_pipeline_use *use = &step->uses[k];
        if (states[use->step].kind == LATHE_STEP_DONE)
            continue;
        const char *path = stand_in(p, states, use->step, arena);
        *out_is_whole &= path != NULL;
        if (path)
            lathe_edits_set_text(out, use->at, path);
        *out_reward |= is_key(step, use, "reward.model");
    }
    return out->status;
}

/* ---- what an earlier step will make ---- */

/* The checkpoints that a step will write. They are not known for a step that is finished, which is
 * read from its folder, nor for one with errors, whose own errors are enough. */
typedef struct product {
    lathe_run_product of;
    int32_t is_known;
} product;

static void forget(product *products, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        lathe_run_product_fini(&products[i].of);
}

/* Why the key cannot have what the earlier step will make; NULL: it can. `own`: of the step itself.
 * *out_advice: what to do. */
static const char *misfit(const lathe_pipeline_step *step, const lathe_pipeline_use *use,
                          const product *made, const product *own, const char **out_advice)
{
    const int is_model = is_key(step, use, "model.path");
    if (use->rest[0] && !made->of.has_average) {
        *out_advice = "set train.weight_average in that step, or leave out /average";
        return "no averaged weights";
    }
    if (!made->of.saves_model && !is_model) {
        *out_advice = "train that step with adapter.name = \"full\"";
        return "an adapter and no model";
    }
    if (is_key(step, use, "reward.model")) {
        *out_advice = "train that step with stage.name = \"rm\"";
        return made->of.n_labels == 1 ? NULL : "a language model and no reward model";
    }
    if (made->of.n_labels == 0 ||
        (is_model && (!own->is_known || own->of.n_labels == made->of.n_labels)))
        return NULL;
    *out_advice = "name a step that makes a language model";
    return "a sequence classifier, such as a reward model, which has no head over the vocabulary";
}

/* Refuses keys that cannot have what an earlier step will make. An adapter alone will do as
 * model.path: the step begins with it over its base. */
static void check_uses(const lathe_pipeline *p, const product *products, int32_t i,
                       lathe_diags *diags)
{
    const lathe_pipeline_step *step = &p->steps[i];
    for (int32_t k = 0; k < step->n_uses; k++) {
        const lathe_pipeline_use *use = &step->uses[k];
        const char *advice = "", *why = NULL;
        if (products[use->step].is_known)
            why = misfit(step, use, &products[use->step], &products[i], &advice);
        if (why)
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &step->place, NULL,
                            "step \"%s\": %s = \"%s\", but the checkpoints of step \"%s\" will "
                            "hold %s: %s",
                            step->name, step->edits.list[use->at].key, use->written,
                            p->steps[use->step].name, why, advice);
    }
}

/* ---- one step ---- */

/* Copies what the check of one step found, and a failure that it found without a diagnostic. */
static lathe_status tell(const lathe_pipeline_step *step, lathe_status status,
                         const lathe_diags *found, lathe_diags *diags)
{
    for (int64_t i = 0; i < found->n; i++) {
        const lathe_place place = lathe_pipeline_place(step, &found->items[i].place);
        /* an option is for every step, and may be wrong for one of them */
        const int is_option = place.line == 0 && place.file && strncmp(place.file, "--", 2) == 0;
        lathe_diags_add(diags, found->items[i].severity, &place, found->items[i].suggestion,
                        "%s%s%s%s", is_option ? "step \"" : "", is_option ? step->name : "",
                        is_option ? "\": " : "", found->items[i].message);
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

/* The adapter alone that an earlier step will make and that this one begins with. A step that goes
 * on from such a one trains its adapter further, so the last of them counts. */
static lathe_status find_beginning(const lathe_pipeline *p, const product *products, int32_t i,
                                   lathe_arena *arena, lathe_beginning *out)
{
    const lathe_pipeline_step *step = &p->steps[i];
    for (int32_t k = 0; k < step->n_uses; k++) {
        const product *made = &products[step->uses[k].step];
        if (!is_key(step, &step->uses[k], "model.path") || !made->is_known ||
            made->of.saves_model || !made->of.settings)
            continue;
        out->product = &made->of;
        out->what = lathe_arena_printf(arena, "the checkpoints of step \"%s\"",
                                       p->steps[step->uses[k].step].name);
        return out->what ? LATHE_OK : LATHE_E_NOMEM;
    }
    return LATHE_OK;
}

/* Checks a step with the models that stand in for those of earlier steps, or, if there is none, by
 * its keys alone (*out_partly 1). */
static lathe_status check_step(const lathe_pipeline *p, const lathe_step_state *states, int32_t i,
                               lathe_arena *arena, lathe_diags *diags, product *products,
                               int32_t *out_partly)
{
    const lathe_pipeline_step *step = &p->steps[i];
    product *out = &products[i];
    lathe_diags found = {0};
    lathe_beginning begins = {.product = NULL};
    lathe_edits edits = {.n = 0};
    int32_t is_whole = 0;
    LATHE_TRY(find_beginning(p, products, i, arena, &begins));
    lathe_status status = with_models(p, states, i, arena, &edits, &is_whole, &begins.reward);
    *out_partly = !is_whole;
    const lathe_run_source from = {step->run, is_whole ? &edits : &step->edits, step->inputs};
    if (status == LATHE_OK)
        status = lathe_run_check(&from, is_whole ? LATHE_OPEN_CHECK : LATHE_OPEN_CHECK_UNMADE, 0,
                                 &begins, &found, &out->of);
    lathe_edits_fini(&edits);
    out->is_known = status == LATHE_OK;
    const lathe_status told = tell(step, status, &found, diags);
    lathe_diags_fini(&found);
    return told;
}

/* Adds the errors of the steps whose run files could not be read. */
static lathe_status check_unread(const lathe_pipeline *p, lathe_diags *diags)
{
    for (int32_t i = 0; i < p->n; i++) {
        const lathe_pipeline_step *step = &p->steps[i];
        lathe_diags found = {0};
        if (step->dir)
            continue;
        const lathe_status status =
            lathe_run_check(&(lathe_run_source){step->run, &step->edits, step->inputs},
                            LATHE_OPEN_CHECK_UNMADE, 0, NULL, &found, NULL);
        const lathe_status told = found.n_errors > 0 ? tell(step, status, &found, diags) : LATHE_OK;
        lathe_error_clear();
        lathe_diags_fini(&found);
        LATHE_TRY(told);
    }
    return LATHE_OK;
}

lathe_status lathe_pipeline_check_files(const lathe_pipeline *pipeline, lathe_arena *arena,
                                        lathe_diags *diags)
{
    const int64_t n = pipeline->n;
    lathe_step_state *states = lathe_arena_alloc(arena, n * (int64_t)sizeof *states);
    product *products = lathe_arena_alloc(arena, n * (int64_t)sizeof *products);
    int32_t partly;
    if (!states || !products)
        return LATHE_E_NOMEM;
    memset(states, 0, (size_t)n * sizeof *states); /* LATHE_STEP_NEW */
    memset(products, 0, (size_t)n * sizeof *products);
    LATHE_TRY(check_unread(pipeline, diags));
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < n && diags->n_errors > 0 && status == LATHE_OK; i++) {
        const lathe_pipeline_step *step = &pipeline->steps[i];
        if (!step->dir || lathe_path_is_dir(step->dir))
            continue;
        status = check_step(pipeline, states, i, arena, diags, products, &partly);
        check_uses(pipeline, products, i, diags);
    }
    forget(products, n);
    return status == LATHE_OK ? lathe_diags_status(diags) : status;
}

lathe_status lathe_pipeline_check(const lathe_pipeline *pipeline, const lathe_step_state *states,
                                  lathe_arena *arena, lathe_diags *diags, int32_t *out_partly)
{
    product *products = lathe_arena_alloc(arena, (pipeline->n + 1) * (int64_t)sizeof *products);
    int32_t partly = 0;
    if (!products)
        return LATHE_E_NOMEM;
    memset(products, 0, (size_t)pipeline->n * sizeof *products);
    *out_partly = 0;
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < pipeline->n && status == LATHE_OK; i++) {
        if (states[i].kind == LATHE_STEP_DONE)
            continue;
        status = check_step(pipeline, states, i, arena, diags, products, &partly);
        *out_partly += partly;
        check_uses(pipeline, products, i, diags);
    }
    forget(products, pipeline->n);
    return status == LATHE_OK ? lathe_diags_status(diags) : status;
}

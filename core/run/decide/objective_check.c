/* Checks the objective of the stage. */
#include "run/decide/objective_check.h"

#include "base/error.h"
#include "plug/answers.h"

static const char *const names[LATHE_N_OBJECTIVES] = {"causal", "prefix", "masked"};

/* The objective of the stage that the run file names, also where the run does not use it. */
static int32_t stage_objective(const lathe_run *run, lathe_objective *out)
{
    /* the first call, of lathe__objective_check, reports a wrong answer */
    if (lathe_answer_objective(&run->parts.stage, out) != LATHE_OK)
        return LATHE_OBJECTIVE_CAUSAL;
    return out->kind;
}

int32_t lathe__run_objective(const lathe_run *run)
{
    lathe_objective unused;
    return lathe__run_infers(run) ? LATHE_OBJECTIVE_CAUSAL : stage_objective(run, &unused);
}

lathe_status lathe__objective_check(const lathe_run *run)
{
    lathe_objective objective;
    LATHE_TRY(lathe_answer_objective(&run->parts.stage, &objective));
    if (objective.kind == LATHE_OBJECTIVE_CAUSAL || run->set.sample_every == 0)
        return LATHE_OK;
    return lathe__run_refuse(run, "generate", "every",
                             "generate.every = %lld asks for samples, which are generated token by "
                             "token, and the objective of stage \"%s\" is %s: take generate.every "
                             "out",
                             (long long)run->set.sample_every,
                             run->parts.stage.component->plugin->name, names[objective.kind]);
}

lathe_status lathe__objective_tokens(lathe_run *run)
{
    lathe_objective objective;
    if (lathe__run_objective(run) == LATHE_OBJECTIVE_CAUSAL)
        return LATHE_OK;
    LATHE_TRY(lathe_answer_objective(&run->parts.stage, &objective));
    const lathe_status status = lathe_row_objective_init(&objective, run->data.tokenizer,
                                                         &run->arena, &run->data.objective);
    return status == LATHE_E_CONFIG ? lathe__run_refuse_part(run, LATHE_KIND_STAGE) : status;
}

/* The model of a folder says that it is not causal. */
static lathe_status refuse_two_way(const lathe_run *run, int32_t kind)
{
    return lathe__run_refuse(
        run, "model", "path",
        "%s/config.json: is_causal is false: the model reads documents in both directions, and %s "
        "is %s: set stage.objective to \"masked\", or remove the key to make the model causal",
        run->set.model_path, run->parts.stage.component ? "the objective of the stage" : "the run",
        names[kind]);
}

lathe_status lathe__objective_check_model(lathe_run *run)
{
    lathe_model_config *m = &run->model;
    const int32_t kind = lathe__run_objective(run);
    for (int32_t i = 0; kind != LATHE_OBJECTIVE_CAUSAL && i < m->n_layers; i++)
        if (m->layers[i].window > 0 && m->layers[i].window < run->set.seq_len)
            return lathe__run_refuse(
                run, "data", "seq_len",
                "layer %d of the model sees a window of %d tokens, which is causal, and the "
                "objective of stage \"%s\" is %s: set data.seq_len to %d at most, so that the "
                "window has no effect, or use the causal objective",
                i, m->layers[i].window, run->parts.stage.component->plugin->name, names[kind],
                m->layers[i].window);
    if (kind == LATHE_OBJECTIVE_MASKED)
        m->is_two_way = 1;
    else if (m->is_two_way && !lathe__run_infers(run)) /* merging is allowed */
        return refuse_two_way(run, kind);
    return LATHE_OK;
}

lathe_status lathe__objective_check_generation(const lathe_run *run)
{
    lathe_objective unused;
    const int32_t kind = stage_objective(run, &unused);
    if (kind != LATHE_OBJECTIVE_CAUSAL)
        return lathe__run_refuse(run, "stage", "objective",
                                 "the objective of stage \"%s\" is %s, and text is generated "
                                 "causally, which the model is not trained for",
                                 run->parts.stage.component->plugin->name, names[kind]);
    return run->model.is_two_way
               ? lathe_model_config_refuse_two_way(&run->model, run->set.model_path, "generation")
               : LATHE_OK;
}

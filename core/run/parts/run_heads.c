/* Makes the heads (output matrices) that the run's stage adds to the policy's last hidden
 * states. */
#include "run/parts/run_heads.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "plug/answers.h"

/* The stage's table; NULL: none. */
static const lathe_stage_v1 *stage_of(const lathe_run *run)
{
    return run->parts.stage.component ? run->parts.stage.table : NULL;
}

/* Whether the stage has head i of its table with its settings. */
static int has_head(const lathe_run *run, int32_t i)
{
    return (lathe_answer_heads(&run->parts.stage) >> i) & 1;
}

/* The head that makes the model a sequence classifier; NULL: none. */
static const lathe_stage_head *score_of(const lathe_run *run)
{
    const lathe_stage_v1 *stage = stage_of(run);
    for (int32_t i = 0; i < LATHE_MAX_STAGE_HEADS; i++)
        if (has_head(run, i) && strcmp(stage->heads[i].name, "score") == 0)
            return &stage->heads[i];
    return NULL;
}

int32_t lathe__run_n_labels(const lathe_run *run)
{
    const lathe_stage_head *score = score_of(run);
    return score ? score->n_outputs : 0;
}

/* The padding token that transformers' classifiers need in config.json. */
static int32_t padding_token(const lathe_run *run)
{
    const lathe_model_config *model = &run->model;
    const int32_t pad = run->data.tokenizer ? lathe_tokenizer_pad(run->data.tokenizer) : -1;
    if (model->pad >= 0)
        return model->pad;
    return pad >= 0 && pad < model->vocab ? pad : model->n_eos > 0 ? model->eos[0] : -1;
}

lathe_status lathe__run_make_classifier(lathe_run *run)
{
    const lathe_stage_head *score = score_of(run);
    lathe_model_config *model = &run->model;
    if (score == NULL && model->n_labels == 0)
        return LATHE_OK;
    if (score == NULL)
        return lathe__run_refuse(
            run, "model", "path",
            "model.path = \"%s\" is a sequence classifier of %d label%s, such as a reward model, "
            "which has no head over the vocabulary; expected a language model, or a stage that "
            "trains a score, such as rm",
            run->set.model_path, model->n_labels, model->n_labels == 1 ? "" : "s");
    if (model->wrapper)
        return lathe__run_refuse(
            run, "stage", "name",
            "stage \"%s\" makes the model a sequence classifier, and model.path = \"%s\" has more "
            "towers than the text model (model_type %s), of which Lathe writes no classifier: "
            "expected the folder of a text model",
            run->parts.stage.component->plugin->name, run->set.model_path,
            model->wrapper->model_type);
    if (model->n_labels > 0 && model->n_labels != score->n_outputs)
        return lathe__run_refuse(
            run, "model", "path",
            "model.path = \"%s\" is a sequence classifier of %d labels, and stage \"%s\" trains a "
            "score of %d: choose a folder with %d, or a language model",
            run->set.model_path, model->n_labels, run->parts.stage.component->plugin->name,
            score->n_outputs, score->n_outputs);
    if (lathe__run_generates(run))
        return lathe__run_refuse(run, "stage", "name",
                                 "stage \"%s\" makes the model a sequence classifier, such as a "
                                 "reward model, which generates no text; expected a language model",
                                 run->parts.stage.component->plugin->name);
    if (lathe__run_has_step(run) && run->set.sample_every > 0)
        return lathe__run_refuse(run, "generate", "every",
                                 "generate.every = %lld: stage \"%s\" makes the model a sequence "
                                 "classifier, which generates "
                                 "no text: leave it out",
                                 (long long)run->set.sample_every,
                                 run->parts.stage.component->plugin->name);
    model->n_labels = score->n_outputs;
    if (!model->is_classifier) /* a classifier without one reads the very last token */
        model->pad = padding_token(run);
    return LATHE_OK;
}

/* Whether model.path is the folder of a classifier, which then has this score. Beside an adapter
 * over a frozen model the score may be in the adapter's file instead. */
static int is_saved(const lathe_run *run, const lathe_stage_head *head)
{
    return run->model.json && run->model.is_classifier && strcmp(head->name, "score") == 0;
}

lathe_status lathe__run_add_heads(lathe_run *run)
{
    const lathe_stage_v1 *stage = stage_of(run);
    const lathe_adapter_v1 *adapter =
        run->parts.adapter.component ? run->parts.adapter.table : NULL;
    const int is_generating = lathe__run_generates(run);
    const int32_t n = is_generating ? 0 : LATHE_MAX_STAGE_HEADS;
    const int is_frozen =
        LATHE_HAS(adapter, base_is_frozen) && adapter->base_is_frozen(run->parts.adapter.self);
    for (int32_t i = 0; i < n; i++) {
        char name[96];
        int32_t index;
        if (!has_head(run, i))
            continue;
        lathe_stage_head_param(&stage->heads[i], name, sizeof name);
        const lathe_param row = {
            .name = name,
            .desc = lathe_desc_2d(LATHE_F32, stage->heads[i].n_outputs, run->model.width),
            .init = LATHE_INIT_NORMAL,
            .init_scale = lathe_model_initializer_range(&run->model),
            .role = LATHE_ROLE_HEAD,
            .layer = -1,
            .trainable = lathe__run_has_step(run),
            .stage_head =
                !is_frozen && is_saved(run, &stage->heads[i]) ? LATHE_HEAD_SAVED : LATHE_HEAD_NEW};
        if (lathe_params_find(&run->params, name) >= 0)
            return lathe_error(
                LATHE_E_PLUGIN, "stage \"%s\" has a head \"%s\", and the model has a parameter %s",
                run->parts.stage.component->plugin->name, stage->heads[i].name, name);
        LATHE_TRY(lathe_params_add(&run->params, &row, &index));
    }
    if (!is_frozen)
        run->params.n_model = run->params.n;
    return LATHE_OK;
}

/* The teacher of a run. */
#include "run/parts/teacher.h"
#include "plug/op_library.h"
#include "run/decide/objective_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/precision.h"
#include "exec/store/weight_fill.h"
#include "files/gguf/model_files.h"
#include "model/family/stored_formats.h"
#include "plug/answers.h"
#include "plug/stage_inputs.h"
#include "run/parts/other_model.h"
#include "run/parts/stored_teacher.h"

static int is_needed(const lathe_run *run)
{
    return (lathe_answer_needs(&run->parts.stage) & LATHE_NEEDS_TEACHER) && !lathe__run_infers(run);
}

/* The longrope factors of one model choose the positions of the batch, which all models read. */
static int has_longrope(const lathe_model_config *model)
{
    for (int32_t i = 0; i < model->n_ropes; i++)
        if (model->ropes[i].type == LATHE_ROPE_LONGROPE)
            return 1;
    return 0;
}

static lathe_status check_model(const lathe_run *run, const lathe_model_config *teacher)
{
    const char *path = run->set.teacher_path;
    if (teacher->n_labels > 0)
        return lathe__run_refuse(
            run, "teacher", "path",
            "teacher.path = \"%s\" is a sequence classifier, which has no head "
            "over the vocabulary; expected a language model",
            path);
    if (run->set.seq_len > teacher->max_positions)
        return lathe__run_refuse(run, "teacher", "path",
                                 "teacher.path = \"%s\": the teacher has %lld positions; expected "
                                 "at least data.seq_len = %d",
                                 path, (long long)teacher->max_positions, run->set.seq_len);
    if (has_longrope(teacher) || has_longrope(&run->model))
        return lathe__run_refuse(run, "teacher", "path",
                                 "teacher.path = \"%s\": the rotary positions of %s are of type "
                                 "longrope, which distillation does not support",
                                 path, has_longrope(teacher) ? "the teacher" : "the model");
    return lathe__run_check_vocabulary(run, "teacher", "path", path, "the teacher", teacher, 1);
}

/* Checks the settings that lathe logprobs needs besides the teacher. */
static lathe_status check_top_k(const lathe_run *run)
{
    const int64_t vocab = lathe__teacher_tokens(run);
    if (run->open.top_k > vocab)
        return lathe__run_refuse(
            run, "teacher", "path",
            "--top-k is %d, and the vocabulary of the teacher and the model has %lld tokens; "
            "expected at most that many",
            run->open.top_k, (long long)vocab);
    return LATHE_OK;
}

/* Checks what lathe logprobs needs: a stage that learns from what it stores, and the teacher. */
static lathe_status check_storing(const lathe_run *run, const char *stage)
{
    if (!lathe_stage_takes_stored(run->parts.stage.table))
        return lathe__run_refuse(run, "stage", "name",
                                 "stage \"%s\" does not learn from stored log-probabilities; "
                                 "expected the run file of a model that will, with stage.name = "
                                 "\"distill\" and teacher.path, the teacher's folder",
                                 stage);
    if (!run->set.teacher_path)
        return lathe__run_refuse(run, "teacher", "path",
                                 "teacher.path is missing: lathe logprobs runs this model over the "
                                 "data; set it to the folder of a language model");
    return LATHE_OK;
}

/* Decides whether the teacher is a model of the run (*out 1) or its stored log-probabilities. */
static lathe_status choose(const lathe_run *run, int *out)
{
    const char *path = run->set.teacher_path, *stored = run->set.teacher_stored;
    const char *stage = run->parts.stage.component->plugin->name;
    const int has_stored = stored && stored[0] && !lathe__run_makes_logprobs(run);
    *out = !has_stored;
    if (path && has_stored)
        return lathe__run_refuse(run, "teacher", "stored",
                                 "teacher.path and teacher.stored are both set; expected one of "
                                 "them: the teacher's folder, or what lathe logprobs stored of it");
    if (lathe__run_makes_logprobs(run))
        return check_storing(run, stage);
    if (!path && !has_stored)
        return lathe__run_refuse(run, "stage", "name",
                                 "stage \"%s\" learns from a teacher: set teacher.path to the "
                                 "folder of a language model%s",
                                 stage,
                                 lathe_stage_takes_stored(run->parts.stage.table)
                                     ? ", or teacher.stored to what lathe logprobs made of one"
                                     : "");
    return LATHE_OK;
}

lathe_status lathe__teacher_check_keys(const lathe_run *run)
{
    int is_model;
    return is_needed(run) ? choose(run, &is_model) : LATHE_OK;
}

/* Its own dtype, or that of the run if the device does not compute in it. */
static int32_t dtype_of(const lathe_run *run)
{
    const int32_t asked = run->set.teacher_dtype;
    const int32_t wanted = asked == LATHE_TEACHER_AUTO ? run->teacher->model.file_dtype : asked;
    return lathe_precision_on(&run->machine.info, wanted) == wanted ? wanted
                                                                    : run->set.compute_dtype;
}

static lathe_status add_rows(lathe_run *run)
{
    lathe_teacher *t = run->teacher;
    const int32_t dtype = dtype_of(run);
    t->first = run->params.n;
    for (int32_t i = 0; i < t->params.n; i++) {
        lathe_param row = *t->params.rows[i];
        char name[512];
        int32_t index;
        (void)snprintf(name, sizeof name, LATHE_TEACHER_PREFIX "%s", row.name);
        row.name = name;
        row.reference = 1;
        row.other = LATHE_OTHER_TEACHER;
        row.dtype = dtype;
        LATHE_TRY(lathe_params_add(&run->params, &row, &index));
    }
    return LATHE_OK;
}

lathe_status lathe__teacher_params(lathe_run *run)
{
    const lathe_model_source source = {.registry = run->registry};
    const char *path = run->set.teacher_path;
    int is_model = 0;
    if (!is_needed(run) && !lathe__run_makes_logprobs(run))
        return LATHE_OK;
    LATHE_TRY(choose(run, &is_model));
    if (!is_model)
        return lathe__stored_open(run);
    LATHE_TRY(lathe__run_check_whole(run, "teacher", "path", path, "a teacher"));
    run->teacher = calloc(1, sizeof *run->teacher);
    if (!run->teacher)
        return lathe_error(LATHE_E_NOMEM, "no memory for the teacher");
    lathe_status status =
        lathe_model_config_load_with(&run->inputs->texts, &source, path, &run->teacher->model);
    if (status == LATHE_OK && lathe__run_objective(run) != LATHE_OBJECTIVE_MASKED)
        status = lathe_model_config_refuse_two_way(&run->teacher->model, path, "the stage");
    if (status == LATHE_E_CONFIG || status == LATHE_E_IO || status == LATHE_E_NOT_FOUND)
        return lathe__run_refuse(run, "teacher", "path", "teacher.path: %s", lathe_error_message());
    LATHE_TRY(status);
    LATHE_TRY(check_model(run, &run->teacher->model));
    if (lathe__run_makes_logprobs(run)) {
        LATHE_TRY(check_top_k(run));
        lathe_params_fini(&run->params); /* the teacher is run alone, without the model's rows */
        lathe_params_init(&run->params, run->set.compute_dtype);
        run->params.ops = lathe_registry_ops(run->registry);
    }
    lathe_params_init(&run->teacher->params, run->set.compute_dtype);
    run->teacher->params.ops = lathe_registry_ops(run->registry);
    LATHE_TRY(lathe_model_params(&run->teacher->model, &run->teacher->params));
    run->teacher->params.n_model = run->teacher->params.n;
    status = lathe_stored_formats_take(run->registry, path, &run->teacher->model,
                                       &run->teacher->params, &run->teacher->source);
    if (status == LATHE_E_CONFIG)
        return lathe__run_refuse(run, "teacher", "path", "teacher.path: %s", lathe_error_message());
    LATHE_TRY(status);
    return add_rows(run);
}

/* ---- weights ---- */

/* Gives the loader, which knows the teacher's own names, the rows of the run's table. */
typedef struct shifted {
    lathe_weight_sink inner;
    const lathe_params *params; /* the run's */
    int32_t first;
} shifted;

static lathe_status place(void *arg, int32_t index, const lathe_param *row, void **out_data,
                          int32_t *out_dtype)
{
    const shifted *s = arg;
    const int32_t at = s->first + index;
    (void)row;
    return s->inner.place(s->inner.arg, at, s->params->rows[at], out_data, out_dtype);
}

static lathe_status place_planes(void *arg, int32_t index, const lathe_param *row, void **planes)
{
    const shifted *s = arg;
    const int32_t at = s->first + index;
    (void)row;
    return s->inner.place_planes(s->inner.arg, at, s->params->rows[at], planes);
}

static lathe_status planes_done(void *arg, int32_t index, const lathe_param *row,
                                void *const *planes)
{
    const shifted *s = arg;
    const int32_t at = s->first + index;
    (void)row;
    return s->inner.planes_done(s->inner.arg, at, s->params->rows[at], planes);
}

static lathe_status done(void *arg, int32_t index, const lathe_param *row, void *data)
{
    const shifted *s = arg;
    const int32_t at = s->first + index;
    (void)row;
    return s->inner.done(s->inner.arg, at, s->params->rows[at], data);
}

lathe_status lathe__teacher_check(const lathe_run *run)
{
    const lathe_teacher *t = run->teacher;
    lathe_safetensors *set = NULL;
    if (!t)
        return LATHE_OK;
    LATHE_TRY(lathe_model_weights(run->set.teacher_path, &set));
    const lathe_status status = lathe_weights_check(set, &t->model, &t->params);
    lathe_safetensors_close(set);
    return status;
}

lathe_status lathe__teacher_load(lathe_run *run)
{
    const lathe_teacher *t = run->teacher;
    lathe_safetensors *set = NULL;
    if (!t)
        return LATHE_OK;
    lathe_weight_fill fill = {.store = &run->store, .params = &run->params};
    shifted s = {lathe_weight_fill_sink(&fill), &run->params, t->first};
    const lathe_weight_sink sink = {.place = place,
                                    .done = done,
                                    .place_planes = place_planes,
                                    .planes_done = planes_done,
                                    .arg = &s};
    LATHE_TRY(lathe_model_weights(run->set.teacher_path, &set));
    const lathe_status status = lathe_weights_load(set, &t->model, &t->params, &sink);
    lathe_weight_fill_fini(&fill);
    lathe_safetensors_close(set);
    return status;
}

const lathe_model_config *lathe__teacher_model(const lathe_run *run)
{
    return run->teacher ? &run->teacher->model : NULL;
}

int64_t lathe__teacher_tokens(const lathe_run *run)
{
    const int64_t own = run->model.vocab, of_teacher = run->teacher->model.vocab;
    return own < of_teacher ? own : of_teacher;
}

void lathe__teacher_destroy(lathe_run *run)
{
    if (!run->teacher)
        return;
    lathe_params_fini(&run->teacher->params);
    lathe_quant_source_destroy(run->teacher->source);
    lathe_model_config_fini(&run->teacher->model);
    free(run->teacher);
    run->teacher = NULL;
}

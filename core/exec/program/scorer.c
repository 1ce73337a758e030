/* Scores sequences with a reward model. */
#include "exec/program/scorer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/batch_load.h"
#include "exec/store/weight_fill.h"
#include "files/gguf/model_files.h"
#include "model/family/stored_formats.h"
#include "model/family/weights.h"
#include "plug/op_library.h"

struct lathe_scorer {
    lathe_scorer_config config;
    lathe_model_config model;
    lathe_params params;
    lathe_store store;
    lathe_program program;
    int32_t *tokens, *positions, *doc_start; /* [n_rows * row_tokens] of a batch */
    int32_t is_placed;
};

/* ---- the model ---- */

static lathe_status check_model(lathe_scorer *s)
{
    lathe_model_config *m = &s->model;
    if (s->config.is_unmade && m->n_labels == 0)
        m->n_labels = 1;
    if (m->n_labels != 1)
        return lathe_error(LATHE_E_CONFIG,
                           "%s is no reward model: its architecture must be a "
                           "...ForSequenceClassification of one label, such as stage rm writes",
                           s->config.path);
    if (s->config.row_tokens > m->max_positions)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the reward model has %lld positions, and sequences of %lld tokens "
                           "are to be scored",
                           s->config.path, (long long)m->max_positions,
                           (long long)s->config.row_tokens);
    return LATHE_OK;
}

static lathe_status make_params(lathe_scorer *s)
{
    int32_t index;
    lathe_params_init(&s->params, s->config.compute_dtype);
    s->params.ops = lathe_registry_ops(s->config.source.registry);
    LATHE_TRY(lathe_model_params(&s->model, &s->params));
    const lathe_param score = {.name = "score.weight",
                               .desc = lathe_desc_2d(LATHE_F32, 1, s->model.width),
                               .role = LATHE_ROLE_HEAD,
                               .layer = -1,
                               .stage_head = LATHE_HEAD_SAVED};
    LATHE_TRY(lathe_params_add(&s->params, &score, &index));
    s->params.n_model = s->params.n;
    for (int32_t i = 0; i < s->params.n; i++) {
        s->params.rows[i]->other = LATHE_OTHER_REWARD;
        s->params.rows[i]->dtype = s->config.compute_dtype;
    }
    return LATHE_OK;
}

static lathe_status make_program(lathe_scorer *s)
{
    const lathe_program_config config = {.model = &s->model,
                                         .params = &s->params,
                                         .n_rows = s->config.n_rows,
                                         .row_tokens = s->config.row_tokens,
                                         .machine = s->config.machine};
    const size_t n = (size_t)s->config.n_rows * (size_t)s->config.row_tokens;
    s->tokens = calloc(3 * n, sizeof *s->tokens);
    if (!s->tokens)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld tokens", (long long)n);
    s->positions = s->tokens + n;
    s->doc_start = s->positions + n;
    LATHE_TRY(lathe_program_build(&config, LATHE_PROGRAM_SCORE, &s->program));
    LATHE_TRY(lathe_store_init(&s->store, &s->params, NULL, 0));
    return lathe_program_prepare(&s->program, s->config.machine);
}

lathe_status lathe_scorer_create(const lathe_scorer_config *config, lathe_scorer **out)
{
    lathe_scorer *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return lathe_error(LATHE_E_NOMEM, "no memory for a reward model");
    s->config = *config;
    lathe_status status = lathe_model_config_load(&config->source, config->path, &s->model);
    if (status == LATHE_OK)
        status = lathe_model_config_refuse_two_way(&s->model, config->path, "a reward model");
    if (status == LATHE_OK)
        status = check_model(s);
    if (status == LATHE_OK)
        status = make_params(s);
    if (status == LATHE_OK)
        status = lathe_stored_formats_refuse(config->source.registry, config->path, &s->model,
                                             &s->params, "a reward model");
    if (status == LATHE_OK)
        status = make_program(s);
    if (status != LATHE_OK) {
        lathe_scorer_destroy(s);
        return status;
    }
    *out = s;
    return LATHE_OK;
}

void lathe_scorer_destroy(lathe_scorer *s)
{
    if (!s)
        return;
    lathe_program_fini(&s->program);
    lathe_store_fini(&s->store, s->is_placed ? s->config.machine : NULL);
    lathe_params_fini(&s->params);
    lathe_model_config_fini(&s->model);
    free(s->tokens);
    free(s);
}

const lathe_model_config *lathe_scorer_model(const lathe_scorer *s)
{
    return &s->model;
}

/* ---- memory and weights ---- */

lathe_scorer_needs lathe_scorer_needs_get(const lathe_scorer *s)
{
    const lathe_plan *plan = lathe_exec_plan(s->program.exec);
    return (lathe_scorer_needs){.model_bytes = s->store.other_bytes,
                                .input_bytes = plan->input_bytes,
                                .staging_bytes = lathe_exec_staging_bytes(s->program.exec),
                                .arena_bytes = plan->arena_bytes,
                                .activation_bytes = plan->activation_bytes};
}

lathe_status lathe_scorer_place(lathe_scorer *s, void *arena)
{
    s->is_placed = 1;
    LATHE_TRY(lathe_store_place(&s->store, s->config.machine));
    return lathe_exec_place(s->program.exec, &s->store, arena);
}

lathe_status lathe_scorer_load(lathe_scorer *s)
{
    lathe_safetensors *set = NULL;
    lathe_weight_fill fill = {.store = &s->store, .params = &s->params};
    const lathe_weight_sink sink = lathe_weight_fill_sink(&fill);
    LATHE_TRY(lathe_model_weights(s->config.path, &set));
    const lathe_status status = lathe_weights_load(set, &s->model, &s->params, &sink);
    lathe_weight_fill_fini(&fill);
    lathe_safetensors_close(set);
    return status;
}

/* ---- scores ---- */

static lathe_status check_sequence(const lathe_scorer *s, const lathe_scored *q, int32_t index)
{
    if (q->n_tokens < 1 || q->n_tokens > s->config.row_tokens)
        return lathe_error(LATHE_E_ARG, "sequence %d to score has %d tokens; expected 1 to %lld",
                           index, q->n_tokens, (long long)s->config.row_tokens);
    for (int32_t t = 0; t < q->n_tokens; t++)
        if (q->tokens[t] < 0 || q->tokens[t] >= s->model.vocab)
            return lathe_error(LATHE_E_ARG,
                               "sequence %d to score has token %d, and the reward model %s has a "
                               "vocabulary of %lld",
                               index, q->tokens[t], s->config.path, (long long)s->model.vocab);
    return LATHE_OK;
}

/* Rows are padded on the right; the padding is a document of its own. */
static void fill_row(const lathe_scorer *s, const lathe_scored *q, int64_t r)
{
    const int64_t n = s->config.row_tokens, at = r * n;
    for (int64_t t = 0; t < n; t++) {
        const int is_padding = t >= q->n_tokens;
        s->tokens[at + t] = is_padding ? 0 : q->tokens[t];
        s->positions[at + t] = (int32_t)(is_padding ? t - q->n_tokens : t);
        s->doc_start[at + t] = is_padding ? q->n_tokens : 0;
    }
}

static lathe_status score_batch(lathe_scorer *s, const lathe_scored *sequences, int32_t n,
                                double *out)
{
    const lathe_instance no_stage = {.component = NULL};
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = n,
                                   .row_tokens = (int32_t)s->config.row_tokens,
                                   .tokens = s->tokens,
                                   .positions = s->positions,
                                   .doc_start = s->doc_start};
    double count;
    const void *scores = NULL;
    for (int32_t r = 0; r < n; r++)
        fill_row(s, &sequences[r], r);
    LATHE_TRY(lathe__batch_load(&s->program, &s->model, &no_stage, &batch, 0, 0, &count));
    LATHE_TRY(lathe_exec_send(s->program.exec));
    LATHE_TRY(lathe_exec_run(s->program.exec, 0));
    LATHE_TRY(lathe_exec_fetch(s->program.exec, s->program.scores, &scores));
    for (int32_t r = 0; r < n; r++)
        out[r] = (double)((const float *)scores)[r];
    return LATHE_OK;
}

lathe_status lathe_scorer_score(lathe_scorer *s, const lathe_scored *sequences, int32_t n,
                                double *out)
{
    for (int32_t i = 0; i < n; i++)
        LATHE_TRY(check_sequence(s, &sequences[i], i));
    for (int32_t i = 0; i < n; i += s->config.n_rows) {
        const int32_t left = n - i, rows = left < s->config.n_rows ? left : s->config.n_rows;
        LATHE_TRY(score_batch(s, sequences + i, rows, out + i));
    }
    return LATHE_OK;
}

/* Opens models with texts as their data. */
#include "jobs/job_texts.h"

#include <string.h>

#include "base/diag.h"
#include "base/error.h"
#include "base/model_path.h"
#include "exec/program/precision.h"
#include "session/model_word.h"
#include "session/open_model.h"
#include "session/which_weights.h"

enum { ROW_TOKENS = 512, USUAL_ROWS = 128 };

lathe_status lathe__job_find_model(const char *word, int32_t which, lathe_arena *arena,
                                   const char **out)
{
    lathe_model_folder folder;
    char hint[LATHE_HUB_HINT];
    LATHE_TRY(lathe_model_word_check_weights(word));
    LATHE_TRY(lathe_which_weights_find(word, which, arena, &folder));
    LATHE_TRY(lathe_model_folder_refuse_adapter(&folder));
    if (!folder.has_model)
        return lathe_error(LATHE_E_CONFIG, "%s: has no config.json, so it is not a model folder%s",
                           folder.dir, lathe_models_hint(folder.dir, hint));
    lathe_which_weights_say(&folder);
    *out = folder.weights;
    return lathe_model_folder_check(&folder);
}

/* Tells how the columns of the texts are named, where an error is about them. */
static void tell_columns(const char *dash)
{
    const lathe_diags *found = lathe_error_diags();
    lathe_diags told = {0};
    for (int64_t i = 0; found != NULL && i < found->n; i++) {
        const lathe_diag *one = &found->items[i];
        const int is_of_columns = one->key != NULL && (strcmp(one->key, "columns") == 0 ||
                                                       strcmp(one->key, "format") == 0);
        if (is_of_columns)
            lathe_diags_add(&told, LATHE_DIAG_ERROR, &one->place, one->suggestion,
                            "%s (%scolumns '{text = \"NAME\"}', %sformat '{text = \"{NAME} "
                            "{NAME}\"}')",
                            one->message, dash, dash);
        else
            lathe_diags_add(&told, LATHE_DIAG_ERROR, &one->place, one->suggestion, "%s",
                            one->message);
    }
    if (found != NULL)
        (void)lathe_diags_status(&told);
    lathe_diags_fini(&told);
}

static lathe_status open_request(lathe_model_request *ask, const lathe_job_texts *texts,
                                 lathe_run **out)
{
    lathe_edits data = {.n = 0};
    lathe_status status = lathe__request_begin(ask);
    if (status == LATHE_OK)
        status = lathe_eval_data(ask, &texts->source, &data);
    ask->own = &data;
    if (status == LATHE_OK)
        status = lathe_model_open(ask, LATHE_OPEN_EVALUATE, out);
    lathe__request_end(ask);
    lathe_edits_fini(&data);
    return status;
}

lathe_status lathe__job_open_texts(const char *folder, const lathe_edits *settings,
                                   const lathe_job_texts *texts, lathe_run **out)
{
    lathe_edits edits = {.n = 0};
    lathe_edits_take(&edits, settings, 0);
    lathe_edits_text(&edits, LATHE_BY_COMMAND, "model.weights",
                     "training"); /* the choice is made */
    if (texts->length > 0 && !lathe_edits_have(settings, 0, "data.seq_len"))
        lathe_edits_int(&edits, LATHE_BY_COMMAND, "data.seq_len", texts->length);
    if (texts->precision >= 0 && !lathe_edits_have(settings, 0, "train.precision"))
        lathe_edits_text(&edits, LATHE_BY_COMMAND, "train.precision",
                         lathe_precision_name(texts->precision));
    lathe_edits_text(&edits, LATHE_BY_COMMAND, "stage.name", "pretrain");
    lathe_model_request ask = {.word = folder,
                               .edits = &edits,
                               .row_tokens = texts->calibrates ? ROW_TOKENS : 0,
                               .registry = texts->registry};
    const lathe_status status =
        edits.status == LATHE_OK ? open_request(&ask, texts, out) : edits.status;
    lathe_edits_fini(&edits);
    if (status != LATHE_OK)
        tell_columns(texts->dash);
    return status;
}

lathe_status lathe__job_count_batches(const lathe_run *run, int32_t n_rows, int64_t most_inputs,
                                      const char *dash, int64_t *out)
{
    const int64_t per_batch = run->set.micro_batch_size, length = run->set.seq_len;
    const int64_t there = per_batch * lathe_loader_batches(run->data.validation, 1);
    const int64_t rows = n_rows > 0 ? n_rows : there < USUAL_ROWS ? there : USUAL_ROWS;
    *out = (rows + per_batch - 1) / per_batch;
    if (rows > there)
        return lathe_error(LATHE_E_CONFIG,
                           "%s %lld: the calibration data have %lld row%s of %lld tokens: give "
                           "more text, or fewer rows",
                           dash[0] ? "--rows" : "n_rows", (long long)rows, (long long)there,
                           there == 1 ? "" : "s", (long long)length);
    if (rows * length < most_inputs)
        return lathe_error(
            LATHE_E_CONFIG,
            "the calibration data are too small: %lld row%s of %lld tokens for layers "
            "of %lld inputs; expected at least as many tokens as inputs",
            (long long)rows, rows == 1 ? "" : "s", (long long)length, (long long)most_inputs);
    return LATHE_OK;
}

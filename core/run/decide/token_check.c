/* Checks the tokenizer against the model. */
#include "run/decide/token_check.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/state/folder_tokenizer.h"
#include "files/gguf/model_files.h"
#include "tokenizer/json/tokenizer_file.h"

/* Names a token for people: 7 ("</s>"). */
static const char *token_text(const lathe_tokenizer *tokenizer, int32_t id, char *out,
                              size_t capacity)
{
    int64_t n = 0;
    const char *text = lathe_tokenizer_token(tokenizer, id, &n);
    if (text)
        (void)snprintf(out, capacity, "%d (\"%.*s\")", id, n < 60 ? (int)n : 60, text);
    else
        (void)snprintf(out, capacity, "%d", id);
    return out;
}

/* Checks that an end-of-text id has a row in the embedding and a token in the tokenizer. Begin and
 * padding ids are not checked: they are the tokenizer's own, and many config.json files hold ids of
 * other models. */
static lathe_status check_eos(const lathe_model_config *model, const lathe_run_data *data,
                              const char *path, int32_t id)
{
    const int64_t tokens = lathe_tokenizer_vocab_size(data->tokenizer);
    int64_t n = 0;
    if (id >= model->vocab)
        return lathe_error(LATHE_E_CONFIG,
                           "%s/config.json: eos_token_id is %d, but vocab_size is only %lld", path,
                           id, (long long)model->vocab);
    if (data->tokenizer_dir && lathe_tokenizer_token(data->tokenizer, id, &n) == NULL)
        return lathe_error(
            LATHE_E_CONFIG,
            "%s/config.json: eos_token_id is %d, which is not a token of %s (%lld tokens)", path,
            id, data->tokenizer_dir, (long long)tokens);
    return LATHE_OK;
}

/* Warns if the end tokens differ: training ends documents with the tokenizer's, other programs stop
 * at config.json's. */
static void compare_eos(const lathe_model_config *model, const lathe_run_data *data,
                        const char *path)
{
    const int32_t eos = lathe_tokenizer_eos(data->tokenizer);
    char ours[96], theirs[96];
    if (data->tokenizer_dir == NULL || model->n_eos == 0 || eos < 0)
        return;
    for (int32_t i = 0; i < model->n_eos; i++)
        if (model->eos[i] == eos)
            return;
    lathe_log_alike(
        LATHE_LOG_WARN,
        "%s/config.json: eos_token_id is %s, but the tokenizer of %s ends a text with %s: "
        "documents end with the latter in training",
        path, token_text(data->tokenizer, model->eos[0], theirs, sizeof theirs),
        data->tokenizer_dir, token_text(data->tokenizer, eos, ours, sizeof ours));
}

lathe_status lathe__token_check_bytes(const lathe_run *run)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *model = run->set.model_path;
    int reads_bytes = 0;
    const int reads_text = run->set.datasets || run->set.validation || (lathe__run_generates(run));
    if (run->data.tokenizer_dir || run->set.tokenizer_path || run->set.tokenizer_train ||
        model == NULL || !reads_text || lathe__run_only_plans(run))
        return LATHE_OK;
    if (!lathe_model_has(model, "config.json")) /* opening the model says that it is none */
        return LATHE_OK;
    const lathe_status status = lathe_folder_reads_bytes(model, &arena, &reads_bytes);
    lathe_arena_fini(&arena);
    LATHE_TRY(status);
    if (reads_bytes)
        return LATHE_OK;
    (void)lathe_tokenizer_missing(model); /* its text becomes part of the refusal */
    return lathe__run_refuse(run, "model", "path",
                             "%s; or set tokenizer.path (\"bytes\" for raw bytes)",
                             lathe_error_message());
}

/* A padding token of its own, without a row in the embedding, pads nothing here: no batch has it.
 * transformers takes such a folder, too. */
static lathe_status take_out_pad(const lathe_run *run)
{
    lathe_tokenizer *tok = run->data.tokenizer;
    const int32_t pad = lathe_tokenizer_pad(tok);
    int64_t n = 0;
    if (pad < run->model.vocab || pad != lathe_tokenizer_vocab_size(tok) - 1 ||
        pad == lathe_tokenizer_eos(tok) || !lathe_tokenizer_is_added(tok, pad))
        return LATHE_OK;
    const char *text = lathe_tokenizer_token(tok, pad, &n);
    lathe_log_alike(
        LATHE_LOG_WARN,
        "%s: pad_token \"%.*s\" (%d) has no row in the model, whose vocab_size is %lld: "
        "it is left out here, and a program that pads with it needs a model with more "
        "rows",
        run->data.tokenizer_dir ? run->data.tokenizer_dir : "the tokenizer", n < 60 ? (int)n : 60,
        text ? text : "", pad, (long long)run->model.vocab);
    return lathe_tokenizer_take_out_pad(tok);
}

lathe_status lathe__token_check(const lathe_run *run)
{
    if (run->data.tokenizer == NULL)
        return LATHE_OK;
    LATHE_TRY(take_out_pad(run));
    const int64_t n_read = lathe_tokenizer_vocab_size(run->data.tokenizer);
    const int64_t with_added = run->decided.tokens.n_after; /* not yet written, if it only plans */
    const int64_t tokens = with_added > n_read ? with_added : n_read;
    const int reads_text =
        !lathe__run_only_plans(run) && (run->set.datasets || run->set.validation);
    if (tokens > run->model.vocab && (run->data.tokenizer_dir || reads_text))
        return lathe__run_refuse(
            run, run->set.tokenizer_path ? "tokenizer" : "model",
            run->set.tokenizer_path || run->set.model_path ? "path" : "vocab_size",
            "%s%svocab_size is %lld, but %s has %lld tokens%s: model and tokenizer do not belong "
            "together",
            run->set.model_path ? run->set.model_path : "model.", run->set.model_path ? ": " : "",
            (long long)run->model.vocab,
            run->data.tokenizer_dir ? run->data.tokenizer_dir : "the tokenizer of bytes",
            (long long)tokens,
            run->decided.tokens.n > 0 ? " with those of tokenizer.add_tokens" : "");
    if (run->set.model_path == NULL)
        return LATHE_OK;
    for (int32_t i = 0; i < run->model.n_eos; i++)
        LATHE_TRY(check_eos(&run->model, &run->data, run->set.model_path, run->model.eos[i]));
    compare_eos(&run->model, &run->data, run->set.model_path);
    return LATHE_OK;
}

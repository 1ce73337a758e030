/* The end tokens of a run. */
#include "run/decide/end_tokens.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "config/config.h"
#include "generate/generator.h"

/* ---- the end of an answer ---- */

/* Whether what the folder says ends a text at this token. */
static int is_own(const lathe_run *run, int32_t id)
{
    return lathe_is_end_token(&run->generation, &run->model, run->data.tokenizer, id);
}

/* A token as the reader of a message knows it: its text. */
static const char *name_of(const lathe_run *run, int32_t id, int *out_bytes)
{
    int64_t n = 0;
    const char *text = lathe_tokenizer_token(run->data.tokenizer, id, &n);
    *out_bytes = text ? (n < 60 ? (int)n : 60) : 1;
    return text ? text : "?";
}

lathe_status lathe__end_tokens_find(lathe_run *run)
{
    lathe_answer_end *end = &run->data.answer_end;
    if (end->is_known || run->data.chat == NULL || run->data.tokenizer == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_answer_end_find(run->data.chat, run->data.tokenizer, end));
    if (end->is_known && end->id >= 0 && lathe__run_infers(run) && !is_own(run, end->id)) {
        int n;
        const char *name = name_of(run, end->id, &n);
        lathe_log(LATHE_LOG_INFO,
                  "an answer ends at %.*s (%d), which the chat template writes after it; it is "
                  "none of the model's own end tokens",
                  n, name, end->id);
    }
    return LATHE_OK;
}

static const char *writer_of(const lathe_run *run)
{
    return lathe_config_part(run->config, LATHE_KIND_RENDERER)->component ? "renderer"
                                                                          : "chat template";
}

/* Warns that answers end with a token that the folder's end tokens lack. */
static void warn_of_other(const lathe_run *run)
{
    const lathe_answer_end *end = &run->data.answer_end;
    const int32_t own = run->generation.n_eos > 0 ? run->generation.eos[0]
                        : run->model.n_eos > 0    ? run->model.eos[0]
                                                  : lathe_tokenizer_eos(run->data.tokenizer);
    int n, n_own;
    const char *name = name_of(run, end->id, &n), *other = name_of(run, own, &n_own);
    lathe__run_warn(run, "model", run->set.model_path ? "path" : "model_type",
                    "the %s ends an answer with %.*s (%d), which is none of the model's end tokens "
                    "(%.*s): it is added to eos_token_id in generation_config.json of the "
                    "checkpoints, and answers end there",
                    writer_of(run), n, name, end->id, n_own, other);
}

static void warn_of_none(const lathe_run *run)
{
    const lathe_answer_end *end = &run->data.answer_end;
    const char *section = run->set.chat_template ? "data" : "model";
    const char *key = run->set.chat_template ? "chat_template"
                      : run->set.model_path  ? "path"
                                             : "model_type";
    if (end->text[strspn(end->text, " ")] == '\0')
        lathe__run_warn(run, section, key,
                        "the %s writes nothing after an answer, so a model does not learn where "
                        "an answer ends: write the tokenizer's eos_token there, or name a renderer "
                        "(lathe ls renderer)",
                        writer_of(run));
    else
        lathe__run_warn(run, section, key,
                        "the %s writes \"%s\" after an answer, which has no special token of the "
                        "tokenizer: it is ordinary text, so no token ends an answer; add the token "
                        "to the tokenizer, write its eos_token there, or stop at the text with "
                        "generate.stop",
                        writer_of(run), end->text);
}

/* Whether conversations are among the data to train on. */
static int has_conversations(const lathe_run *run)
{
    for (int64_t i = 0; run->data.shards && i < lathe_shards_sets(run->data.shards); i++)
        if (lathe_shards_set_get(run->data.shards, i)->counts.n_chats > 0)
            return 1;
    return 0;
}

void lathe__end_tokens_warn(lathe_run *run)
{
    const lathe_answer_end *end = &run->data.answer_end;
    if (!lathe__run_trains(run) || !end->is_known || !has_conversations(run))
        return;
    run->data.saves_answer_end = end->id >= 0 && !is_own(run, end->id);
    if (run->data.saves_answer_end)
        warn_of_other(run);
    /* of a named renderer lathe__renderer_tokens_warn says which names are no tokens */
    if (end->id < 0 && lathe_config_part(run->config, LATHE_KIND_RENDERER)->component == NULL)
        warn_of_none(run);
    if (end->id >= 0 && !end->is_learnt && !lathe__run_iterates(run)) {
        int n;
        const char *name = name_of(run, end->id, &n);
        lathe__run_warn(run, run->set.chat_template ? "data" : "model",
                        run->set.chat_template ? "chat_template" : "path",
                        "the chat template marks what is learnt, and leaves out %.*s, which ends "
                        "an answer: a model does not learn where to end; put it before "
                        "{%% endgeneration %%}",
                        n, name);
    }
}

/* ---- completions from which a stage learns ---- */

lathe_status lathe__end_tokens_of_stage(lathe_run *run)
{
    const lathe_value *names = lathe_config_get(run->config, "stage", "stop_tokens");
    const int64_t n = names && names->is_set ? names->n : 0;
    run->data.n_rollout_stops = 0;
    if (run->parts.stage.component == NULL || !lathe__run_iterates(run))
        return LATHE_OK;
    if (n > LATHE_MAX_STOP_TOKENS)
        return lathe__run_refuse(run, "stage", "stop_tokens",
                                 "stage.stop_tokens has %lld tokens; expected at most %d",
                                 (long long)n, LATHE_MAX_STOP_TOKENS);
    for (int64_t i = 0; i < n; i++) {
        const char *name = names->strs[i];
        const int32_t id = lathe_tokenizer_id(run->data.tokenizer, name, (int64_t)strlen(name));
        if (id < 0)
            return lathe__run_refuse(run, "stage", "stop_tokens",
                                     "stage.stop_tokens: the tokenizer has no token \"%s\"", name);
        run->data.rollout_stops[run->data.n_rollout_stops++] = id;
    }
    return LATHE_OK;
}

int32_t lathe__end_tokens_of_rollout(const lathe_run *run, int32_t *out)
{
    const lathe_answer_end *end = &run->data.answer_end;
    const int32_t own = run->data.tokenizer ? lathe_tokenizer_eos(run->data.tokenizer) : -1;
    int32_t n = run->data.n_rollout_stops;
    memcpy(out, run->data.rollout_stops, (size_t)n * sizeof *out);
    if (own >= 0)
        out[n++] = own;
    if (end->is_known && end->id >= 0)
        out[n++] = end->id;
    return n;
}

/* Sessions: opens a model, turns texts and conversations into tokens, and streams answers. */
#include "session/session_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/model_path.h"
#include "generate/generator.h"
#include "run/api/save_load.h"
#include "run/open/opening.h"
#include "run/parts/named_adapters.h"
#include "run/parts/run_parts.h"
#include "run/parts/sampling_settings.h"
#include "session/chat_prompt.h"
#include "session/eval_data.h"
#include "session/model_word.h"
#include "session/open_model.h"
#include "session/text_stream.h"

/* ---- open and close ---- */

lathe_status lathe__session_open(const lathe_model_request *ask, int32_t mode, lathe_session **out)
{
    lathe_session *session = *out = calloc(1, sizeof *session);
    if (session == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a session");
    const lathe_status status = lathe_model_open(ask, mode, &session->run);
    if (status == LATHE_OK)
        return LATHE_OK;
    lathe_session_close(session);
    *out = NULL;
    return status;
}

static lathe_status check_run_file(const char *word)
{
    if (lathe_path_is_model(word))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: a model; a session that trains takes a run file (TOML), whose "
                           "model.path names the model",
                           word);
    return lathe_model_word_check(word);
}

/* A session on a run file that is open for training; batches may come from the caller. */
static lathe_status open_training(const lathe_session_config *config, const lathe_edits *edits,
                                  lathe_session **out)
{
    const char *checkpoint;
    if (config->n_adapters > 0 || config->data != NULL || config->use != NULL)
        return lathe_error(LATHE_E_ARG, "a session that trains takes a run file and settings; "
                                        "adapters, use and data have no effect");
    if (config->weights != LATHE_SESSION_WEIGHTS_AUTO)
        return lathe_error_at(LATHE_E_ARG, LATHE_SESSION_SECTION, "weights",
                              "a session that trains takes the weights that model.weights of its "
                              "run file means; weights has no effect");
    LATHE_TRY(check_run_file(config->model));
    lathe_session *session = *out = calloc(1, sizeof *session);
    if (session == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a session");
    const lathe_run_source from = {config->model, edits, NULL};
    lathe_status status = lathe_run_open_for(&from, LATHE_OPEN_BATCHES, &session->run);
    if (status == LATHE_OK &&
        lathe_config_is_explicit(session->run->config, "checkpoint", "resume"))
        status = lathe__run_resume(session->run, &checkpoint);
    if (status == LATHE_OK)
        return LATHE_OK;
    lathe_session_close(session);
    *out = NULL;
    return status;
}

/* Opens the model that is asked for, on the data of an evaluation if the caller names them. */
static lathe_status open_asked(lathe_model_request *ask, const char *option, lathe_session **out)
{
    lathe_edits own = {.n = 0};
    const lathe_eval_source from = {.option = option, .path = ask->data};
    lathe_status status = lathe__request_begin(ask);
    if (status == LATHE_OK && ask->data != NULL) {
        status = lathe_eval_data(ask, &from, &own);
        if (status != LATHE_OK)
            (void)lathe_error_about(status, LATHE_SESSION_SECTION, "data");
    }
    ask->own = &own;
    if (status == LATHE_OK)
        status =
            lathe__session_open(ask, ask->evaluates ? LATHE_OPEN_EVALUATE : LATHE_OPEN_INFER, out);
    if (status == LATHE_OK && !ask->evaluates)
        lathe__sampling_say((*out)->run);
    lathe__request_end(ask);
    lathe_edits_fini(&own);
    return status;
}

static lathe_status open_model(const lathe_session_config *config, const lathe_edits *edits,
                               lathe_session **out)
{
    lathe_model_request ask = {.word = config->model,
                               .edits = edits,
                               .weights = config->weights,
                               .adapters = config->adapters,
                               .n_adapters = config->n_adapters,
                               .evaluates = config->purpose == LATHE_SESSION_EVALUATE,
                               .use = config->use,
                               .data = config->data};
    return open_asked(&ask, "data", out);
}

/* An error of the config names its field as the key, so that a command can name its option. */
#define refuse(field, ...) lathe_error_at(LATHE_E_ARG, LATHE_SESSION_SECTION, field, __VA_ARGS__)

static lathe_status check_size(const lathe_session_config *config)
{
    return config->size >= sizeof *config
               ? LATHE_OK
               : refuse("size", "lathe_session_config.size is %u; expected %zu, its sizeof",
                        config->size, sizeof *config);
}

static lathe_status check_lists(const lathe_session_config *config)
{
    if (config->n_settings < 0)
        return refuse("n_settings", "lathe_session_config.n_settings is %d", config->n_settings);
    for (int32_t i = 0; i < config->n_settings; i++)
        if (config->settings == NULL || config->settings[i] == NULL)
            return refuse("settings", "lathe_session_config.settings[%d] is NULL", i);
    if (config->n_adapters < 0)
        return refuse("n_adapters", "lathe_session_config.n_adapters is %d", config->n_adapters);
    for (int32_t i = 0; i < config->n_adapters; i++)
        if (config->adapters == NULL || config->adapters[i].name == NULL ||
            config->adapters[i].dir == NULL)
            return refuse("adapters", "lathe_session_config.adapters[%d]: name or dir is NULL", i);
    return LATHE_OK;
}

/* Fields that have no effect for the purpose are refused, too. */
static lathe_status check_config(const lathe_session_config *config)
{
    if (config == NULL)
        return lathe_error(LATHE_E_ARG, "lathe_session_open: config is NULL");
    LATHE_TRY(check_size(config));
    if (config->model == NULL)
        return refuse("model", "lathe_session_config.model is NULL; expected a folder, a GGUF file "
                               "or a run file");
    if (config->purpose < LATHE_SESSION_GENERATE || config->purpose > LATHE_SESSION_TRAIN)
        return refuse("purpose", "lathe_session_config.purpose is %d; expected LATHE_SESSION_*",
                      config->purpose);
    if (config->weights < LATHE_SESSION_WEIGHTS_AUTO ||
        config->weights > LATHE_SESSION_WEIGHTS_AVERAGE)
        return refuse("weights",
                      "lathe_session_config.weights is %d; expected LATHE_SESSION_WEIGHTS_*",
                      config->weights);
    if (config->reserved != 0)
        return refuse("reserved", "lathe_session_config.reserved is %d; expected 0",
                      config->reserved);
    LATHE_TRY(check_lists(config));
    if (config->use != NULL && config->n_adapters == 0)
        return refuse("use", "use names one of several adapters, and there are none");
    if (config->data != NULL && config->purpose == LATHE_SESSION_GENERATE)
        return refuse("data", "data has an effect in an evaluation alone");
    return LATHE_OK;
}

lathe_status lathe__session_open_with(const lathe_session_config *config, const lathe_edits *edits,
                                      lathe_session **out)
{
    *out = NULL;
    LATHE_TRY(check_config(config));
    return config->purpose == LATHE_SESSION_TRAIN ? open_training(config, edits, out)
                                                  : open_model(config, edits, out);
}

lathe_status lathe_session_open(const lathe_session_config *config, lathe_session **out)
{
    lathe_edits edits = {.n = 0};
    if (out == NULL)
        return lathe_error(LATHE_E_ARG, "lathe_session_open: out is NULL");
    *out = NULL;
    LATHE_TRY(check_config(config));
    lathe_status status = lathe_edits_parse(&edits, config->settings, config->n_settings);
    if (status == LATHE_OK)
        status = lathe__session_open_with(config, &edits, out);
    lathe_edits_fini(&edits);
    return status;
}

void lathe_session_close(lathe_session *session)
{
    if (session == NULL)
        return;
    lathe_encoder_destroy(session->encoder);
    lathe_chat_tokens_fini(&session->tokens);
    free(session->text);
    lathe_run_close(session->run);
    free(session);
}

lathe_run *lathe_session_run(lathe_session *session)
{
    return session->run;
}

const char *lathe_session_prompt(const lathe_session *session)
{
    return session->run->set.prompt != NULL ? session->run->set.prompt : "";
}

lathe_status lathe_session_use(lathe_session *session, const char *adapter)
{
    int32_t index;
    if (adapter == NULL)
        return lathe_error(LATHE_E_ARG, "lathe_session_use: adapter is NULL");
    if (session->run->named == NULL)
        return lathe_error(LATHE_E_ARG, "adapter %s: the session was opened without adapters",
                           adapter);
    LATHE_TRY(lathe__named_adapters_find(session->run->named, adapter, &index));
    lathe__named_adapters_use(session->run, index);
    return LATHE_OK;
}

/* ---- text and tokens ---- */

static lathe_status need_encoder(lathe_session *session)
{
    if (session->run->data.tokenizer == NULL)
        return lathe_error(LATHE_E_CONFIG, "the session has no tokenizer");
    return session->encoder != NULL
               ? LATHE_OK
               : lathe_encoder_create(session->run->data.tokenizer, &session->encoder);
}

static void give_ids(const lathe_session *session, lathe_session_ids *out)
{
    *out = (lathe_session_ids){session->tokens.ids.data, session->tokens.ids.n, NULL};
}

lathe_status lathe_session_encode(lathe_session *session, const char *text, int64_t n,
                                  lathe_session_ids *out)
{
    if (out == NULL || n < 0 || (n > 0 && text == NULL))
        return lathe_error(LATHE_E_ARG,
                           "lathe_session_encode: text or out is NULL, or n is below 0");
    LATHE_TRY(need_encoder(session));
    LATHE_TRY(lathe_tokenizer_check_text(session->run->data.tokenizer, "the text", text, n));
    session->tokens.ids.n = 0;
    LATHE_TRY(lathe_encoder_run(session->encoder, text, n, 0, &session->tokens.ids));
    lathe_text_loss_warn(lathe_encoder_loss(session->encoder), "the text");
    give_ids(session, out);
    return LATHE_OK;
}

lathe_status lathe_session_decode(lathe_session *session, const int32_t *ids, int64_t n,
                                  const char **out, int64_t *out_bytes)
{
    char *text = NULL;
    LATHE_TRY(need_encoder(session));
    LATHE_TRY(lathe_tokenizer_decode(session->run->data.tokenizer, ids, n, 0, &text, out_bytes));
    free(session->text);
    *out = session->text = text;
    return LATHE_OK;
}

lathe_status lathe__session_render(lathe_session *session, const char *place, json_t *row)
{
    const lathe_chat_template *chat = NULL;
    LATHE_TRY(lathe_session_template(session->run, place, &chat));
    LATHE_TRY(need_encoder(session));
    session->tokens.ids.n = 0;
    return lathe_session_chat_prompt(chat, place, row, session->encoder, &session->tokens.ids);
}

lathe_status lathe__session_render_row(lathe_session *session, const char *place, json_t *row,
                                       lathe_session_ids *out)
{
    const lathe_status status = lathe__session_render(session, place, row);
    give_ids(session, out);
    return status;
}

lathe_status lathe__session_render_named(lathe_session *session, const char *place,
                                         const char *json, int64_t n, lathe_session_ids *out)
{
    json_t *row = NULL;
    LATHE_TRY(lathe_session_chat_parse(place, json, n, &row));
    const lathe_status status = lathe__session_render_row(session, place, row, out);
    json_decref(row);
    return status;
}

lathe_status lathe_session_render(lathe_session *session, const char *json, int64_t n,
                                  lathe_session_ids *out)
{
    return lathe__session_render_named(session, "the conversation", json, n, out);
}

/* Renders the conversation of `row` with its answers, and encodes it with what is learnt. */
static lathe_status learn(lathe_session *session, json_t *row)
{
    static const char place[] = "the conversation";
    const lathe_chat_template *chat = NULL;
    lathe_chat what;
    lathe_rendering text = {0};
    json_t *owned = NULL;
    LATHE_TRY(lathe_session_template(session->run, place, &chat));
    LATHE_TRY(need_encoder(session));
    lathe_status status = lathe_chat_from_row(row, &what, &owned);
    if (status != LATHE_OK)
        return lathe_error_context(status, "%s", place);
    status = lathe_chat_render_training(chat, &what, &text);
    if (status == LATHE_OK)
        status = lathe_chat_encode_rendering(session->run->data.tokenizer, session->encoder, &text,
                                             &session->tokens);
    lathe_rendering_fini(&text);
    json_decref(owned);
    return status;
}

lathe_status lathe_session_learn(lathe_session *session, const char *json, int64_t n,
                                 lathe_session_ids *out)
{
    json_t *row = NULL;
    LATHE_TRY(lathe_session_chat_parse("the conversation", json, n, &row));
    const lathe_status status = learn(session, row);
    json_decref(row);
    give_ids(session, out);
    out->learnt = session->tokens.learnt;
    return status;
}

/* ---- generation ---- */

typedef struct watched {
    lathe_session *session;
    lathe_text_stream stream;
} watched;

/* Sees each token when it is drawn; a result other than 0 ends the text. */
static int on_token(void *arg, int32_t token)
{
    watched *w = arg;
    lathe_text_stream_put(&w->stream, token);
    return w->stream.ended || w->stream.status != LATHE_OK || atomic_load(&w->session->cancels);
}

lathe_status lathe_session_stream(lathe_session *session, const lathe_prompt *prompt,
                                  const lathe_sampling *sampling, lathe_session_piece_fn fn,
                                  void *arg, lathe_generation *out)
{
    lathe_run *const run = session->run;
    if (prompt == NULL || sampling == NULL || out == NULL)
        return lathe_error(LATHE_E_ARG, "lathe_session_stream: prompt, sampling or out is NULL");
    /* the generator's buffers are those of the text under way */
    if (session->is_streaming)
        return lathe_error(LATHE_E_STATE, "the session is generating: it cannot begin another "
                                          "text before this one has ended");
    if (!session->is_answering)
        atomic_store(&session->cancels, 0); /* one that came late was meant for an earlier text */
    watched w = {session,
                 {.tokenizer = run->data.tokenizer, .how = sampling, .fn = fn, .arg = arg}};
    const lathe_token_watch watch = {on_token, &w}, none = {NULL, NULL};
    LATHE_TRY(lathe__run_generator(run, 1));
    lathe_generator_watch(run->generator, watch);
    session->is_streaming = 1;
    lathe_status status = lathe_generate_many(run, prompt, 1, sampling, out);
    session->is_streaming = 0;
    lathe_generator_watch(run->generator, none);
    const int was_cancelled = atomic_load(&session->cancels);
    if (status == LATHE_OK)
        status = w.stream.status;
    if (status == LATHE_OK) {
        const int ended = w.stream.ended;
        lathe_text_stream_end(&w.stream, out->text, out->text_bytes);
        /* an end of its own that came with the same token stays */
        if ((ended || was_cancelled) && out->finish == LATHE_FINISH_LENGTH)
            out->finish = LATHE_FINISH_CANCELLED;
    }
    lathe_text_stream_fini(&w.stream);
    return status;
}

void lathe_session_cancel(lathe_session *session)
{
    atomic_store(&session->cancels, 1);
}

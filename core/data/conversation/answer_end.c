/* Finds the token that a chat template writes after an answer. */
#include "data/conversation/answer_end.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "chat/template/chat_template.h"

/* The answer's text: no template has it as its own words. */
static const char answer[] = "Quite so, 17 hares.";

/* Position after the last place of the answer in the text; -1: the template does not write it. */
static int64_t after_answer(const lathe_rendering *text)
{
    const int64_t n = (int64_t)sizeof answer - 1;
    for (int64_t at = text->bytes - n; at >= 0; at--)
        if (memcmp(text->text + at, answer, (size_t)n) == 0)
            return at + n;
    return -1;
}

/* Whether training learns byte `at` of the text. */
static int is_learnt(const lathe_rendering *text, int64_t at)
{
    for (int64_t i = 0; i < text->n_spans; i++)
        if (text->spans[i].begin <= at && at < text->spans[i].end)
            return 1;
    return 0;
}

/* Encodes the rest of a text from `at`; where a renderer wrote it, with its special tokens alone.
 */
static lathe_status encode_rest(const lathe_tokenizer *tok, const lathe_rendering *text, int64_t at,
                                lathe_ids *out)
{
    int64_t *places = malloc((size_t)(text->n_tokens + 1) * sizeof *places);
    lathe_encoder *enc = NULL;
    lathe_token_places rest = {places, 0};
    if (places == NULL)
        return lathe_error(LATHE_E_NOMEM, "the end of an answer");
    for (int64_t i = 0; i < text->n_tokens; i++)
        if (text->tokens[i] >= at)
            places[rest.n++] = text->tokens[i] - at;
    lathe_status status = lathe_encoder_create(tok, &enc);
    if (status == LATHE_OK)
        status = lathe_encoder_run_placed(enc, text->text + at, text->bytes - at,
                                          text->has_tokens ? &rest : NULL, out);
    lathe_encoder_destroy(enc);
    free(places);
    return status;
}

static lathe_status look(const lathe_tokenizer *tok, const lathe_rendering *text,
                         lathe_answer_end *out)
{
    const int64_t at = after_answer(text);
    lathe_ids ids = {0};
    if (at < 0)
        return LATHE_OK;
    LATHE_TRY(encode_rest(tok, text, at, &ids));
    out->is_known = 1;
    for (int64_t i = 0; i < ids.n && out->id < 0; i++)
        if (lathe_tokenizer_is_added(tok, ids.data[i]))
            out->id = ids.data[i];
    lathe_ids_fini(&ids);
    const size_t n = (size_t)(text->bytes - at);
    const size_t shown = n < sizeof out->text - 1 ? n : sizeof out->text - 1;
    for (size_t i = 0; i < shown; i++) {
        const char c = text->text[at + (int64_t)i];
        out->text[i] = (char)((unsigned char)c < 0x20 || c == 0x7f ? ' ' : c);
    }
    int64_t bytes = 0;
    const char *name = out->id >= 0 ? lathe_tokenizer_token(tok, out->id, &bytes) : NULL;
    const char *place = name ? memmem(text->text + at, n, name, (size_t)bytes) : NULL;
    out->is_learnt = place && is_learnt(text, place - text->text);
    return LATHE_OK;
}

lathe_status lathe_answer_end_find(const lathe_chat_template *chat, const lathe_tokenizer *tok,
                                   lathe_answer_end *out)
{
    lathe_rendering text = {0};
    json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "How many?",
                                 "role", "assistant", "content", answer);
    const lathe_chat what = {.messages = messages};
    *out = (lathe_answer_end){.id = -1};
    if (messages == NULL)
        return lathe_error(LATHE_E_NOMEM, "the end of an answer");
    lathe_status status = lathe_chat_render_training(chat, &what, &text);
    if (status != LATHE_OK && status != LATHE_E_NOMEM) {
        /* what is learnt cannot be found, or the template wants other messages */
        lathe_error_clear();
        status = lathe_chat_render(chat, &what, &text);
    }
    if (status == LATHE_OK)
        status = look(tok, &text, out);
    else if (status != LATHE_E_NOMEM) {
        lathe_error_clear();
        status = LATHE_OK;
    }
    lathe_rendering_fini(&text);
    json_decref(messages);
    return status;
}

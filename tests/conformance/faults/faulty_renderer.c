/* "<u>question", "<a>answer<e>" with tokens <u>, <a> and <e>, and one fault. */
#include "fault.h"

#include "lathe/renderer.h"

static int calls;

static lathe_status put(const lathe_piece_sink *sink, int32_t message, int32_t trained,
                        int32_t kind, lathe_chars text)
{
    const lathe_piece piece = {.kind = IS(odd_kind) ? 7 : kind,
                               .message = IS(message_too_far) ? 99 : message,
                               .trained = trained,
                               .text = IS(no_text)       ? (lathe_chars){NULL, 3}
                                       : IS(broken_utf8) ? (lathe_chars){"\xff\xfe", 2}
                                                         : text};
    const lathe_status status = sink->put(sink->ctx, &piece);
    return IS(ignores_the_sink) ? LATHE_OK : status;
}

static lathe_status put_content(const lathe_piece_sink *sink, int32_t message, int32_t trained,
                                lathe_chars text)
{
    int32_t kind = LATHE_PIECE_TEXT;
    if (IS(typed_tokens) && text.bytes == 3 && memcmp(text.data, "<u>", 3) == 0)
        kind = LATHE_PIECE_TOKEN;
    return text.bytes > 0 ? put(sink, message, trained, kind, text) : LATHE_OK;
}

static lathe_status put_turn(const lathe_conversation *talk, int32_t i,
                             const lathe_piece_sink *sink)
{
    static const lathe_chars user = {"<u>", 3}, answer = {"<a>", 3}, end = {"<e>", 3};
    const lathe_chat_message *m = &talk->messages[i];
    const int is_answer = m->role == LATHE_CHAT_ASSISTANT, is_last = i + 1 == talk->n_messages;
    const int learns = IS(learns_nothing) ? 0 : IS(learns_the_questions) ? 1 : is_answer;
    if (IS(drops_earlier_questions) && !is_answer && i > 0)
        return LATHE_OK;
    LATHE_TRY(put(sink, i, 0, LATHE_PIECE_TOKEN, is_answer ? answer : user));
    if (!(IS(shortens_earlier_answers) && is_answer && !is_last))
        LATHE_TRY(put_content(sink, i, learns, m->content));
    if (IS(counts_its_calls) && ++calls % 2)
        LATHE_TRY(put_content(sink, i, learns, (lathe_chars){"!", 1}));
    return is_answer ? put(sink, i, learns, LATHE_PIECE_TOKEN, end) : LATHE_OK;
}

static lathe_status render(void *self, const lathe_conversation *talk, const lathe_piece_sink *sink)
{
    static const lathe_chars answer = {"<a>", 3};
    const instance *x = self;
    misbehave(x->host);
    if (IS(fails_without_a_message))
        return LATHE_E_UNSUPPORTED;
    if (IS(refuses_everything))
        return lathe_fail(x->host, LATHE_E_UNSUPPORTED, "message 1: no");
    for (int32_t i = 0; i < talk->n_messages; i++)
        LATHE_TRY(put_turn(talk, i, sink));
    return talk->prompt ? put(sink, -1, IS(learns_the_prompt), LATHE_PIECE_TOKEN, answer)
                        : LATHE_OK;
}

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    (void)self, (void)probe;
    snprintf(why, (size_t)why_bytes, "no");
    return IS(negative_score) ? -5 : LATHE_SCORE_NO;
}

static const lathe_renderer_v1 table = {
    .size = IS(table_too_short) ? 16 : sizeof table,
    .revision = LATHE_RENDERER_REVISION,
    .flags = IS(unknown_flags)      ? 64
             : IS(forgets_the_flag) ? 0
                                    : LATHE_RENDERER_EXTENDS,
    .score = score,
    .render = IS(null_render) ? NULL : render,
};

FAULTY_PLUGIN(LATHE_KIND_RENDERER, LATHE_RENDERER_REVISION, &table);

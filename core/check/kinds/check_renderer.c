/* Checks of renderers: their pieces on small conversations, what of them is learnt, that no text of
 * a user becomes a special token, and the flag of extension. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/utf8.h"
#include "check/kinds/checks.h"
#include "lathe/renderer.h"

enum { MAX_TOKENS = 32 };

/* The pieces of a conversation. */
typedef struct pieces {
    const lathe_conversation *talk;
    lathe_buffer text;   /* all of them */
    lathe_buffer learnt; /* those that are learnt */
    lathe_buffer tokens; /* names of tokens, each with '\n' after it */
    lathe_buffer shape;  /* text, with \1 before and \2 after each token */
    int64_t n;
} pieces;

static void pieces_fini(pieces *p)
{
    lathe_buffer_fini(&p->text);
    lathe_buffer_fini(&p->learnt);
    lathe_buffer_fini(&p->tokens);
    lathe_buffer_fini(&p->shape);
    memset(p, 0, sizeof *p);
}

static int is_utf8(const char *text, int64_t n)
{
    for (int64_t i = 0; i < n;) {
        int32_t length = 0;
        if (lathe_utf8_at((const uint8_t *)text + i, n - i, &length) < 0)
            return 0;
        i += length;
    }
    return 1;
}

static lathe_status put(void *ctx, const lathe_piece *piece)
{
    pieces *p = ctx;
    const char *text = piece->text.data;
    const int64_t n = piece->text.bytes;
    if (piece->kind != LATHE_PIECE_TEXT && piece->kind != LATHE_PIECE_TOKEN)
        return lathe_error(LATHE_E_PLUGIN, "piece %lld has kind %d", (long long)p->n, piece->kind);
    if (n < 0 || (n > 0 && text == NULL))
        return lathe_error(LATHE_E_PLUGIN, "piece %lld has no text", (long long)p->n);
    if (piece->message < -1 || piece->message >= p->talk->n_messages)
        return lathe_error(LATHE_E_PLUGIN, "piece %lld is of message %d; there are %d",
                           (long long)p->n, piece->message, p->talk->n_messages);
    if (piece->trained < 0 || piece->trained > 1 || piece->reserved != 0)
        return lathe_error(LATHE_E_PLUGIN, "piece %lld has trained %d, reserved %d",
                           (long long)p->n, piece->trained, piece->reserved);
    if (n > 0 && !is_utf8(text, n))
        return lathe_error(LATHE_E_PLUGIN, "piece %lld is not UTF-8", (long long)p->n);
    if (piece->trained &&
        (piece->message < 0 || p->talk->messages[piece->message].role != LATHE_CHAT_ASSISTANT))
        return lathe_error(LATHE_E_PLUGIN,
                           "piece %lld is learnt and is not of a message of the assistant",
                           (long long)p->n);
    p->n++;
    lathe_buffer_append(&p->text, text, n);
    if (piece->trained)
        lathe_buffer_append(&p->learnt, text, n);
    if (piece->kind == LATHE_PIECE_TOKEN) {
        lathe_buffer_append(&p->tokens, text, n);
        lathe_buffer_puts(&p->tokens, "\n");
    }
    lathe_buffer_puts(&p->shape, piece->kind == LATHE_PIECE_TOKEN ? "\1" : "");
    lathe_buffer_append(&p->shape, text, n);
    lathe_buffer_puts(&p->shape, piece->kind == LATHE_PIECE_TOKEN ? "\2" : "");
    return p->shape.status;
}

static lathe_chars chars(const char *text)
{
    return (lathe_chars){text, text != NULL ? (int64_t)strlen(text) : 0};
}

static lathe_chat_message message(int32_t role, const char *content)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    return (lathe_chat_message){
        .role = role, .role_name = chars(names[role]), .content = chars(content)};
}

/* Renders messages[0, n). LATHE_E_UNSUPPORTED: the family has no text for them. */
static lathe_status render(const lathe_instance *x, const lathe_chat_message *messages, int32_t n,
                           int32_t prompt, pieces *out)
{
    const lathe_renderer_v1 *table = x->table;
    const lathe_conversation talk = {.size = (uint32_t)sizeof talk,
                                     .n_messages = n,
                                     .messages = messages,
                                     .prompt = prompt,
                                     .bos = chars("<s>"),
                                     .eos = chars("</s>"),
                                     .thinking = -1,
                                     .day = 20,
                                     .month = 7,
                                     .year = 2025};
    const lathe_piece_sink sink = {.size = (uint32_t)sizeof sink, .ctx = out, .put = put};
    memset(out, 0, sizeof *out);
    out->talk = &talk;
    lathe_error_clear();
    lathe_status status = table->render(x->self, &talk, &sink);
    out->talk = NULL;
    if (status != LATHE_OK && lathe_error_message()[0] == '\0')
        status = lathe_error(LATHE_E_PLUGIN, "render() fails without a message");
    if (status != LATHE_OK)
        pieces_fini(out);
    return status;
}

/* Two questions and two answers, whose contents nobody else writes. */
static void plain_messages(lathe_chat_message out[4], const char *question)
{
    out[0] = message(LATHE_CHAT_USER, question);
    out[1] = message(LATHE_CHAT_ASSISTANT, "ANSWER-ONE \xc3\xbc");
    out[2] = message(LATHE_CHAT_USER, "QUESTION-TWO");
    out[3] = message(LATHE_CHAT_ASSISTANT, "ANSWER-TWO \xf0\x9f\x99\x82");
}

static int holds(const lathe_buffer *buffer, const char *part)
{
    return buffer->len > 0 && memmem(buffer->data, (size_t)buffer->len, part, strlen(part)) != NULL;
}

static lathe_status pieces_are_valid(lathe__subject *s)
{
    static const char *const contents[] = {"QUESTION-ONE", "", " \n ", "\xe4\xbd\xa0\xe5\xa5\xbd"};
    lathe_instance x;
    lathe_chat_message talk[4];
    lathe_status status = LATHE_OK;
    int n = 0;
    LATHE_TRY(lathe__instance(s, &x));
    for (int i = 0; i < 8 && status == LATHE_OK; i++) {
        pieces p;
        plain_messages(talk, contents[i / 2]);
        status = render(&x, talk, i % 2 ? 3 : 4, i % 2, &p);
        n += status == LATHE_OK;
        if (status == LATHE_E_UNSUPPORTED && i > 1)
            status = LATHE_OK;
        else if (status == LATHE_OK && (!holds(&p.text, "QUESTION-TWO") || p.text.len == 0))
            status = lathe_error(LATHE_E_PLUGIN, "a message is missing in the text");
        pieces_fini(&p);
    }
    lathe__note(s, "%d conversations", n);
    lathe_instance_fini(&x);
    return status;
}

static lathe_status answers_are_learnt(lathe__subject *s)
{
    lathe_instance x;
    lathe_chat_message talk[4];
    pieces p;
    LATHE_TRY(lathe__instance(s, &x));
    plain_messages(talk, "QUESTION-ONE");
    lathe_status status = render(&x, talk, 4, 0, &p);
    if (status == LATHE_OK && (!holds(&p.learnt, "ANSWER-ONE") || !holds(&p.learnt, "ANSWER-TWO")))
        status = lathe_error(LATHE_E_PLUGIN, "an answer is not learnt");
    else if (status == LATHE_OK && (holds(&p.learnt, "QUESTION")))
        status = lathe_error(LATHE_E_PLUGIN, "a question is learnt");
    pieces_fini(&p);
    lathe_instance_fini(&x);
    return status;
}

/* A user who types the name of a token gets no token. */
static lathe_status types_token(const lathe_instance *x, const char *name, const pieces *plain)
{
    lathe_chat_message talk[4];
    pieces p;
    plain_messages(talk, name);
    talk[2].content = chars(name);
    const lathe_status status = render(x, talk, 4, 0, &p);
    if (status == LATHE_E_UNSUPPORTED) /* it may refuse such a text */
        return LATHE_OK;
    const int same = status == LATHE_OK && p.tokens.len == plain->tokens.len &&
                     memcmp(p.tokens.data, plain->tokens.data, (size_t)p.tokens.len) == 0;
    pieces_fini(&p);
    LATHE_TRY(status);
    return same ? LATHE_OK
                : lathe_error(LATHE_E_PLUGIN, "a user who types %s gets the special token", name);
}

static lathe_status user_text_is_text(lathe__subject *s)
{
    lathe_instance x;
    lathe_chat_message talk[4];
    pieces plain;
    int n = 0;
    LATHE_TRY(lathe__instance(s, &x));
    plain_messages(talk, "QUESTION-ONE");
    lathe_status status = render(&x, talk, 4, 0, &plain);
    char *names = status == LATHE_OK && plain.tokens.len > 0 ? strdup(plain.tokens.data) : NULL;
    for (char *at = names; at != NULL && *at != '\0' && status == LATHE_OK && n < MAX_TOKENS; n++) {
        char *end = at + strcspn(at, "\n");
        char *next = *end != '\0' ? end + 1 : end;
        *end = '\0';
        status = types_token(&x, at, &plain);
        at = next;
    }
    lathe__note(s, "%d tokens", n);
    free(names);
    pieces_fini(&plain);
    lathe_instance_fini(&x);
    return status;
}

static int extends(const pieces *longer, const pieces *shorter)
{
    return longer->shape.len >= shorter->shape.len &&
           memcmp(longer->shape.data, shorter->shape.data, (size_t)shorter->shape.len) == 0;
}

/* The prompt and the text of each answer, and the whole text of one conversation. */
static lathe_status measure(const lathe_instance *x, const lathe_chat_message *talk, int32_t n,
                            int *out)
{
    pieces before = {0}, next = {0};
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i <= n && status == LATHE_OK; i++) {
        if (i < n && talk[i].role != LATHE_CHAT_ASSISTANT)
            continue;
        for (int32_t k = 0; k < (i < n ? 2 : 1) && status == LATHE_OK; k++) { /* prompt, answer */
            status = render(x, talk, i + k, i < n && k == 0, &next);
            if (status == LATHE_OK && before.shape.len > 0)
                *out = *out && extends(&next, &before);
            pieces_fini(&before);
            before = next;
            memset(&next, 0, sizeof next);
        }
    }
    pieces_fini(&before);
    return status;
}

static lathe_status extension_flag_is_true(lathe__subject *s)
{
    const lathe_renderer_v1 *table = s->table;
    lathe_instance x;
    lathe_chat_message talk[4], led[5];
    int does = 1;
    LATHE_TRY(lathe__instance(s, &x));
    plain_messages(talk, "QUESTION-ONE");
    lathe_status status = measure(&x, talk, 4, &does);
    talk[1].reasoning = chars("BECAUSE");
    talk[1].content = chars("<think>\nBECAUSE\n</think>\n\nANSWER-ONE");
    if (status == LATHE_OK)
        status = measure(&x, talk, 4, &does);
    led[0] = message(LATHE_CHAT_SYSTEM, "SYSTEM");
    plain_messages(&led[1], "QUESTION-ONE");
    if (status == LATHE_OK)
        status = measure(&x, led, 5, &does);
    lathe_instance_fini(&x);
    if (status == LATHE_E_UNSUPPORTED) /* of the thinking, or of the system message */
        status = LATHE_OK;
    LATHE_TRY(status);
    lathe__note(s, "prompts %s each other", does ? "extend" : "do not extend");
    const int says = (table->flags & LATHE_RENDERER_EXTENDS) != 0;
    if (says && !does)
        return lathe_error(LATHE_E_PLUGIN,
                           "it says that prompts extend each other, and they do not");
    if (!says && does)
        return lathe_error(LATHE_E_PLUGIN,
                           "prompts extend each other, and flags lacks LATHE_RENDERER_EXTENDS");
    return LATHE_OK;
}

static lathe_status renders_alike(lathe__subject *s)
{
    lathe_instance x, y;
    lathe_chat_message talk[4];
    pieces a = {0}, b = {0};
    plain_messages(talk, "QUESTION-ONE");
    LATHE_TRY(lathe__instance(s, &x));
    lathe_status status = lathe__instance(s, &y);
    if (status == LATHE_OK) {
        status = render(&x, talk, 4, 0, &a);
        if (status == LATHE_OK)
            status = render(&x, talk, 3, 1, &b);
        pieces_fini(&b);
        if (status == LATHE_OK)
            status = render(&y, talk, 4, 0, &b);
        if (status == LATHE_OK && (a.shape.len != b.shape.len || !extends(&a, &b)))
            status = lathe_error(LATHE_E_PLUGIN, "the same conversation gives other pieces");
        lathe_instance_fini(&y);
    }
    pieces_fini(&a);
    pieces_fini(&b);
    lathe_instance_fini(&x);
    return status;
}

static lathe_status refuse(void *ctx, const lathe_piece *piece)
{
    int *n = ctx;
    (void)piece;
    (*n)++;
    return lathe_error(LATHE_E_NOMEM, "the sink is full");
}

static lathe_status errors_of_the_sink_are_passed_on(lathe__subject *s)
{
    const lathe_renderer_v1 *table = s->table;
    lathe_instance x;
    lathe_chat_message talk[4];
    int n = 0;
    plain_messages(talk, "QUESTION-ONE");
    LATHE_TRY(lathe__instance(s, &x));
    const lathe_conversation conversation = {
        .size = (uint32_t)sizeof conversation, .n_messages = 4, .messages = talk, .thinking = -1};
    const lathe_piece_sink sink = {.size = (uint32_t)sizeof sink, .ctx = &n, .put = refuse};
    const lathe_status status = table->render(x.self, &conversation, &sink);
    lathe_instance_fini(&x);
    if (status == LATHE_E_NOMEM && n == 1)
        return LATHE_OK;
    return lathe_error(LATHE_E_PLUGIN,
                       "the sink failed at the first piece; render() called it %d "
                       "times and returned %d",
                       n, status);
}

static lathe_status scores_stay_in_range(lathe__subject *s)
{
    const lathe_renderer_v1 *table = s->table;
    const lathe_renderer_probe none = {.size = (uint32_t)sizeof none};
    const lathe_renderer_probe other = {.size = (uint32_t)sizeof other,
                                        .template_sha256 =
                                            "0000000000000000000000000000000000000000"
                                            "000000000000000000000000",
                                        .template_text = chars("{{ messages }}"),
                                        .model_type = "llama"};
    lathe_instance x;
    char why[64] = "";
    if (!LATHE_HAS(table, score))
        return lathe__skip(s, "it is chosen by name alone");
    LATHE_TRY(lathe__instance(s, &x));
    const int32_t a = table->score(x.self, &none, why, (int64_t)sizeof why);
    const int32_t b = table->score(x.self, &other, why, (int64_t)sizeof why);
    lathe_instance_fini(&x);
    if (a < 0 || b < 0 || a > 1000 || b > 1000)
        return lathe_error(LATHE_E_PLUGIN, "score() gives %d and %d, expected 0 to 1000", a, b);
    return LATHE_OK;
}

const lathe__check *lathe__checks_renderer(void)
{
    static const lathe__check checks[] = {
        {"pieces_are_valid", pieces_are_valid, 0},
        {"answers_are_learnt", answers_are_learnt, 0},
        {"user_text_is_text", user_text_is_text, 0},
        {"extension_flag_is_true", extension_flag_is_true, 0},
        {"renders_alike", renders_alike, 0},
        {"errors_of_the_sink_are_passed_on", errors_of_the_sink_are_passed_on, 0},
        {"scores_stay_in_range", scores_stay_in_range, 0},
        {NULL, NULL, 0},
    };
    return checks;
}

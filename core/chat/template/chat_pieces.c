/* The text of a conversation by a renderer: converts the JSON to the structs of lathe/renderer.h,
 * and joins the pieces that the renderer gives. */
#include "chat/template/chat_template_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"

/* A conversation that is converted to the renderer's structs, with the memory of its texts. */
typedef struct conversion {
    const lathe_chat_template *chat;
    lathe_arena arena;
    const lathe_chat *what;
    lathe_conversation conversation;
    int fits; /* 0: it has members for which the structs have no place, so only the template can
               * render it; the conversion stops, and its result is not used */
} conversion;

/* The text that is put together. */
typedef struct text_sink {
    const conversion *source;
    lathe_buffer text;
    lathe_buffer spans, tokens; /* lathe_template_span, int64_t */
} text_sink;

/* ---- from JSON ---- */

static lathe_chars chars_of(json_t *x)
{
    const int is_text = json_is_string(x);
    return (lathe_chars){is_text ? json_string_value(x) : NULL,
                         is_text ? (int64_t)json_string_length(x) : 0};
}

/* A value's JSON, as the filter tojson of templates writes it, so that a renderer gives the bytes
 * of the template; in the arena. */
static lathe_status json_text(conversion *f, json_t *value, lathe_chars *out)
{
    lathe_rendering text = {0};
    json_t *variables = json_object();
    lathe_status status = LATHE_E_NOMEM;
    if (variables && json_object_set(variables, "x", value) == 0) {
        const lathe_template_input input = {.variables = variables};
        status = lathe_template_render(f->chat->tojson, &input, &text);
    }
    json_decref(variables);
    if (status == LATHE_OK) {
        out->data = lathe_arena_strndup(&f->arena, text.text, text.bytes);
        out->bytes = text.bytes;
        status = out->data ? LATHE_OK : LATHE_E_NOMEM;
    }
    lathe_rendering_fini(&text);
    return status;
}

/* A call is {"name", "arguments"}, or has these within "function", as OpenAI's API writes it. */
static lathe_status read_call(conversion *f, json_t *from, lathe_tool_call *out)
{
    json_t *inner = json_object_get(from, "function");
    const int is_wrapped = inner && !json_is_null(inner);
    json_t *function = is_wrapped ? inner : from;
    json_t *arguments = json_object_get(function, "arguments"), *parsed = NULL;
    out->name = chars_of(json_object_get(function, "name"));
    out->id = chars_of(json_object_get(from, "id"));
    out->type = chars_of(json_object_get(from, "type"));
    out->arguments_text = chars_of(arguments);
    f->fits = f->fits && out->name.data && arguments && json_is_object(function);
    if (!f->fits)
        return LATHE_OK;
    /* many data sets have the arguments as JSON text, which a template that expects an object would
     * quote once more */
    if (f->chat->takes_objects)
        parsed = lathe__chat_parsed_call(function);
    lathe_status status =
        json_text(f, parsed ? json_object_get(parsed, "arguments") : arguments, &out->arguments);
    if (status == LATHE_OK && is_wrapped)
        status = json_text(f, parsed ? parsed : inner, &out->function);
    if (parsed)
        out->arguments_text = (lathe_chars){NULL, 0};
    json_decref(parsed);
    return status;
}

static lathe_status read_calls(conversion *f, json_t *list, lathe_chat_message *out)
{
    const size_t n = json_array_size(list);
    if (list == NULL || json_is_null(list))
        return LATHE_OK;
    f->fits = f->fits && json_is_array(list) && n > 0; /* templates tell an empty list from none */
    lathe_tool_call *calls = lathe_arena_alloc(&f->arena, (int64_t)((n + 1) * sizeof *calls));
    if (calls == NULL)
        return LATHE_E_NOMEM;
    memset(calls, 0, (n + 1) * sizeof *calls);
    for (size_t i = 0; i < n && f->fits; i++)
        LATHE_TRY(read_call(f, json_array_get(list, i), &calls[i]));
    out->calls = calls;
    out->n_calls = (int32_t)n;
    return LATHE_OK;
}

static int32_t role_of(lathe_chars name)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    for (int32_t i = 0; i < 4; i++)
        if (name.bytes == (int64_t)strlen(names[i]) &&
            memcmp(name.data, names[i], (size_t)name.bytes) == 0)
            return i;
    return LATHE_CHAT_OTHER;
}

/* Whether the structs have a place for a key of a message, or training reads it (weight, ...). A
 * template may read any other key. */
static int knows_key(const char *key)
{
    static const char *const keys[] = {
        "role",      "content", "tool_calls",   "thinking", "reasoning_content",
        "reasoning", "name",    "tool_call_id", "weight",   "train",
        "trainable", "loss",    "loss_mask"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], key) == 0)
            return 1;
    return 0;
}

static lathe_status read_message(conversion *f, json_t *from, lathe_chat_message *out)
{
    json_t *content = json_object_get(from, "content"), *value;
    json_t *reasoning = lathe__chat_reasoning(from);
    const char *key;
    json_object_foreach(from, key, value) f->fits =
        f->fits && (json_is_null(value) || knows_key(key));
    out->role_name = chars_of(json_object_get(from, "role"));
    out->content = chars_of(content);
    out->reasoning = chars_of(reasoning);
    out->call_id = chars_of(json_object_get(from, "tool_call_id"));
    f->fits = f->fits && out->role_name.data && (reasoning == NULL || out->reasoning.data) &&
              (content == NULL || json_is_null(content) || out->content.data);
    if (!f->fits)
        return LATHE_OK;
    out->role = role_of(out->role_name);
    return read_calls(f, json_object_get(from, "tool_calls"), out);
}

static lathe_status read_messages(conversion *f, const lathe_chat *what, size_t n)
{
    lathe_chat_message *list = lathe_arena_alloc(&f->arena, (int64_t)((n + 1) * sizeof *list));
    if (list == NULL)
        return LATHE_E_NOMEM;
    memset(list, 0, (n + 1) * sizeof *list);
    for (size_t i = 0; i < n && f->fits; i++)
        LATHE_TRY(read_message(f, json_array_get(what->messages, i), &list[i]));
    f->conversation.messages = list;
    f->conversation.n_messages = (int32_t)n;
    f->fits = f->fits && n > 0;
    return LATHE_OK;
}

static lathe_status read_tools(conversion *f, const lathe_chat *what)
{
    const size_t n = what->tools ? json_array_size(what->tools) : 0;
    lathe_chars *list = lathe_arena_alloc(&f->arena, (int64_t)((n + 1) * sizeof *list));
    if (list == NULL)
        return LATHE_E_NOMEM;
    f->fits =
        f->fits && (what->tools == NULL || n > 0); /* templates tell an empty list from none */
    for (size_t i = 0; i < n && f->fits; i++)
        LATHE_TRY(json_text(f, json_array_get(what->tools, i), &list[i]));
    f->conversation.tools = list;
    f->conversation.n_tools = (int32_t)n;
    return LATHE_OK;
}

/* enable_thinking is the only variable for which the structs have a place. */
static void read_variables(conversion *f, json_t *variables)
{
    json_t *thinking = json_object_get(variables, "enable_thinking");
    if (json_is_boolean(thinking))
        f->conversation.thinking = json_is_true(thinking);
    if (json_object_size(variables) > (json_is_boolean(thinking) ? 1u : 0u))
        f->fits = 0;
}

static lathe_status read_form(conversion *f, const lathe_chat *what, size_t n, int prompt)
{
    /* some templates write the date; callers set it where a text must be the same every day */
    const time_t now = what->now > 0 ? (time_t)what->now : time(NULL);
    struct tm day = {0};
    (void)localtime_r(&now, &day);
    f->fits = what->documents == NULL;
    f->conversation = (lathe_conversation){
        .size = (uint32_t)sizeof f->conversation,
        .prompt = prompt != 0,
        .bos = chars_of(json_object_get(f->chat->tokens, "bos_token")),
        .eos = chars_of(json_object_get(f->chat->tokens, "eos_token")),
        .thinking = -1,
        .is_marked = lathe_chat_template_marks(f->chat),
        .day = day.tm_mday,
        .month = day.tm_mon + 1,
        .year = day.tm_year + 1900,
    };
    read_variables(f, f->chat->variables); /* of all conversations; those of a row replace them */
    read_variables(f, what->variables);
    LATHE_TRY(read_messages(f, what, n));
    return read_tools(f, what);
}

/* ---- from pieces ---- */

static lathe_status refuse_piece(const text_sink *s, const char *what)
{
    return lathe_error(LATHE_E_PLUGIN, "renderer %s passes a piece %s",
                       s->source->chat->renderer.name, what);
}

/* Pieces come from a plugin: a span to learn outside of the assistant's messages would train on the
 * user's words. */
static lathe_status check_piece(const text_sink *s, const lathe_piece *p)
{
    const lathe_conversation *conversation = &s->source->conversation;
    if (p->kind != LATHE_PIECE_TEXT && p->kind != LATHE_PIECE_TOKEN)
        return refuse_piece(s, "that is neither text nor a token");
    if (p->text.bytes < 0 || (p->text.bytes > 0 && p->text.data == NULL))
        return refuse_piece(s, "without a text");
    if (p->message < -1 || p->message >= conversation->n_messages)
        return refuse_piece(s, "of a message that the conversation lacks");
    if (p->trained &&
        (p->message < 0 || conversation->messages[p->message].role != LATHE_CHAT_ASSISTANT))
        return refuse_piece(s, "to learn that is not the assistant's");
    return LATHE_OK;
}

static lathe_status put_piece(void *ctx, const lathe_piece *p)
{
    text_sink *s = ctx;
    const int64_t begin = s->text.len;
    LATHE_TRY(check_piece(s, p));
    if (p->text.bytes == 0)
        return LATHE_OK;
    lathe_buffer_append(&s->text, p->text.data, p->text.bytes);
    if (p->kind == LATHE_PIECE_TOKEN)
        lathe_buffer_append(&s->tokens, (const char *)&begin, (int64_t)sizeof begin);
    lathe_template_span *last =
        s->spans.len > 0
            ? (lathe_template_span *)(void *)(s->spans.data + s->spans.len - (int64_t)sizeof *last)
            : NULL;
    const lathe_template_span span = {begin, s->text.len};
    int mark = LATHE_CHAT_UNMARKED;
    if (p->trained)
        LATHE_TRY(
            lathe_chat_message_mark(json_array_get(s->source->what->messages, (size_t)p->message),
                                    (size_t)p->message + 1, &mark));
    const int is_learnt = p->trained && mark != LATHE_CHAT_MUTE;
    /* adjacent pieces are one span, as the template gives it, so that tokens may cross them */
    if (is_learnt && last && last->end == begin)
        last->end = span.end;
    else if (is_learnt)
        lathe_buffer_append(&s->spans, (const char *)&span, (int64_t)sizeof span);
    if (s->text.status != LATHE_OK || s->spans.status != LATHE_OK)
        return LATHE_E_NOMEM;
    return s->tokens.status;
}

/* Hands the sink's memory over to a rendering, which frees it. */
static lathe_status take(text_sink *s, lathe_rendering *out)
{
    lathe_buffer_append(&s->text, "", 0);
    char *text = realloc(s->text.data, (size_t)s->text.len + 1);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "the text of a conversation");
    text[s->text.len] = '\0';
    *out = (lathe_rendering){.text = text,
                             .bytes = s->text.len,
                             .spans = (lathe_template_span *)(void *)s->spans.data,
                             .n_spans = s->spans.len / (int64_t)sizeof(lathe_template_span),
                             .tokens = (int64_t *)(void *)s->tokens.data,
                             .n_tokens = s->tokens.len / (int64_t)sizeof(int64_t),
                             .has_tokens = 1};
    return LATHE_OK;
}

static lathe_status run(const conversion *f, lathe_rendering *out)
{
    text_sink s = {f, LATHE_BUFFER_INIT, LATHE_BUFFER_INIT, LATHE_BUFFER_INIT};
    const lathe_chat_renderer *r = &f->chat->renderer;
    const lathe_piece_sink sink = {.size = (uint32_t)sizeof sink, .ctx = &s, .put = put_piece};
    lathe_status status = r->table->render(r->self, &f->conversation, &sink);
    if (status == LATHE_OK)
        status = take(&s, out);
    if (status == LATHE_OK)
        return status;
    lathe_buffer_fini(&s.text);
    lathe_buffer_fini(&s.spans);
    lathe_buffer_fini(&s.tokens);
    return status;
}

lathe_status lathe__chat_render_pieces(const lathe_chat_template *chat, const lathe_chat *what,
                                       size_t n, int add_generation_prompt, lathe_rendering *out,
                                       int *out_served)
{
    conversion f = {.chat = chat, .what = what, .arena = LATHE_ARENA_INIT};
    /* a renderer that "auto" chose leaves such a conversation to the template; one that the user
     * named refuses it, because the texts could differ */
    const int may_pass = !chat->renderer.is_strict;
    *out_served = 0;
    lathe_status status = read_form(&f, what, n, add_generation_prompt);
    if (status == LATHE_E_NOMEM)
        status = lathe_error(LATHE_E_NOMEM, "the messages of a conversation");
    if (status == LATHE_OK && !f.fits)
        status = lathe_error(LATHE_E_UNSUPPORTED,
                             "renderers take messages with a role, content as text, tool_calls, "
                             "reasoning, and enable_thinking in chat_template_kwargs; this "
                             "conversation has something else, which needs [renderer] name = "
                             "\"jinja\"");
    else if (status == LATHE_OK)
        status = run(&f, out);
    lathe_arena_fini(&f.arena);
    *out_served = status == LATHE_OK;
    if (status != LATHE_E_UNSUPPORTED)
        return status;
    return may_pass ? LATHE_OK
                    : lathe_error_context(LATHE_E_CONFIG, "renderer %s", chat->renderer.name);
}

lathe_status lathe__chat_pass_pieces(const lathe_chat_template *chat, const lathe_chat *what,
                                     lathe_chars eos, const lathe_piece_sink *sink)
{
    conversion f = {.chat = chat, .what = what, .arena = LATHE_ARENA_INIT};
    const lathe_chat_renderer *r = &chat->renderer;
    lathe_status status = read_form(&f, what, json_array_size(what->messages), 0);
    f.conversation.eos = eos;
    if (status == LATHE_OK && f.fits)
        status = r->table->render(r->self, &f.conversation, sink);
    lathe_arena_fini(&f.arena);
    return status;
}

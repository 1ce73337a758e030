/* Renderers of families whose turns are a prefix, the content and a suffix: a table of texts
 * carries them. A family's own texts may hold names of its special tokens, which become tokens;
 * texts of the conversation never do. */
#ifndef LATHE_RENDERERS_SHARED_TURNS_H
#define LATHE_RENDERERS_SHARED_TURNS_H

#include <stdio.h>
#include <string.h>

#include "lathe/plugin.h"
#include "lathe/renderer.h"

/** Pieces on their way to the sink. The first error stays in status; later pieces are dropped. */
typedef struct turns_out {
    const lathe_piece_sink *sink;
    const char *const *specials; /* names of the family's special tokens, NULL at the end */
    int32_t message, trained;    /* of the next pieces */
    lathe_status status;
} turns_out;

static inline void turns_put(turns_out *out, int32_t kind, const char *data, int64_t bytes)
{
    const lathe_piece piece = {
        .kind = kind, .message = out->message, .trained = out->trained, .text = {data, bytes}};
    if (out->status == LATHE_OK && bytes > 0)
        out->status = out->sink->put(out->sink->ctx, &piece);
}

/** Puts a text of the conversation. */
static inline void turns_text(turns_out *out, lathe_chars text)
{
    turns_put(out, LATHE_PIECE_TEXT, text.data, text.data != NULL ? text.bytes : 0);
}

/** Puts a special token by its name; none: nothing. */
static inline void turns_token(turns_out *out, lathe_chars name)
{
    turns_put(out, LATHE_PIECE_TOKEN, name.data, name.data != NULL ? name.bytes : 0);
}

/* The longest special token that text begins with; 0: none. */
static inline int64_t turns_special(const turns_out *out, const char *text)
{
    int64_t best = 0;
    for (int i = 0; out->specials != NULL && out->specials[i] != NULL; i++) {
        const size_t n = strlen(out->specials[i]);
        if ((int64_t)n > best && strncmp(text, out->specials[i], n) == 0)
            best = (int64_t)n;
    }
    return best;
}

/** Puts a text of the family: names of its special tokens in it are tokens. NULL: nothing. */
static inline void turns_mark(turns_out *out, const char *text)
{
    const char *plain = text;
    for (const char *at = text; at != NULL && *at != '\0';) {
        const int64_t n = turns_special(out, at);
        if (n == 0) {
            at++;
            continue;
        }
        turns_put(out, LATHE_PIECE_TEXT, plain, at - plain);
        turns_put(out, LATHE_PIECE_TOKEN, at, n);
        at += n;
        plain = at;
    }
    if (plain != NULL)
        turns_put(out, LATHE_PIECE_TEXT, plain, (int64_t)strlen(plain));
}

/* ---- texts, as Python's str sees them ---- */

/** Length of the space character that text[0, n) begins with; 0: none. As Python's str.isspace. */
static inline int64_t turns_space(const char *text, int64_t n)
{
    const unsigned char *u = (const unsigned char *)text;
    if (n > 0 && ((u[0] >= 0x09 && u[0] <= 0x0d) || (u[0] >= 0x1c && u[0] <= 0x20)))
        return 1;
    if (n > 1 && u[0] == 0xc2 && (u[1] == 0x85 || u[1] == 0xa0))
        return 2;
    if (n < 3)
        return 0;
    if (u[0] == 0xe1 && u[1] == 0x9a && u[2] == 0x80)
        return 3;
    if (u[0] == 0xe2 && u[1] == 0x80 &&
        ((u[2] >= 0x80 && u[2] <= 0x8a) || u[2] == 0xa8 || u[2] == 0xa9 || u[2] == 0xaf))
        return 3;
    if ((u[0] == 0xe2 && u[1] == 0x81 && u[2] == 0x9f) ||
        (u[0] == 0xe3 && u[1] == 0x80 && u[2] == 0x80))
        return 3;
    return 0;
}

/** The text without spaces at both ends, as the filter trim. */
static inline lathe_chars turns_trim(lathe_chars text)
{
    int64_t n;
    while ((n = turns_space(text.data, text.bytes)) > 0) {
        text.data += n;
        text.bytes -= n;
    }
    for (int64_t last = 1; last <= 3 && last <= text.bytes;) {
        const int64_t at = text.bytes - last;
        if (turns_space(text.data + at, last) == last) {
            text.bytes = at;
            last = 1;
        } else {
            last++;
        }
    }
    return text;
}

/** The text without '\n' at its beginning (ends & 1) and at its end (ends & 2). */
static inline lathe_chars turns_strip_newlines(lathe_chars text, int ends)
{
    while ((ends & 1) && text.bytes > 0 && text.data[0] == '\n') {
        text.data++;
        text.bytes--;
    }
    while ((ends & 2) && text.bytes > 0 && text.data[text.bytes - 1] == '\n')
        text.bytes--;
    return text;
}

/** Where the first (or last) `part` begins in the text; -1: nowhere. */
static inline int64_t turns_find(lathe_chars text, const char *part, int last)
{
    const int64_t n = (int64_t)strlen(part);
    int64_t found = -1;
    for (int64_t i = 0; i + n <= text.bytes && (last || found < 0); i++)
        if (memcmp(text.data + i, part, (size_t)n) == 0)
            found = i;
    return found;
}

static inline int turns_has(lathe_chars text, const char *part)
{
    return text.data != NULL && turns_find(text, part, 0) >= 0;
}

/** The text from byte `from` to byte `to`. */
static inline lathe_chars turns_cut(lathe_chars text, int64_t from, int64_t to)
{
    return (lathe_chars){text.data + from, to - from};
}

/** Refuses a message, by its number and role. */
static inline lathe_status turns_refuse(const lathe_host *host,
                                        const lathe_conversation *conversation, int32_t message,
                                        const char *why)
{
    const lathe_chars role = conversation->messages[message].role_name;
    return lathe_fail(host, LATHE_E_UNSUPPORTED, "message %d (role \"%.*s\"): %s", message + 1,
                      (int)(role.bytes < 40 ? role.bytes : 40), role.data, why);
}

/* ---- families that a table carries ---- */

enum {
    TURNS_BOS = 1,          /* the text begins with the folder's bos_token */
    TURNS_TRIM = 2,         /* contents without spaces at their ends */
    TURNS_ALTERNATES = 4,   /* user and assistant in turn, user first, after a system message */
    TURNS_SYSTEM_FIRST = 8, /* a system message may only be the first */
    TURNS_EOS_LAST = 16,    /* eos_token ends a text without prompt */
    TURNS_EOS_ANSWER = 32,  /* eos_token ends an answer, after answer_end */
    TURNS_SKIPS_EMPTY_SYSTEM = 64,
    TURNS_EOS_TURN = 128,       /* eos_token ends every turn, before its suffix */
    TURNS_ASKED = 512,          /* the first message is not an answer */
    TURNS_SYSTEM_IN_USER = 256, /* a system message is put, untrimmed, into the first user turn */
};

/** A family. A role whose prefix is NULL is refused. */
typedef struct turns_family {
    const char *marker; /* what the family's template has in it, to be told from others */
    const char *absent; /* what it does not have; NULL: nothing */
    const char *const *specials;
    const char *default_system; /* put if no message gives one; NULL: nothing */
    const char *system_begin, *system_end;
    const char *user_begin, *user_end;
    const char *answer_begin, *answer_end;
    const char *lead;         /* after answer_begin; learnt where a template's marks have it */
    const char *answer_space; /* before an answer, learnt, and not in the prompt; NULL: nothing */
    const char *between;      /* after a message that another one or the prompt follows */
    uint32_t flags;           /* TURNS_* */
} turns_family;

/* The system message that the first user turn holds; none: an empty text. */
static inline lathe_chars turns_inner(const turns_family *f, const lathe_conversation *conversation,
                                      int32_t message)
{
    const int holds = (f->flags & TURNS_SYSTEM_IN_USER) && message == 1 &&
                      conversation->messages[0].role == LATHE_CHAT_SYSTEM;
    return holds ? conversation->messages[0].content : (lathe_chars){NULL, 0};
}

static inline void turns_user(turns_out *out, const turns_family *f,
                              const lathe_conversation *conversation, int32_t message,
                              lathe_chars content)
{
    const lathe_chars inner = turns_inner(f, conversation, message);
    turns_mark(out, f->user_begin);
    turns_text(out, inner);
    if (inner.data != NULL)
        turns_mark(out, f->system_end);
    turns_text(out, content);
    if (f->flags & TURNS_EOS_TURN)
        turns_token(out, conversation->eos);
    turns_mark(out, f->user_end);
}

static inline void turns_turn(turns_out *out, const lathe_conversation *conversation,
                              const char *begin, lathe_chars content, const char *end,
                              uint32_t flags)
{
    turns_mark(out, begin);
    turns_text(out, content);
    if (flags & TURNS_EOS_TURN)
        turns_token(out, conversation->eos);
    turns_mark(out, end);
}

static inline void turns_answer(turns_out *out, const turns_family *f,
                                const lathe_conversation *conversation, lathe_chars content,
                                int is_last)
{
    turns_mark(out, f->answer_begin);
    out->trained = conversation->is_marked;
    turns_mark(out, f->lead);
    out->trained = 1;
    turns_mark(out, f->answer_space);
    turns_text(out, content);
    if (f->flags & (TURNS_EOS_ANSWER | TURNS_EOS_TURN))
        turns_token(out, conversation->eos);
    turns_mark(out, f->answer_end);
    if ((f->flags & TURNS_EOS_LAST) && is_last && !conversation->prompt)
        turns_token(out, conversation->eos);
    out->trained = 0;
}

/* Refuses what the table has no text for. */
static inline lathe_status turns_check(const lathe_host *host, const turns_family *f,
                                       const lathe_conversation *conversation)
{
    const int32_t has_system = conversation->messages[0].role == LATHE_CHAT_SYSTEM;
    if (conversation->n_tools > 0)
        return turns_refuse(host, conversation, 0, "the family has no text for tools");
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        const char *begin = m->role == LATHE_CHAT_SYSTEM      ? f->system_begin
                            : m->role == LATHE_CHAT_USER      ? f->user_begin
                            : m->role == LATHE_CHAT_ASSISTANT ? f->answer_begin
                                                              : NULL;
        if (begin == NULL)
            return turns_refuse(host, conversation, i, "the family has no such role");
        if (m->content.data == NULL || m->n_calls > 0)
            return turns_refuse(host, conversation, i,
                                "the family needs a content without calls of tools");
        if ((f->flags & TURNS_ASKED) && m->role == LATHE_CHAT_ASSISTANT && i == 0)
            return turns_refuse(host, conversation, i, "the first message may not be an answer");
        if ((f->flags & TURNS_SYSTEM_FIRST) && m->role == LATHE_CHAT_SYSTEM && i > 0)
            return turns_refuse(host, conversation, i,
                                "only the first message may be the system's");
        if ((f->flags & TURNS_ALTERNATES) && m->role != LATHE_CHAT_SYSTEM &&
            (m->role == LATHE_CHAT_USER) != ((i - has_system) % 2 == 0))
            return turns_refuse(host, conversation, i,
                                "user and assistant must alternate, user first");
    }
    return LATHE_OK;
}

static inline int turns_shows_system(const turns_family *f, lathe_chars content)
{
    return !(f->flags & TURNS_SYSTEM_IN_USER) &&
           (content.bytes > 0 || !(f->flags & TURNS_SKIPS_EMPTY_SYSTEM));
}

/** Renders a conversation by a table. */
static inline lathe_status turns_render(const lathe_host *host, const turns_family *f,
                                        const lathe_conversation *conversation,
                                        const lathe_piece_sink *sink)
{
    turns_out out = {.sink = sink, .specials = f->specials, .message = -1};
    const lathe_status status = turns_check(host, f, conversation);
    if (status != LATHE_OK)
        return status;
    if (f->flags & TURNS_BOS)
        turns_token(&out, conversation->bos);
    if (conversation->messages[0].role != LATHE_CHAT_SYSTEM)
        turns_mark(&out, f->default_system);
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        const lathe_chars content = f->flags & TURNS_TRIM ? turns_trim(m->content) : m->content;
        if (i > 0)
            turns_mark(&out, f->between);
        out.message = i;
        if (m->role == LATHE_CHAT_SYSTEM && turns_shows_system(f, content))
            turns_turn(&out, conversation, f->system_begin, content, f->system_end, f->flags);
        else if (m->role == LATHE_CHAT_USER)
            turns_user(&out, f, conversation, i, content);
        else if (m->role == LATHE_CHAT_ASSISTANT)
            turns_answer(&out, f, conversation, content, i + 1 == conversation->n_messages);
    }
    const int ends_with_answer =
        conversation->messages[conversation->n_messages - 1].role == LATHE_CHAT_ASSISTANT;
    out.message = -1;
    if (conversation->prompt) {
        turns_mark(&out, f->between);
        turns_mark(&out, f->answer_begin);
        turns_mark(&out, f->lead);
    } else if ((f->flags & TURNS_EOS_LAST) && !ends_with_answer) {
        turns_token(&out, conversation->eos);
    }
    return out.status;
}

/* ---- the instance: which variant of its family the folder has ---- */

typedef struct turns_instance {
    const lathe_host *host;
    int32_t variant;
    int32_t has_tools;        /* the family's text for tools is written */
    int32_t may_lack_content; /* an answer with calls needs no content */
} turns_instance;

static inline lathe_status turns_create(const lathe_host *host, const lathe_value *values,
                                        int32_t n_values, void **out_self)
{
    (void)values, (void)n_values;
    turns_instance *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a renderer");
    self->host = host;
    *out_self = self;
    return LATHE_OK;
}

static inline void turns_destroy(void *self)
{
    if (self != NULL)
        ((turns_instance *)self)->host->free(self);
}

/** Whether the folder's template has a text in it, or there is none, so that nothing contradicts
 * the family. */
static inline int turns_template_has(const lathe_renderer_probe *probe, const char *part)
{
    return probe->template_text.data == NULL || turns_has(probe->template_text, part);
}

/** Whether a renderer may write what `part` of the family's templates writes. score: of the folder.
 * LATHE_SCORE_NO: its template is not of the family, so the renderer writes only if it is named,
 * and then all that it can. */
static inline int turns_may_write(int32_t score, const lathe_renderer_probe *probe,
                                  const char *part)
{
    return score == LATHE_SCORE_NO || turns_template_has(probe, part);
}

/** Finds the variant by the SHA-256 of its template, else by what the template's text has in it.
 *  hashes: [n] of "<sha256> <variant>", may be NULL. */
static inline int32_t turns_score_variants(turns_instance *self, const turns_family *variants,
                                           int32_t n, const char *const *hashes,
                                           const lathe_renderer_probe *probe, char *why,
                                           int64_t why_bytes)
{
    for (int i = 0; hashes != NULL && hashes[i] != NULL && probe->template_sha256 != NULL; i++)
        if (strncmp(hashes[i], probe->template_sha256, 64) == 0) {
            self->variant = hashes[i][65] - '0';
            snprintf(why, (size_t)why_bytes, "a template of this family");
            return LATHE_SCORE_EXACT;
        }
    for (int32_t i = 0; i < n; i++)
        if (variants[i].marker != NULL && turns_has(probe->template_text, variants[i].marker) &&
            (variants[i].absent == NULL || !turns_has(probe->template_text, variants[i].absent))) {
            self->variant = i;
            snprintf(why, (size_t)why_bytes, "the template has \"%s\"", variants[i].marker);
            return LATHE_SCORE_FAMILY;
        }
    snprintf(why, (size_t)why_bytes, "no template of this family");
    return LATHE_SCORE_NO;
}

/** Defines score() and render() of a plugin whose variants are all tables. */
#define TURNS_TABLES(variants, hashes)                                                             \
    static int32_t score(void *self, const lathe_renderer_probe *probe, char *why,                 \
                         int64_t why_bytes)                                                        \
    {                                                                                              \
        return turns_score_variants(self, variants,                                                \
                                    (int32_t)(sizeof(variants) / sizeof *(variants)), hashes,      \
                                    probe, why, why_bytes);                                        \
    }                                                                                              \
    static lathe_status render(void *self, const lathe_conversation *conversation,                 \
                               const lathe_piece_sink *sink)                                       \
    {                                                                                              \
        const turns_instance *x = self;                                                            \
        return turns_render(x->host, &(variants)[x->variant], conversation, sink);                 \
    }                                                                                              \
    _Static_assert(sizeof(variants) / sizeof *(variants) < 10, "a variant is one digit")

/* A plugin that writes other texts or tokens than before defines another version before it includes
 * this header: cached shards are then made again. */
#ifndef TURNS_VERSION
#define TURNS_VERSION "0.1.0"
#endif

/** Defines the plugin's table and entry. */
#define TURNS_PLUGIN(plugin_name, plugin_flags, plugin_summary, plugin_source)                     \
    static const lathe_renderer_v1 table = {                                                       \
        .size = (uint32_t)sizeof table,                                                            \
        .revision = LATHE_RENDERER_REVISION,                                                       \
        .flags = (plugin_flags),                                                                   \
        .score = score,                                                                            \
        .render = render,                                                                          \
    };                                                                                             \
    const lathe_plugin LATHE_PLUGIN_ENTRY = {LATHE_PLUGIN_HEADER,                                  \
                                             .kind = LATHE_KIND_RENDERER,                          \
                                             .revision = LATHE_RENDERER_REVISION,                  \
                                             .name = (plugin_name),                                \
                                             .version = TURNS_VERSION,                             \
                                             .summary = (plugin_summary),                          \
                                             .source = (plugin_source),                            \
                                             .license = "Apache-2.0",                              \
                                             .table = &table,                                      \
                                             .create = turns_create,                               \
                                             .destroy = turns_destroy}

#endif

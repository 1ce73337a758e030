/* Finds the calls, tools, documents and keys of conversations that their chat template does not
 * write. */
#include "data/conversation/chat_unwritten.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

static const char *const call_keys[] = {"tool_calls", "function_call"};
#define N_CALL_KEYS (sizeof call_keys / sizeof *call_keys)

static int is_empty(const json_t *x)
{
    return x == NULL || json_is_null(x) || (json_is_string(x) && json_string_length(x) == 0) ||
           (json_is_array(x) && json_array_size(x) == 0) ||
           (json_is_object(x) && json_object_size(x) == 0);
}

static int has_calls(const json_t *message)
{
    for (size_t i = 0; i < N_CALL_KEYS; i++)
        if (!is_empty(json_object_get(message, call_keys[i])))
            return 1;
    return 0;
}

/* A new list of the messages without their calls; NULL: no memory. */
static json_t *without_calls(json_t *messages)
{
    json_t *out = json_array(), *message;
    size_t i;
    int failed = out == NULL;
    json_array_foreach(messages, i, message)
    {
        json_t *one = has_calls(message) ? json_copy(message) : json_incref(message);
        for (size_t k = 0; k < N_CALL_KEYS && one != message; k++)
            (void)json_object_del(one, call_keys[k]);
        failed |= json_array_append_new(out, one) != 0; /* frees `one` if it fails */
    }
    if (!failed)
        return out;
    json_decref(out);
    return NULL;
}

/* *out = 1: the conversation gives the same text. */
static lathe_status is_same(const lathe_chat_template *chat, const lathe_chat *what,
                            const lathe_rendering *text, int32_t *out)
{
    lathe_rendering other = {0};
    const lathe_status status = lathe_chat_render(chat, what, &other);
    if (status == LATHE_OK && other.bytes == text->bytes &&
        memcmp(other.text, text->text, (size_t)text->bytes) == 0)
        *out = 1;
    lathe_rendering_fini(&other);
    if (status == LATHE_E_NOMEM)
        return status;
    lathe_error_clear();
    return LATHE_OK;
}

/* ---- keys of messages ---- */

static int is_of_layout(const char *key)
{
    static const char *const known[] = {"role", "content", "tool_calls", "function_call"};
    const char *mark;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], key) == 0)
            return 1;
    for (int32_t i = 0; (mark = lathe_chat_mark_key(i)) != NULL; i++)
        if (strcmp(mark, key) == 0)
            return 1;
    return 0;
}

static int is_word_byte(char c)
{
    return c == '_' || isalnum((unsigned char)c);
}

/* Whether the text has the key as a word: "id" is none in "valid". */
static int has_word(lathe_chars text, const char *key)
{
    const size_t n = strlen(key);
    const char *end = text.data + text.bytes, *at = text.data;
    while (at && (at = memmem(at, (size_t)(end - at), key, n)) != NULL) {
        if ((at == text.data || !is_word_byte(at[-1])) && (at + n == end || !is_word_byte(at[n])))
            return 1;
        at++;
    }
    return 0;
}

/* Whether a text of the template names the key: it may write it only in other conversations. A
 * renderer that serves instead of the template has no text. */
static int is_named(const lathe_chat_template *chat, const char *key)
{
    for (int of_tools = 0; of_tools < 2 && lathe_chat_template_renderer(chat) == NULL; of_tools++) {
        const lathe_chars text = lathe_chat_template_text(chat, of_tools);
        if (has_word(text, key))
            return 1;
    }
    return 0;
}

static void add_key(lathe_chat_unwritten *to, const char *key)
{
    char cut[LATHE_UNWRITTEN_KEY_BYTES];
    const int64_t n = (int64_t)strlen(key), max = (int64_t)sizeof cut - 1;
    (void)snprintf(cut, sizeof cut, "%.*s",
                   (int)(n <= max ? n : lathe_utf8_prefix((const uint8_t *)key, max)), key);
    for (int32_t i = 0; i < to->n_keys; i++)
        if (strcmp(to->keys[i], cut) == 0)
            return;
    if (to->n_keys < LATHE_UNWRITTEN_KEYS)
        (void)snprintf(to->keys[to->n_keys++], sizeof cut, "%s", cut);
}

enum { MAX_CANDIDATES = 16 };

typedef struct candidates {
    const char *keys[MAX_CANDIDATES]; /* borrowed of the messages */
    size_t n;
} candidates;

static void find_candidates(const lathe_chat_template *chat, const lathe_chat *what,
                            candidates *out)
{
    json_t *message, *value;
    const char *key;
    size_t i;
    out->n = 0;
    json_array_foreach(what->messages, i, message)
    {
        json_object_foreach(message, key, value)
        {
            size_t k = 0;
            if (is_empty(value) || is_of_layout(key))
                continue;
            while (k < out->n && strcmp(out->keys[k], key) != 0)
                k++;
            if (k == out->n && k < MAX_CANDIDATES && !is_named(chat, key))
                out->keys[out->n++] = key;
        }
    }
}

/* *same = 1: the conversation gives the same text without these keys of its messages. */
static lathe_status is_same_without(const lathe_chat_template *chat, const lathe_chat *what,
                                    const lathe_rendering *text, const char *const *keys, size_t n,
                                    int32_t *same)
{
    lathe_chat other = *what;
    json_t *message;
    size_t i;
    int failed;
    other.messages = json_array();
    failed = other.messages == NULL;
    json_array_foreach(what->messages, i, message)
    {
        json_t *one = json_copy(message);
        for (size_t k = 0; k < n && json_is_object(one); k++)
            (void)json_object_del(one, keys[k]);
        failed |= json_array_append_new(other.messages, one) != 0;
    }
    const lathe_status status = failed
                                    ? lathe_error(LATHE_E_NOMEM, "the messages of a conversation")
                                    : is_same(chat, &other, text, same);
    json_decref(other.messages);
    return status;
}

static lathe_status find_keys(const lathe_chat_template *chat, const lathe_chat *what,
                              const lathe_rendering *text, const candidates *x,
                              lathe_chat_unwritten *out)
{
    int32_t same = 0;
    LATHE_TRY(is_same_without(chat, what, text, x->keys, x->n, &same));
    for (size_t i = 0; i < x->n; i++) {
        int32_t is_one = same;
        if (!same && x->n > 1)
            LATHE_TRY(is_same_without(chat, what, text, &x->keys[i], 1, &is_one));
        if (is_one)
            add_key(out, x->keys[i]);
    }
    return LATHE_OK;
}

lathe_status lathe_chat_find_unread_keys(const lathe_chat_template *chat, const lathe_chat *what,
                                         const lathe_rendering *text, lathe_chat_unwritten *out)
{
    candidates x;
    lathe_rendering own = {0};
    find_candidates(chat, what, &x);
    if (x.n == 0)
        return LATHE_OK;
    lathe_status status = text ? LATHE_OK : lathe_chat_render(chat, what, &own);
    if (status == LATHE_OK)
        status = find_keys(chat, what, text ? text : &own, &x, out);
    lathe_rendering_fini(&own);
    return status;
}

lathe_status lathe_chat_find_unwritten(const lathe_chat_template *chat, const lathe_chat *what,
                                       const lathe_rendering *text, size_t first_learnt,
                                       lathe_chat_unwritten *out)
{
    lathe_chat other = *what;
    json_t *message;
    size_t i;
    int any = 0, empty = 0;
    LATHE_TRY(lathe_chat_find_unread_keys(chat, what, text, out));
    json_array_foreach(what->messages, i, message) if (has_calls(message))
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        any = 1;
        empty = empty || (i >= first_learnt && role && strcmp(role, "assistant") == 0 &&
                          is_empty(json_object_get(message, "content")));
    }
    if (any) {
        int32_t same = 0;
        other.messages = without_calls(what->messages);
        if (other.messages == NULL)
            return lathe_error(LATHE_E_NOMEM, "the messages of a conversation");
        const lathe_status status = is_same(chat, &other, text, &same);
        json_decref(other.messages);
        other.messages = what->messages;
        LATHE_TRY(status);
        out->calls |= same;
        out->empty_answer |= same && empty;
    }
    if (!is_empty(what->tools)) {
        other.tools = NULL;
        LATHE_TRY(is_same(chat, &other, text, &out->tools));
        other.tools = what->tools;
    }
    if (is_empty(what->documents))
        return LATHE_OK;
    other.documents = NULL;
    return is_same(chat, &other, text, &out->documents);
}

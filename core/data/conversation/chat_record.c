/* Renders a conversation, encodes it, and finds the tokens of the parts that are learnt. */
#include "data/conversation/chat_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "chat/template/chat_template.h"
#include "data/records/chat_alpaca.h"
#include "data/records/chat_messages.h"

void lathe_chat_tokens_fini(lathe_chat_tokens *t)
{
    lathe_ids_fini(&t->ids);
    lathe_ids_fini(&t->prefix);
    free(t->learnt);
    free(t->ends);
    memset(t, 0, sizeof *t);
}

static lathe_status reserve(lathe_chat_tokens *t)
{
    const int64_t n = t->ids.n;
    if (n <= t->capacity && n <= t->ends_capacity)
        return LATHE_OK;
    uint8_t *learnt = realloc(t->learnt, (size_t)(2 * n));
    if (learnt) {
        t->learnt = learnt;
        t->capacity = 2 * n;
    }
    int64_t *ends = realloc(t->ends, (size_t)(2 * n) * sizeof *ends);
    if (ends) {
        t->ends = ends;
        t->ends_capacity = 2 * n;
    }
    if (learnt && ends)
        return LATHE_OK;
    return lathe_error(LATHE_E_NOMEM, "a conversation of %lld tokens", (long long)n);
}

/* Sets ends[i], the byte of the text where token i ends. Returns 0 if the tokens, one after
 * another, do not give the bytes of the text. */
static int find_ends(const lathe_tokenizer *tok, const char *text, int64_t n, lathe_chat_tokens *t)
{
    int64_t at = 0;
    for (int64_t i = 0; i < t->ids.n; i++) {
        int64_t length = 0;
        const char *bytes = lathe_tokenizer_token(tok, t->ids.data[i], &length);
        if (bytes == NULL || length > n - at || memcmp(text + at, bytes, (size_t)length) != 0)
            return 0;
        at += length;
        t->ends[i] = at;
    }
    return at == n;
}

/* The first token that ends after byte `at`. */
static int64_t token_at(const lathe_chat_tokens *t, int64_t at)
{
    int64_t low = 0, high = t->ids.n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (t->ends[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

lathe_status lathe_chat_encode_text(lathe_encoder *enc, const lathe_rendering *text, int64_t bytes,
                                    lathe_ids *out)
{
    const lathe_token_places places = {text->tokens, text->n_tokens};
    return lathe_encoder_run_placed(enc, text->text, bytes, text->has_tokens ? &places : NULL, out);
}

/* Finds the first token in which text[0, at) and the whole text differ. *whole = 1: they do not
 * differ before `at`. The beginning is read alone and as one that is continued: a normalizer that
 * strips the end of a text takes space from one of the two that the whole text has, or lacks. */
static lathe_status token_after(lathe_encoder *enc, const lathe_rendering *text, int64_t at,
                                lathe_chat_tokens *t, int64_t *out, int *whole)
{
    const lathe_token_places places = {text->tokens, text->n_tokens};
    *out = 0;
    *whole = 0;
    for (int is_open = 0; is_open < 2; is_open++) {
        int64_t n = 0;
        t->prefix.n = 0;
        LATHE_TRY(is_open ? lathe_encoder_run_open(enc, text->text, at, 0,
                                                   text->has_tokens ? &places : NULL, &t->prefix)
                          : lathe_chat_encode_text(enc, text, at, &t->prefix));
        while (n < t->prefix.n && n < t->ids.n && t->prefix.data[n] == t->ids.data[n])
            n++;
        *whole = n > *out ? n == t->prefix.n : *whole | (n == *out && n == t->prefix.n);
        *out = n > *out ? n : *out;
        if (!lathe_encoder_strips_end(enc))
            break; /* both are the same */
    }
    return LATHE_OK;
}

/* Where a template marks a part that begins with space which the special token before it takes
 * (<|assistant|> of Phi-3), that token has the part's first character: moves *first back to it. */
static lathe_status include_taken_space(lathe_encoder *enc, const lathe_tokenizer *tok,
                                        const lathe_rendering *text, lathe_template_span part,
                                        lathe_chat_tokens *t, int64_t *first)
{
    int64_t n = 0, next = part.begin + 1;
    int whole;
    if (!text->is_marked || *first == 0 ||
        !lathe_tokenizer_is_special(tok, t->ids.data[*first - 1]))
        return LATHE_OK;
    while (next < part.end && ((uint8_t)text->text[next] & 0xc0) == 0x80)
        next++;
    LATHE_TRY(token_after(enc, text, next, t, &n, &whole));
    *first -= whole && n == *first; /* the first character gave no token */
    return LATHE_OK;
}

/* The tokens [*first, *after) of a part of the text. */
static lathe_status find_part(lathe_encoder *enc, const lathe_tokenizer *tok,
                              const lathe_rendering *text, lathe_template_span part, int has_ends,
                              lathe_chat_tokens *t, int64_t *first, int64_t *after)
{
    int whole;
    if (has_ends) {
        *first = token_at(t, part.begin);
        *after = token_at(t, part.end - 1) + 1;
        return LATHE_OK;
    }
    LATHE_TRY(token_after(enc, text, part.begin, t, first, &whole));
    LATHE_TRY(include_taken_space(enc, tok, text, part, t, first));
    LATHE_TRY(token_after(enc, text, part.end, t, after, &whole));
    *after += !whole; /* a token continues after the end of the part */
    return LATHE_OK;
}

static lathe_status mark(lathe_encoder *enc, const lathe_tokenizer *tok,
                         const lathe_rendering *text, lathe_chat_tokens *t)
{
    LATHE_TRY(reserve(t));
    if (t->ids.n)
        memset(t->learnt, 0, (size_t)t->ids.n);
    const int has_ends = find_ends(tok, text->text, text->bytes, t);
    t->n_learnt = 0;
    for (int64_t i = 0; i < text->n_spans; i++) {
        int64_t first = 0, after = 0;
        if (text->spans[i].begin >= text->spans[i].end)
            continue;
        LATHE_TRY(find_part(enc, tok, text, text->spans[i], has_ends, t, &first, &after));
        for (int64_t k = first; k < after && k < t->ids.n; k++) {
            t->n_learnt += !t->learnt[k];
            t->learnt[k] = 1;
        }
    }
    return LATHE_OK;
}

lathe_status lathe_chat_encode_rendering(const lathe_tokenizer *tok, lathe_encoder *enc,
                                         const lathe_rendering *text, lathe_chat_tokens *out)
{
    out->ids.n = 0;
    LATHE_TRY(lathe_chat_encode_text(enc, text, text->bytes, &out->ids));
    return mark(enc, tok, text, out);
}

static int is_usual(const char *role)
{
    static const char *const usual[] = {"system",        "user",     "assistant", "tool",
                                        "tool_response", "function", "developer", "ipython"};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (strcmp(role, usual[i]) == 0)
            return 1;
    return 0;
}

/* Counts the answers, and finds a role that may be mistyped. */
static void look_at_roles(json_t *messages, lathe_chat_tokens *out)
{
    json_t *message;
    size_t i;
    out->n_answers = out->n_muted = out->n_others = 0;
    out->unusual_role[0] = '\0';
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        const int is_answer = role && strcmp(role, "assistant") == 0;
        int mark = LATHE_CHAT_UNMARKED;
        (void)lathe_chat_message_mark(message, i + 1, &mark); /* rendering reports the errors */
        out->n_answers += is_answer;
        out->n_muted += is_answer && mark == LATHE_CHAT_MUTE;
        out->n_others += !is_answer && mark == LATHE_CHAT_LEARN;
        if (role && !is_usual(role) && !out->unusual_role[0])
            (void)snprintf(out->unusual_role, sizeof out->unusual_role, "%s", role);
    }
}

static lathe_status encode_chat(const lathe_chat_template *chat, lathe_chat *what,
                                const lathe_tokenizer *tok, lathe_encoder *enc,
                                lathe_rendering *text, lathe_chat_tokens *out)
{
    LATHE_TRY(lathe_chat_render_training(chat, what, text));
    out->text_bytes = text->bytes;
    look_at_roles(what->messages, out);
    what->add_generation_prompt = 0; /* training reads no such key */
    LATHE_TRY(lathe_chat_find_unwritten(chat, what, text, 0, &out->unwritten));
    return lathe_chat_encode_rendering(tok, enc, text, out);
}

static lathe_status encode(const lathe_chat_template *chat, json_t *row, const lathe_tokenizer *tok,
                           lathe_encoder *enc, lathe_chat_tokens *out)
{
    lathe_chat what;
    lathe_rendering text = {0};
    json_t *owned = NULL;
    out->ids.n = 0;
    out->text_bytes = 0;
    memset(&out->unwritten, 0, sizeof out->unwritten);
    lathe_status status = lathe_chat_from_row(row, &what, &owned);
    if (status == LATHE_OK)
        status = encode_chat(chat, &what, tok, enc, &text, out);
    lathe_rendering_fini(&text);
    json_decref(owned);
    return status;
}

/* ---- the conversation of a record ---- */

/* Whether a field holds a conversation: a list, a message, or the JSON of a list as a text. */
static int holds_conversation(const json_t *x)
{
    const char *text = json_string_value(x);
    if (text)
        text += strspn(text, " \t\r\n");
    return json_array_size(x) > 0 || json_is_object(x) || (text && *text == '[');
}

const char *lathe_chat_conversation_field(const lathe_dataset *dataset, const json_t *row)
{
    const char *own = lathe_dataset_messages(dataset);
    const json_t *x = json_object_get(row, own);
    if (dataset->messages || holds_conversation(x))
        return x && !json_is_null(x) ? own : NULL;
    if (holds_conversation(lathe_record_take(row, NULL, LATHE_RECORD_SHAREGPT)))
        return LATHE_RECORD_SHAREGPT;
    return x && !json_is_null(x) ? own : NULL;
}

/* Replaces the JSON of a list that is written as a text by the list. */
static lathe_status read_text_list(json_t *row, const char *field, json_t **list)
{
    char where[704];
    json_t *read = NULL;
    if (!json_is_string(*list))
        return LATHE_OK;
    (void)snprintf(where, sizeof where, "column \"%s\"", field);
    LATHE_TRY(lathe_json_load_exact(where, json_string_value(*list),
                                    (int64_t)json_string_length(*list), 1, &read));
    *list = read;
    return json_object_set_new(row, field, read) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "the messages of a record");
}

lathe_status lathe_chat_take_conversation(const lathe_dataset *dataset, json_t *row,
                                          lathe_record_uses *uses, json_t **out)
{
    const char *field = lathe_chat_conversation_field(dataset, row);
    json_t *list = field ? json_object_get(row, field) : NULL;
    *out = NULL;
    if (list == NULL)
        return LATHE_OK;
    LATHE_TRY(read_text_list(row, field, &list));
    lathe_record_use(uses, field);
    *out = json_is_object(list) ? json_pack("[O]", list) : json_incref(list);
    if (*out == NULL)
        return lathe_error(LATHE_E_NOMEM, "the messages of a record");
    lathe_status status = lathe_chat_messages_read(*out);
    if (status == LATHE_OK && json_is_array(*out))
        status = lathe_chat_add_system(row, *out, uses);
    if (status == LATHE_OK)
        return status;
    json_decref(*out);
    *out = NULL;
    return status;
}

lathe_status lathe_chat_add_system(json_t *row, json_t *messages, lathe_record_uses *uses)
{
    json_t *system = lathe_record_take(row, NULL, LATHE_RECORD_SYSTEM);
    const json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (!json_is_string(system) || json_string_length(system) == 0)
        return LATHE_OK;
    const int has_one = role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
    if (!has_one || json_equal(json_object_get(first, "content"), system))
        lathe_record_use(uses, LATHE_RECORD_SYSTEM);
    if (has_one)
        return LATHE_OK;
    json_t *message = json_pack("{s:s, s:O}", "role", "system", "content", system);
    return message && json_array_insert_new(messages, 0, message) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "messages of a conversation");
}

void lathe_chat_use_row(const json_t *row, lathe_record_uses *uses)
{
    const lathe_record_key *key;
    for (int32_t i = 0; (key = lathe_record_key_get(i)) != NULL; i++)
        if (key->where & LATHE_RECORD_IS_BESIDE)
            (void)lathe_record_take(row, uses, key->name);
}

lathe_status lathe_chat_row_read(const lathe_dataset *dataset, json_t *row, lathe_record_uses *uses)
{
    json_t *conversation = NULL;
    lathe_chat_use_row(row, uses);
    if (lathe_chat_conversation_field(dataset, row) == NULL && dataset->messages == NULL &&
        lathe_record_take(row, NULL, LATHE_RECORD_INSTRUCTION))
        return lathe_chat_alpaca_read(1, row, uses);
    LATHE_TRY(lathe_chat_take_conversation(dataset, row, uses, &conversation));
    return conversation == NULL ||
                   json_object_set_new(row, LATHE_RECORD_MESSAGES, conversation) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "the messages of a record");
}

lathe_status lathe_chat_encode(const lathe_dataset *dataset, lathe_fields *fields,
                               const lathe_tokenizer *tok, lathe_encoder *enc,
                               lathe_chat_tokens *out)
{
    json_t *row = NULL;
    const char *key = lathe_dataset_messages(dataset);
    if (dataset->chat == NULL)
        return lathe_error(LATHE_E_CONFIG, "the column \"%s\" needs a chat template: %s", key,
                           dataset->no_chat ? dataset->no_chat : "the dataset has none");
    LATHE_TRY(lathe_json_load_exact("record", fields->row, fields->n_row, 1, &row));
    lathe_status status = lathe_chat_row_read(dataset, row, fields->is_made ? NULL : &fields->uses);
    if (status == LATHE_OK)
        status = encode(dataset->chat, row, tok, enc, out);
    json_decref(row);
    return status;
}

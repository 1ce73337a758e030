/* Reads model.vocab and model.merges in one pass over the text of a tokenizer.json. Functions
 * return NULL or 0 for anything unusual, which is then left to the JSON reader. The list of a
 * Unigram model is only checked and counted here; its tokens are read later, one by one. */
#include "tokenizer/json/token_tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_walk.h"
#include "base/json/score.h"
#include "base/utf8.h"

enum { MAX_TEXT = 1 << 20 };

typedef struct walker {
    const char *end; /* end of the text; the byte after it is a NUL or is not read */
    int64_t bytes;
    lathe_token_tables *out;
    const char *vocab, *vocab_end, *merges, *merges_end;
} walker;

static const char *blank(const walker *w, const char *p)
{
    while (p < w->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* Skips `c` and the blanks around it. */
static const char *expect(const walker *w, const char *p, char c)
{
    if (p == NULL)
        return NULL;
    p = blank(w, p);
    return p < w->end && *p == c ? blank(w, p + 1) : NULL;
}

/* Skips the string that begins at p, whatever it contains. */
static const char *skip_string(const walker *w, const char *p)
{
    for (p++; p < w->end && *p != '"'; p++)
        p += *p == '\\';
    return p < w->end ? p + 1 : NULL;
}

/* Skips any value. */
static const char *skip_value(const walker *w, const char *p)
{
    int64_t depth = 0;
    do {
        if (p >= w->end)
            return NULL;
        if (*p == '"') {
            p = skip_string(w, p);
            if (p == NULL)
                return NULL;
            continue;
        }
        if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
        else if (depth == 0)
            return p + strcspn(p, ",]} \n\r\t") < w->end ? p + strcspn(p, ",]} \n\r\t") : NULL;
        p++;
    } while (depth > 0);
    return p;
}

/* Reads the string at p: its text and length; returns the position after it. */
static const char *read_string(walker *w, const char *p, const char **out, int32_t *out_n)
{
    lathe_json_walk walk = {.at = p, .end = w->end};
    lathe_json_string string;
    if (!lathe_json_pass_string(&walk, &string) || string.n > MAX_TEXT)
        return NULL;
    *out = string.text;
    *out_n = (int32_t)string.n;
    if (string.escaped) { /* unescaped into separate memory */
        lathe_token_tables *t = w->out;
        if (t->unescaped == NULL && (t->unescaped = malloc((size_t)w->bytes)) == NULL)
            return NULL;
        *out = t->unescaped + t->n_unescaped;
        t->n_unescaped +=
            lathe_json_unescape(string.text, string.n_raw, t->unescaped + t->n_unescaped);
    }
    return walk.at;
}

/* Reads a whole number below 2^24, such as an id. */
static const char *read_id(const walker *w, const char *p, int32_t *out)
{
    const char *begin = p;
    int32_t id = 0;
    while (p < w->end && *p >= '0' && *p <= '9' && p - begin < 8)
        id = id * 10 + (*p++ - '0');
    *out = id;
    const int plain = p > begin && (*begin != '0' || p == begin + 1) && id < 1 << 24;
    return plain && p < w->end && lathe_is_one_of(*p, ",} \n\r\t") ? p : NULL;
}

/* Makes room for one more element. */
static int grow(void **data, int64_t n, int64_t *capacity, size_t size)
{
    if (n < *capacity)
        return 1;
    const int64_t wanted = *capacity * 2 + 4096;
    void *grown = realloc(*data, (size_t)wanted * size);
    if (grown == NULL)
        return 0;
    *data = grown;
    *capacity = wanted;
    return 1;
}

/* Passes what follows an element that ends at p (NULL: it could not be read): a comma, or `close`,
 * with which the list ends. Returns where the next element begins, or the text after the list;
 * NULL: anything else follows. */
static const char *after_element(const walker *w, const char *p, char close, int *ended)
{
    p = p ? blank(w, p) : NULL;
    if (p == NULL || p >= w->end || (*p != ',' && *p != close))
        return NULL;
    *ended = *p == close;
    return *ended ? p + 1 : blank(w, p + 1);
}

static const char *read_vocab(walker *w, const char *p)
{
    lathe_token_tables *t = w->out;
    int ended = 0;
    p = expect(w, p, '{');
    if (p && p < w->end && *p == '}')
        return p + 1;
    while (p) {
        void *tokens = t->tokens;
        if (!grow(&tokens, t->n_tokens, &t->token_capacity, sizeof *t->tokens))
            return NULL;
        t->tokens = tokens;
        lathe_table_token *token = &t->tokens[t->n_tokens++];
        p = expect(w, read_string(w, p, &token->text, &token->n), ':');
        p = p ? read_id(w, p, &token->id) : NULL;
        p = after_element(w, p, '}', &ended);
        if (ended)
            return p;
    }
    return NULL;
}

/* ["text", score] */
static const char *read_scored(const walker *w, const char *p, lathe_json_string *out_text,
                               double *out_score)
{
    lathe_json_walk walk = {.at = expect(w, p, '['), .end = w->end};
    if (walk.at == NULL || !lathe_json_pass_string(&walk, out_text) || out_text->n > MAX_TEXT)
        return NULL;
    walk.at = expect(w, walk.at, ',');
    if (walk.at == NULL || walk.at >= w->end ||
        (*walk.at != '-' && (*walk.at < '0' || *walk.at > '9')))
        return NULL;
    const char *const number = walk.at;
    if (!lathe_json_pass_scalar(&walk) || walk.at >= w->end)
        return NULL;
    *out_score = lathe_score_read(number, walk.at - number);
    p = blank(w, walk.at);
    return isfinite(*out_score) && p < w->end && *p == ']' ? p + 1 : NULL;
}

/* A list of [text, score], not empty. */
static const char *read_scored_vocab(walker *w, const char *p)
{
    lathe_token_tables *t = w->out;
    int ended = 0;
    p = expect(w, p, '[');
    t->scored = p;
    while (p && p < w->end) {
        lathe_json_string text = {.text = NULL}; /* for the analyzer: read_scored fills it */
        double score = 0.0;
        p = after_element(w, read_scored(w, p, &text, &score), ']', &ended);
        if (p == NULL)
            return NULL;
        t->n_scored++;
        if (text.escaped && text.n > t->longest_escaped)
            t->longest_escaped = text.n;
        if (ended)
            return p;
    }
    return NULL;
}

const char *lathe__token_tables_scored(const lathe_token_tables *tables, const char *at,
                                       char *unescaped, const char **out_text, int32_t *out_n,
                                       double *out_score)
{
    const walker w = {.end = tables->end};
    lathe_json_string text;
    at = read_scored(&w, at, &text, out_score);
    if (at == NULL)
        return NULL;
    at = blank(&w, at);
    *out_text = text.text;
    *out_n = (int32_t)text.n;
    if (text.escaped) {
        (void)lathe_json_unescape(text.text, text.n_raw, unescaped);
        *out_text = unescaped;
    }
    return blank(&w, at + 1);
}

/* "a b", or ["a", "b"]. */
static const char *read_merge(walker *w, const char *p, lathe_table_merge *merge)
{
    if (*p == '[') {
        p = expect(w, p, '[');
        p = p ? expect(w, read_string(w, p, &merge->left, &merge->n_left), ',') : NULL;
        p = p ? read_string(w, p, &merge->right, &merge->n_right) : NULL;
        p = p ? blank(w, p) : NULL;
        return p && p < w->end && *p == ']' ? p + 1 : NULL;
    }
    int32_t n;
    p = read_string(w, p, &merge->left, &n);
    const char *space = p ? memchr(merge->left, ' ', (size_t)n) : NULL;
    if (space == NULL)
        return NULL;
    merge->n_left = (int32_t)(space - merge->left);
    merge->right = space + 1;
    merge->n_right = n - merge->n_left - 1;
    return memchr(merge->right, ' ', (size_t)merge->n_right) ? NULL : p;
}

static const char *read_merges(walker *w, const char *p)
{
    lathe_token_tables *t = w->out;
    int ended = 0;
    p = expect(w, p, '[');
    if (p && p < w->end && *p == ']')
        return p + 1;
    while (p && p < w->end) {
        void *merges = t->merges;
        if (!grow(&merges, t->n_merges, &t->merge_capacity, sizeof *t->merges))
            return NULL;
        t->merges = merges;
        p = after_element(w, read_merge(w, p, &t->merges[t->n_merges++]), ']', &ended);
        if (ended)
            return p;
    }
    return NULL;
}

static int is_key(const char *p, const char *end, const char *key)
{
    return p + strlen(key) == end && !memcmp(p, key, strlen(key));
}

/* Reads the members of the model (in_model) or of the file. */
static const char *read_members(walker *w, const char *p, int in_model)
{
    p = expect(w, p, '{');
    while (p && p < w->end && *p == '"') {
        const char *key = p + 1, *key_end = skip_string(w, p);
        const char *value = expect(w, key_end, ':');
        if (value == NULL || value >= w->end)
            return NULL;
        key_end--;
        if (in_model && is_key(key, key_end, "vocab") && w->vocab == NULL) {
            w->vocab = value;
            p = w->vocab_end = *value == '[' ? read_scored_vocab(w, value) : read_vocab(w, value);
        } else if (in_model && is_key(key, key_end, "merges") && w->merges == NULL) {
            w->merges = value;
            p = w->merges_end = read_merges(w, value);
        } else if (!in_model && is_key(key, key_end, "model")) {
            p = read_members(w, value, 1);
        } else {
            p = skip_value(w, value);
        }
        p = p ? blank(w, p) : NULL;
        if (p == NULL || p >= w->end || (*p != ',' && *p != '}'))
            return NULL;
        if (*p == '}')
            return p + 1;
        p = blank(w, p + 1);
    }
    return NULL;
}

/* Copies the text with empty tables. */
static int cut(const walker *w, const char *json)
{
    const int merges_first = w->merges && w->merges < w->vocab;
    const char *const scored = w->out->scored ? "[]" : "{}";
    const char *const from[2] = {merges_first ? w->merges : w->vocab,
                                 merges_first ? w->vocab : w->merges};
    const char *const to[2] = {merges_first ? w->merges_end : w->vocab_end,
                               merges_first ? w->vocab_end : w->merges_end};
    const char *const empty[2] = {merges_first ? "[]" : scored, merges_first ? scored : "[]"};
    int64_t bytes = w->bytes + 4;
    for (int i = 0; i < 2 && from[i]; i++)
        bytes -= to[i] - from[i];
    char *rest = malloc((size_t)bytes + 1), *out = rest;
    if (rest == NULL)
        return 0;
    for (int i = 0; i < 2 && from[i]; i++) {
        memcpy(out, json, (size_t)(from[i] - json));
        out += from[i] - json;
        memcpy(out, empty[i], 2);
        out += 2;
        json = to[i];
    }
    memcpy(out, json, (size_t)(w->end - json));
    out += w->end - json;
    *out = 0;
    w->out->rest = rest;
    w->out->rest_bytes = out - rest;
    return 1;
}

int lathe__token_tables_read(const char *json, int64_t bytes, lathe_token_tables *out)
{
    walker w = {.end = json + bytes, .bytes = bytes, .out = out};
    memset(out, 0, sizeof *out);
    const char *p = read_members(&w, blank(&w, json), 0);
    out->end = w.end;
    return p && blank(&w, p) == w.end && w.vocab && cut(&w, json);
}

void lathe__token_tables_fini(lathe_token_tables *tables)
{
    free(tables->tokens);
    free(tables->merges);
    free(tables->unescaped);
    free(tables->rest);
    memset(tables, 0, sizeof *tables);
}

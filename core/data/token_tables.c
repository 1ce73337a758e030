/* model.vocab and model.merges out of a tokenizer.json's text, in one pass over it. Everything unusual
 * is left to the JSON reader: functions return NULL or 0 for it. */
#include "data/token_tables.h"

#include <stdlib.h>
#include <string.h>

#include "data/utf8.h"

typedef struct walker {
    const char *end; /* of the text, behind which there is a NUL or nothing is read */
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

/* Past `c`, and the blanks around it. */
static const char *expect(const walker *w, const char *p, char c)
{
    if (!p)
        return NULL;
    p = blank(w, p);
    return p < w->end && *p == c ? blank(w, p + 1) : NULL;
}

/* Past the string that begins at p, whatever is in it. */
static const char *skip_string(const walker *w, const char *p)
{
    for (p++; p < w->end && *p != '"'; p++)
        p += *p == '\\';
    return p < w->end ? p + 1 : NULL;
}

/* Past any value. */
static const char *skip_value(const walker *w, const char *p)
{
    int64_t depth = 0;
    do {
        if (p >= w->end)
            return NULL;
        if (*p == '"') {
            p = skip_string(w, p);
            if (!p)
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

static int hex4(const char *p, const char *end, int32_t *out)
{
    *out = 0;
    if (end - p < 4)
        return 0;
    for (int i = 0; i < 4; i++) {
        const char c = p[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return 0;
        *out = *out * 16 + digit;
    }
    return 1;
}

/* One escape at p (behind the backslash) into out; past it. */
static const char *unescape(const walker *w, const char *p, char **out)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (p >= w->end || !*p)
        return NULL;
    if (*p != 'u') {
        const char *at = strchr(letters, *p);
        if (!at)
            return NULL;
        *(*out)++ = values[at - letters];
        return p + 1;
    }
    int32_t c, low;
    if (!hex4(p + 1, w->end, &c))
        return NULL;
    p += 5;
    if (c >= 0xd800 && c < 0xdc00) {
        if (w->end - p < 6 || p[0] != '\\' || p[1] != 'u' || !hex4(p + 2, w->end, &low) ||
            low < 0xdc00 || low > 0xdfff)
            return NULL;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        p += 6;
    }
    if (c == 0 || (c >= 0xd800 && c <= 0xdfff))
        return NULL;
    *out += lathe_utf8_put((uint8_t *)*out, c);
    return p;
}

/* The string at p: its text and length; past it. */
static const char *read_string(walker *w, const char *p, const char **out, int32_t *out_n)
{
    uint8_t seen = 0;
    int64_t n;
    if (p >= w->end || *p != '"')
        return NULL;
    const char *begin = ++p;
    while (p < w->end && *p != '"' && *p != '\\' && (uint8_t)*p >= 0x20)
        seen |= (uint8_t)*p++;
    *out = begin;
    n = p - begin;
    if (p < w->end && *p == '\\') { /* from here on in memory of its own */
        lathe_token_tables *t = w->out;
        if (!t->unescaped && !(t->unescaped = malloc((size_t)w->bytes + 8)))
            return NULL;
        char *to = t->unescaped + t->n_unescaped;
        *out = to;
        memcpy(to, begin, (size_t)(p - begin));
        to += p - begin;
        while (p && p < w->end && *p != '"' && (uint8_t)*p >= 0x20) {
            seen |= (uint8_t)*p;
            if (*p == '\\')
                p = unescape(w, p + 1, &to);
            else
                *to++ = *p++;
        }
        n = to - *out;
        t->n_unescaped += n;
    }
    if (!p || p >= w->end || *p != '"')
        return NULL;
    if (n > 1 << 20 || (seen >= 0x80 && lathe_utf8_prefix((const uint8_t *)*out, n) != n))
        return NULL;
    *out_n = (int32_t)n;
    return p + 1;
}

/* A whole number below 2^24, as ids are. */
static const char *read_id(const walker *w, const char *p, int32_t *out)
{
    const char *begin = p;
    int32_t id = 0;
    while (p < w->end && *p >= '0' && *p <= '9' && p - begin < 8)
        id = id * 10 + (*p++ - '0');
    *out = id;
    const int plain = p > begin && (*begin != '0' || p == begin + 1) && id < 1 << 24;
    return plain && p < w->end && strchr(",} \n\r\t", *p) && *p ? p : NULL;
}

/* Room for one more element. */
static int grow(void **data, int64_t n, int64_t *capacity, size_t size)
{
    if (n < *capacity)
        return 1;
    const int64_t wanted = *capacity * 2 + 4096;
    void *grown = realloc(*data, (size_t)wanted * size);
    if (!grown)
        return 0;
    *data = grown;
    *capacity = wanted;
    return 1;
}

static const char *read_vocab(walker *w, const char *p)
{
    lathe_token_tables *t = w->out;
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
        p = p ? blank(w, p) : NULL;
        if (!p || p >= w->end || (*p != ',' && *p != '}'))
            return NULL;
        if (*p == '}')
            return p + 1;
        p = blank(w, p + 1);
    }
    return NULL;
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
    if (!space)
        return NULL;
    merge->n_left = (int32_t)(space - merge->left);
    merge->right = space + 1;
    merge->n_right = n - merge->n_left - 1;
    return memchr(merge->right, ' ', (size_t)merge->n_right) ? NULL : p;
}

static const char *read_merges(walker *w, const char *p)
{
    lathe_token_tables *t = w->out;
    p = expect(w, p, '[');
    if (p && p < w->end && *p == ']')
        return p + 1;
    while (p && p < w->end) {
        void *merges = t->merges;
        if (!grow(&merges, t->n_merges, &t->merge_capacity, sizeof *t->merges))
            return NULL;
        t->merges = merges;
        p = read_merge(w, p, &t->merges[t->n_merges++]);
        p = p ? blank(w, p) : NULL;
        if (!p || p >= w->end || (*p != ',' && *p != ']'))
            return NULL;
        if (*p == ']')
            return p + 1;
        p = blank(w, p + 1);
    }
    return NULL;
}

static int is_key(const char *p, const char *end, const char *key)
{
    return p + strlen(key) == end && !memcmp(p, key, strlen(key));
}

/* An object's members: model's (in_model) or the file's. */
static const char *read_members(walker *w, const char *p, int in_model)
{
    p = expect(w, p, '{');
    while (p && p < w->end && *p == '"') {
        const char *key = p + 1, *key_end = skip_string(w, p);
        const char *value = expect(w, key_end, ':');
        if (!value || value >= w->end)
            return NULL;
        key_end--;
        if (in_model && is_key(key, key_end, "vocab") && !w->vocab) {
            w->vocab = value;
            p = w->vocab_end = read_vocab(w, value);
        } else if (in_model && is_key(key, key_end, "merges") && !w->merges) {
            w->merges = value;
            p = w->merges_end = read_merges(w, value);
        } else if (!in_model && is_key(key, key_end, "model")) {
            p = read_members(w, value, 1);
        } else {
            p = skip_value(w, value);
        }
        p = p ? blank(w, p) : NULL;
        if (!p || p >= w->end || (*p != ',' && *p != '}'))
            return NULL;
        if (*p == '}')
            return p + 1;
        p = blank(w, p + 1);
    }
    return NULL;
}

/* The text without the two tables. */
static int cut(const walker *w, const char *json)
{
    const int merges_first = w->merges < w->vocab;
    const char *first = merges_first ? w->merges : w->vocab;
    const char *first_end = merges_first ? w->merges_end : w->vocab_end;
    const char *second = merges_first ? w->vocab : w->merges;
    const char *second_end = merges_first ? w->vocab_end : w->merges_end;
    const size_t a = (size_t)(first - json), b = (size_t)(second - first_end);
    const size_t c = (size_t)(w->end - second_end);
    char *rest = malloc(a + b + c + 5);
    if (!rest)
        return 0;
    memcpy(rest, json, a);
    memcpy(rest + a, merges_first ? "[]" : "{}", 2);
    memcpy(rest + a + 2, first_end, b);
    memcpy(rest + a + 2 + b, merges_first ? "{}" : "[]", 2);
    memcpy(rest + a + b + 4, second_end, c);
    rest[a + b + c + 4] = 0;
    w->out->rest = rest;
    w->out->rest_bytes = (int64_t)(a + b + c + 4);
    return 1;
}

int lathe__token_tables_read(const char *json, int64_t bytes, lathe_token_tables *out)
{
    walker w = {.end = json + bytes, .bytes = bytes, .out = out};
    memset(out, 0, sizeof *out);
    const char *p = read_members(&w, blank(&w, json), 0);
    return p && blank(&w, p) == w.end && w.vocab && w.merges && cut(&w, json);
}

void lathe__token_tables_fini(lathe_token_tables *tables)
{
    free(tables->tokens);
    free(tables->merges);
    free(tables->unescaped);
    free(tables->rest);
    memset(tables, 0, sizeof *tables);
}

/* Reads byte strings by rank. */
#include "files/vocab/byte_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/json/json.h"
#include "base/utf8.h"

/* Bytes of the longest token, as for the pieces of SentencePiece; the files of published models
 * have at most some 300. */
enum { MAX_TOKEN = 1024, MAX_TOKENS = 1 << 24, MAX_BASE64 = (MAX_TOKEN + 2) / 3 * 4 };

/* Decodes a token's base64 into the arena. */
static lathe_status decode(lathe_arena *arena, const char *place, int64_t where, const char *base64,
                           int64_t n, lathe_list_token *out)
{
    uint8_t bytes[MAX_BASE64];
    const int64_t n_bytes = n <= MAX_BASE64 ? lathe_base64_decode(base64, n, bytes) : -1;
    if (n_bytes <= 0 || n_bytes > MAX_TOKEN)
        return lathe_error(LATHE_E_PARSE, "%s: token %lld is not base64 of 1 to %d bytes", place,
                           (long long)where, MAX_TOKEN);
    out->text = lathe_arena_strndup(arena, (const char *)bytes, n_bytes);
    out->n = (int32_t)n_bytes;
    out->is_merged = 1;
    return out->text ? LATHE_OK : LATHE_E_NOMEM;
}

/* ---- tiktoken ---- */

typedef struct line {
    const char *base64;
    int64_t n, rank; /* rank -1: the line is wrong */
} line;

/* Reads the line at *at and moves it to the next one. */
static line read_line(const char **at, const char *end)
{
    const char *p = *at, *stop = memchr(p, '\n', (size_t)(end - p));
    line out = {p, 0, -1};
    if (stop == NULL)
        stop = end;
    *at = stop < end ? stop + 1 : end;
    if (stop > p && stop[-1] == '\r')
        stop--;
    while (p < stop && *p != ' ')
        p++;
    out.n = p - out.base64;
    int64_t rank = 0, digits = 0;
    for (p += p < stop; p < stop && *p >= '0' && *p <= '9' && digits < 9; p++, digits++)
        rank = rank * 10 + (*p - '0');
    if (p == stop && digits > 0 && out.n > 0)
        out.rank = rank;
    return out;
}

int32_t lathe_is_tiktoken(const char *text, int64_t n)
{
    const char *at = text;
    uint8_t bytes[MAX_BASE64];
    const line first = read_line(&at, text + n);
    return first.rank >= 0 && first.n <= MAX_BASE64 &&
           lathe_base64_decode(first.base64, first.n, bytes) > 0;
}

lathe_status lathe_tiktoken_read(const char *place, const char *text, int64_t n, lathe_arena *arena,
                                 lathe_byte_ranks *out)
{
    const char *const end = text + n;
    int64_t n_tokens = 0, number = 0;
    *out = (lathe_byte_ranks){.n_special = 0};
    for (const char *at = text; at < end;)
        n_tokens += read_line(&at, end).n > 0;
    if (n_tokens == 0 || n_tokens > MAX_TOKENS)
        return lathe_error(LATHE_E_PARSE, "%s: %lld tokens; expected 1 to 2^24", place,
                           (long long)n_tokens);
    LATHE_TRY(lathe_token_list_create(n_tokens, &out->list));
    for (const char *at = text; at < end;) {
        const char *const begin = at;
        const line l = read_line(&at, end);
        number++;
        if (l.n == 0 && l.rank < 0 && (at == begin + 1 || (at == begin + 2 && *begin == '\r')))
            continue; /* an empty line */
        if (l.rank < 0 || l.rank >= n_tokens || out->list.tokens[l.rank].text != NULL)
            return lathe_error_in(
                LATHE_E_PARSE, place, number, 1,
                "expected a token in base64, a space and a rank of its own from 0 "
                "to %lld",
                (long long)n_tokens - 1);
        LATHE_TRY(decode(arena, place, l.rank, l.base64, l.n, &out->list.tokens[l.rank]));
    }
    return LATHE_OK;
}

/* ---- tekken ---- */

static lathe_status expected(const char *place, const char *key, const char *what)
{
    return lathe_error(LATHE_E_PARSE, "%s: %s: expected %s", place, key, what);
}

/* A count of config; missing or null: `missing`. */
static lathe_status read_count(const char *place, const json_t *config, const char *key,
                               int64_t missing, int64_t *out)
{
    const json_t *value = json_object_get(config, key);
    *out = missing;
    if (value == NULL || json_is_null(value))
        return LATHE_OK;
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0 && *out <= MAX_TOKENS)
        return LATHE_OK;
    return lathe_error(LATHE_E_PARSE, "%s: config.%s: expected a count of at most 2^24", place,
                       key);
}

/* The texts of the special tokens: those of the list by rank, then "<SPECIAL_7>" for the ids that
 * have none. */
static lathe_status read_special(const char *place, const json_t *root, lathe_arena *arena,
                                 lathe_byte_ranks *out)
{
    const json_t *list = json_object_get(root, "special_tokens"), *one;
    const int64_t n = (int64_t)json_array_size(list);
    size_t i;
    if (list == NULL || json_is_null(list))
        return lathe_error(
            LATHE_E_UNSUPPORTED,
            "%s: special_tokens is missing, as in the first files of this kind; "
            "expected a file of version v7 or later, or a tokenizer.json beside it "
            "(AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) of transformers makes one)",
            place);
    if (!json_is_array(list))
        return expected(place, "special_tokens", "a list");
    LATHE_TRY(read_count(place, json_object_get(root, "config"), "default_num_special_tokens", n,
                         &out->n_special));
    if (out->n_special < n)
        return expected(place, "config.default_num_special_tokens",
                        "the number of special_tokens or more");
    if (out->n_special - n > LATHE_MAX_MADE_NAMES)
        return expected(place, "config.default_num_special_tokens",
                        "at most 65536 more than special_tokens");
    out->special = lathe_arena_alloc(arena, (out->n_special + 1) * (int64_t)sizeof *out->special);
    if (out->special == NULL)
        return LATHE_E_NOMEM;
    memset(out->special, 0, (size_t)(out->n_special + 1) * sizeof *out->special);
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        const json_t *rank = json_object_get(one, "rank"),
                     *text = json_object_get(one, "token_str");
        const int64_t at = json_is_integer(rank) ? json_integer_value(rank) : -1;
        if (at < 0 || at >= n || out->special[at] != NULL || json_string_length(text) == 0)
            return lathe_error(LATHE_E_PARSE,
                               "%s: special_tokens[%zu]: expected token_str and a rank of its own "
                               "from 0 to %lld",
                               place, i, (long long)n - 1);
        out->special[at] = lathe_arena_strdup(arena, json_string_value(text));
        if (out->special[at] == NULL)
            return LATHE_E_NOMEM;
    }
    for (int64_t k = n; k < out->n_special; k++)
        if ((out->special[k] = lathe_arena_printf(arena, "<SPECIAL_%lld>", (long long)k)) == NULL)
            return LATHE_E_NOMEM;
    return LATHE_OK;
}

static lathe_status read_tree(const char *place, const json_t *root, lathe_arena *arena,
                              lathe_byte_ranks *out)
{
    const json_t *config = json_object_get(root, "config"), *vocab = json_object_get(root, "vocab");
    const char *pattern = json_string_value(json_object_get(config, "pattern"));
    int64_t n = (int64_t)json_array_size(vocab), all = 0;
    if (pattern == NULL)
        return expected(place, "config.pattern", "an expression");
    if (!json_is_array(vocab) || n == 0)
        return expected(place, "vocab", "a list of tokens");
    LATHE_TRY(read_special(place, root, arena, out));
    LATHE_TRY(read_count(place, config, "default_vocab_size", n + out->n_special, &all));
    if (all <= out->n_special)
        return expected(place, "config.default_vocab_size", "more than the special tokens");
    n = all - out->n_special < n ? all - out->n_special : n;
    out->pattern = lathe_arena_strdup(arena, pattern);
    if (out->pattern == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_token_list_create(n, &out->list));
    for (int64_t i = 0; i < n; i++) {
        const json_t *base64 = json_object_get(json_array_get(vocab, (size_t)i), "token_bytes");
        if (!json_is_string(base64))
            return lathe_error(LATHE_E_PARSE, "%s: vocab[%lld].token_bytes: expected base64", place,
                               (long long)i);
        LATHE_TRY(decode(arena, place, i, json_string_value(base64),
                         (int64_t)json_string_length(base64), &out->list.tokens[i]));
    }
    return LATHE_OK;
}

lathe_status lathe_tekken_read(const char *place, const char *text, int64_t n, lathe_arena *arena,
                               lathe_byte_ranks *out)
{
    json_t *root = NULL;
    *out = (lathe_byte_ranks){.n_special = 0};
    LATHE_TRY(lathe_json_load(place, text, n, &root));
    const lathe_status status = read_tree(place, root, arena, out);
    json_decref(root);
    return status;
}

void lathe_byte_ranks_fini(lathe_byte_ranks *ranks)
{
    lathe_token_list_fini(&ranks->list);
    *ranks = (lathe_byte_ranks){.n_special = 0};
}

/* Scores for the tokens of a SentencePiece tokenizer, from the merges of its tokenizer.json.
 *
 * llama.cpp joins the two neighbours whose token has the highest score. That is what the merges do
 * if every way to put a token together is among them, and those of one token follow each other: the
 * token's score is then minus its place among the results.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "files/gguf/gguf_vocab.h"
#include "model/convert/gguf_tokenizer_write.h"
#include "tokenizer/encode/tokenizer_model.h"

static const char space[] = "\342\226\201"; /* U+2581 */

typedef struct scorer {
    const char *folder;
    const lathe_token_tables *t;
    const lathe_tokenizer *tok;
    float *scores; /* [n] */
    int32_t *of;   /* [n] index in the table of the token with that id; -1: none */
    uint8_t *has;  /* [n] 1: the score is set */
    int64_t n, n_scored;
    int64_t n_ways; /* merges of tokens that stand for text */
} scorer;

static int is_type(const json_t *node, const char *type)
{
    const char *seen = json_string_value(json_object_get(node, "type"));
    return seen != NULL && strcmp(seen, type) == 0;
}

static int is_text(const json_t *node, const char *key, const char *text)
{
    const char *seen = json_string_value(json_object_get(node, key));
    return seen != NULL && strcmp(seen, text) == 0;
}

int lathe__gguf_is_spm(const json_t *rest)
{
    const json_t *model = json_object_get(rest, "model");
    return json_is_true(json_object_get(model, "byte_fallback"));
}

int32_t lathe__gguf_spm_type(const char *text, int64_t bytes)
{
    return bytes == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' ? LATHE_GGUF_BYTE
                                                                       : LATHE_GGUF_NORMAL;
}

/* ---- the steps before BPE ---- */

/* Replaces every space. */
static int is_replace(const json_t *node)
{
    return is_type(node, "Replace") && is_text(json_object_get(node, "pattern"), "String", " ") &&
           is_text(node, "content", space);
}

/* 1 or 0: a space is put before a text, or not; -1: the normalizer is another one. */
static int normalizer_prefix(const json_t *node)
{
    const json_t *list = json_object_get(node, "normalizers");
    const json_t *first = json_array_get(list, 0);
    if (is_replace(node) || (json_array_size(list) == 1 && is_replace(first)))
        return 0;
    return json_array_size(list) == 2 && is_type(first, "Prepend") &&
                   is_text(first, "prepend", space) && is_replace(json_array_get(list, 1))
               ? 1
               : -1;
}

/* Like normalizer_prefix, for a Metaspace that does not split. */
static int metaspace_prefix(const json_t *node)
{
    const char *scheme = json_string_value(json_object_get(node, "prepend_scheme"));
    if (!is_type(node, "Metaspace") || !is_text(node, "replacement", space) ||
        !json_is_false(json_object_get(node, "split")))
        return -1;
    return scheme == NULL || strcmp(scheme, "never") != 0;
}

static lathe_status read_steps(const char *folder, const json_t *rest, int32_t *out_prefix)
{
    const json_t *normalizer = json_object_get(rest, "normalizer");
    const json_t *pre = json_object_get(rest, "pre_tokenizer");
    const int no_normalizer = normalizer == NULL || json_is_null(normalizer);
    const int no_pre = pre == NULL || json_is_null(pre) ||
                       (is_type(pre, "Split") && /* finds no space after the normalizer */
                        is_text(json_object_get(pre, "pattern"), "String", " "));
    const int prefix = no_normalizer ? metaspace_prefix(pre)
                       : no_pre      ? normalizer_prefix(normalizer)
                                     : -1;
    if (prefix < 0)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s/tokenizer.json: llama.cpp has no form for this normalizer and "
                           "pre_tokenizer of BPE with byte_fallback; expected those of Llama 2 or "
                           "Gemma, or Metaspace that does not split",
                           folder);
    if (is_text(pre, "prepend_scheme", "first"))
        lathe_log(LATHE_LOG_WARN,
                  "%s/tokenizer.json puts a space before a text only at its beginning; llama.cpp "
                  "also does so after a special token",
                  folder);
    *out_prefix = prefix;
    return LATHE_OK;
}

/* ---- scores ---- */

/* The id of a text, or -1. */
static int32_t id_of(const scorer *s, const char *left, int32_t n_left, const char *right,
                     int32_t n_right)
{
    char text[1024];
    if (n_left + n_right > (int32_t)sizeof text)
        return -1;
    memcpy(text, left, (size_t)n_left);
    if (n_right > 0)
        memcpy(text + n_left, right, (size_t)n_right);
    const int32_t id = lathe_tokenizer_id(s->tok, text, n_left + n_right);
    return id >= 0 && id < s->n && s->of[id] >= 0 ? id : -1;
}

static int stands_for_text(const scorer *s, int32_t id)
{
    const lathe_added_token *added = lathe__added_of(s->tok, id);
    return added == NULL || !added->special;
}

static lathe_status refuse_order(const scorer *s, const char *text, int32_t n)
{
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "%s/tokenizer.json: the merges of the token \"%.*s\" are not those of a "
                       "SentencePiece model, so llama.cpp would split text in another way",
                       s->folder, (int)n, text);
}

/* Scores by the order of merges. */
static lathe_status score_merges(scorer *s)
{
    int32_t last = -1;
    for (int64_t i = 0; i < s->t->n_merges; i++) {
        const lathe_table_merge *m = &s->t->merges[i];
        const int32_t id = id_of(s, m->left, m->n_left, m->right, m->n_right);
        if (id < 0)
            return refuse_order(s, m->left, m->n_left);
        if (!stands_for_text(s, id))
            continue;
        s->n_ways++;
        if (id == last)
            continue;
        if (s->has[id])
            return refuse_order(s, s->t->tokens[s->of[id]].text, s->t->tokens[s->of[id]].n);
        s->scores[id] = -(float)s->n_scored++;
        s->has[id] = 1;
        last = id;
    }
    return LATHE_OK;
}

/* Counts the ways to put tokens together: each must be a merge. */
static lathe_status check_ways(const scorer *s)
{
    int64_t n = 0;
    for (int32_t id = 0; id < s->n; id++) {
        if (s->of[id] < 0 || !stands_for_text(s, id))
            continue;
        const lathe_table_token *t = &s->t->tokens[s->of[id]];
        for (int32_t k = 1; k < t->n; k++) {
            if (((uint8_t)t->text[k] & 0xc0) == 0x80)
                continue;
            const int32_t left = id_of(s, t->text, k, NULL, 0);
            const int32_t right = left >= 0 ? id_of(s, t->text + k, t->n - k, NULL, 0) : -1;
            if (right < 0 || !stands_for_text(s, left) || !stands_for_text(s, right))
                continue;
            if (!s->has[id])
                return refuse_order(s, t->text, t->n);
            n++;
        }
    }
    if (n == s->n_ways)
        return LATHE_OK;
    return lathe_error(
        LATHE_E_UNSUPPORTED,
        "%s/tokenizer.json: %lld merges for %lld ways to put tokens together: it was "
        "not made from a SentencePiece model, so llama.cpp would split text in "
        "another way",
        s->folder, (long long)s->n_ways, (long long)n);
}

/* Characters and other tokens without merges come last; special and byte tokens get 0, as in a
 * SentencePiece model. */
static void score_rest(scorer *s)
{
    for (int32_t id = 0; id < s->n; id++) {
        if (s->has[id] || s->of[id] < 0 || !stands_for_text(s, id))
            continue;
        const lathe_table_token *t = &s->t->tokens[s->of[id]];
        if (lathe__gguf_spm_type(t->text, t->n) == LATHE_GGUF_NORMAL)
            s->scores[id] = -(float)s->n_scored++;
    }
}

static lathe_status score(scorer *s)
{
    for (int64_t id = 0; id < s->n; id++) {
        s->of[id] = -1;
        s->scores[id] = 0.0f;
    }
    for (int64_t i = 0; i < s->t->n_tokens; i++)
        if (s->t->tokens[i].id >= 0 && s->t->tokens[i].id < s->n)
            s->of[s->t->tokens[i].id] = (int32_t)i;
    LATHE_TRY(score_merges(s));
    LATHE_TRY(check_ways(s));
    score_rest(s);
    return LATHE_OK;
}

lathe_status lathe__gguf_spm_scores(const char *folder, const json_t *rest,
                                    const lathe_token_tables *t, const lathe_tokenizer *tok,
                                    int64_t n, float *scores, int32_t *out_space_prefix)
{
    scorer s = {.folder = folder, .t = t, .tok = tok, .scores = scores, .n = n};
    LATHE_TRY(read_steps(folder, rest, out_space_prefix));
    s.of = malloc((size_t)(n + 1) * sizeof *s.of);
    s.has = calloc((size_t)n + 1, 1);
    const lathe_status status = s.of != NULL && s.has != NULL
                                    ? score(&s)
                                    : lathe_error(LATHE_E_NOMEM, "no memory for a vocabulary");
    free(s.of);
    free(s.has);
    return status;
}

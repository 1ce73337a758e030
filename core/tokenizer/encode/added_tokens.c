/* Finds added tokens in a text, leftmost and then longest first, with Hugging Face's rules for
 * whole words and for the spaces around a token. */
#include "tokenizer/encode/added_tokens.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode/char_class.h"

static lathe_status new_node(lathe_trie *trie, uint8_t byte, int32_t *out)
{
    if (trie->n == trie->capacity) {
        const int64_t capacity = trie->capacity ? trie->capacity * 2 : 64;
        lathe_trie_node *nodes = realloc(trie->nodes, (size_t)capacity * sizeof *nodes);
        if (nodes == NULL)
            return lathe_error(LATHE_E_NOMEM, "added tokens");
        trie->nodes = nodes;
        trie->capacity = capacity;
    }
    trie->nodes[trie->n] = (lathe_trie_node){0, 0, -1, byte};
    *out = (int32_t)trie->n++;
    return LATHE_OK;
}

static int32_t child_of(const lathe_trie *trie, int32_t node, uint8_t byte)
{
    int32_t child = trie->nodes[node].child;
    while (child && trie->nodes[child].byte != byte)
        child = trie->nodes[child].sibling;
    return child;
}

lathe_status lathe__trie_put(lathe_trie *trie, const char *text, int64_t n, int32_t token)
{
    int32_t node = 0, child;
    if (!trie->n)
        LATHE_TRY(new_node(trie, 0, &node));
    for (int64_t i = 0; i < n; i++, node = child) {
        const uint8_t byte = (uint8_t)text[i];
        child = child_of(trie, node, byte);
        if (child)
            continue;
        LATHE_TRY(new_node(trie, byte, &child));
        trie->nodes[child].sibling = trie->nodes[node].child;
        trie->nodes[node].child = child;
        if (node == 0)
            trie->first[byte] = child;
    }
    if (n > 0 && (trie->nodes[node].token < 0 || token < 0))
        trie->nodes[node].token = token;
    return LATHE_OK;
}

/* Returns the length of the longest string of the trie at text[0], 0 for none. */
static int64_t longest(const lathe_trie *trie, const uint8_t *text, int64_t n, int32_t *token)
{
    int64_t best = 0;
    int32_t node = trie->first[text[0]];
    for (int64_t i = 1; node; i++) {
        if (trie->nodes[node].token >= 0) {
            best = i;
            *token = trie->nodes[node].token;
        }
        if (i == n)
            break;
        node = child_of(trie, node, text[i]);
    }
    return best;
}

/* \w of UTS #18: letters and other alphabetic characters, marks, decimal digits, connectors,
 * joiners. utf8proc has no Alphabetic property, which is L, M, Nl and the circled and squared
 * letters. */
static int is_word(int32_t c)
{
    if (c >= 0 && c < LATHE_CHAR_CLASSED && lathe__char_classes()[c] == LATHE_CHAR_LETTER)
        return 1;
    switch (c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return 1;
    default:
        return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
               (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
               (c >= 0x1f170 && c <= 0x1f189);
    }
}

/* Returns the start of the character that ends at text[at). */
static int64_t step_back(const uint8_t *text, int64_t at)
{
    int64_t begin = at - 1;
    while (begin > 0 && at - begin < 4 && (text[begin] & 0xc0) == 0x80)
        begin--;
    return begin;
}

static int ends_with_word(const uint8_t *text, int64_t n)
{
    int32_t len;
    const int64_t begin = step_back(text, n);
    return is_word(lathe_utf8_at(text + begin, n - begin, &len));
}

static int64_t strip_left(const uint8_t *text, int64_t at, int64_t stop)
{
    while (at > stop) {
        int32_t len;
        const int64_t begin = step_back(text, at);
        if (begin < stop || !lathe_is_space(lathe_utf8_at(text + begin, at - begin, &len)))
            break;
        at = begin;
    }
    return at;
}

static int64_t strip_right(const uint8_t *text, int64_t at, int64_t n)
{
    int32_t len;
    while (at < n && lathe_is_space(lathe_utf8_at(text + at, n - at, &len)))
        at += len;
    return at;
}

/* strip_right that remembers the last run of spaces, so that no run is read twice. */
static int64_t end_of_spaces(lathe_added_cursor *cursor, const uint8_t *text, int64_t at, int64_t n)
{
    if (at < cursor->spaces_begin || at > cursor->spaces_end) {
        cursor->spaces_begin = at;
        cursor->spaces_end = strip_right(text, at, n);
    }
    return cursor->spaces_end;
}

static int has_place(const lathe_token_places *places, int64_t at)
{
    int64_t low = 0, high = places->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (places->at[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < places->n && places->at[low] == at;
}

int lathe__added_find(const lathe_added_token *tokens, const lathe_trie *trie, const uint8_t *text,
                      int64_t n, lathe_added_cursor *cursor, int64_t covered,
                      lathe_added_match *out)
{
    if (!trie->n)
        return 0;
    for (int64_t i = cursor->at; i < n;) {
        int32_t token = -1;
        const int64_t bytes = trie->first[text[i]] ? longest(trie, text + i, n - i, &token) : 0;
        if (!bytes) {
            i++;
            continue;
        }
        const lathe_added_token *added = &tokens[token];
        const int64_t begin = i, end = i + bytes;
        if (added->special && cursor->places && !has_place(cursor->places, begin)) {
            i++;
            continue;
        }
        i = end;
        int32_t len;
        if (added->single_word && ((begin > 0 && ends_with_word(text, begin)) ||
                                   (end < n && is_word(lathe_utf8_at(text + end, n - end, &len)))))
            continue;
        out->begin = !added->lstrip    ? begin
                     : begin > covered ? strip_left(text, begin, covered)
                                       : covered;
        out->end = added->rstrip ? end_of_spaces(cursor, text, end, n) : end;
        if (out->begin >= out->end) /* the match before has stripped all of it */
            continue;
        out->token = token;
        cursor->at = end;
        return 1;
    }
    return 0;
}

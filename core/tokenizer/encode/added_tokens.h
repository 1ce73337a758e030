/* Added tokens: strings that are tokens by themselves, found in a text before it is split. */
#ifndef LATHE_TOKENIZER_ADDED_TOKENS_H
#define LATHE_TOKENIZER_ADDED_TOKENS_H

#include <stdint.h>

#include "lathe/status.h"

typedef struct lathe_added_token {
    char *content; /* the string to find; normalized if `normalized` is 1 */
    int64_t bytes;
    int32_t id;
    int8_t special, normalized, lstrip, rstrip, single_word;
} lathe_added_token;

typedef struct lathe_trie_node {
    int32_t child, sibling; /* 0: none */
    int32_t token;          /* index of the added token that ends here, -1: none */
    uint8_t byte;
} lathe_trie_node;

/** Finds many strings at once, leftmost and then longest first. All zeros is empty. */
typedef struct lathe_trie {
    lathe_trie_node *nodes; /* [0] is the root */
    int64_t n, capacity;
    int32_t first[256]; /* child of the root by byte, 0: none */
} lathe_trie;

/** The first token of a text stays; token -1 takes it out. */
lathe_status lathe__trie_put(lathe_trie *trie, const char *text, int64_t n, int32_t token);

typedef struct lathe_added_match {
    int64_t begin, end; /* includes the spaces that the token strips */
    int32_t token;      /* index of the added token */
} lathe_added_match;

/** The places where a special token may begin, in ascending order. */
typedef struct lathe_token_places {
    const int64_t *at;
    int64_t n;
} lathe_token_places;

/** The position of a search. All zeros at first. */
typedef struct lathe_added_cursor {
    int64_t at;
    int64_t spaces_begin, spaces_end; /* the last run of spaces that was read */
    const lathe_token_places *places; /* special tokens elsewhere are text; NULL: they may begin
                                         anywhere */
} lathe_added_cursor;

/** Finds the next added token in text[cursor->at, n); returns 0 if there is none. `tokens` are the
 *  added tokens that the trie numbers. Moves the cursor to the end of the token, but not past the
 *  spaces that it strips: they are searched again, as in Hugging Face's library, so that a match
 *  may begin before `covered`, the end of the match before. All calls together take time linear in
 *  the text, times the length of the longest added token. */
int lathe__added_find(const lathe_added_token *tokens, const lathe_trie *trie, const uint8_t *text,
                      int64_t n, lathe_added_cursor *cursor, int64_t covered,
                      lathe_added_match *out);

#endif

/* The tokens of a vocabulary in another form than tokenizer.json, found by their text, and the
 * merges that put them together. */
#ifndef LATHE_FILES_TOKEN_LIST_H
#define LATHE_FILES_TOKEN_LIST_H

#include "base/buffer.h"

typedef struct lathe_list_token {
    const char *text; /* n bytes, borrowed: UTF-8, or any bytes in a list of bytes */
    int32_t n;
    int32_t is_merged; /* 1: other tokens make it, and it makes others */
    float score;
} lathe_list_token;

typedef struct lathe_token_list {
    lathe_list_token *tokens; /* [n] by id */
    int64_t n;
    int32_t *slots; /* [mask + 1] ids by hash of the text; -1: free */
    uint64_t mask;
} lathe_token_list;

/** Makes room for n tokens, all zeros. */
lathe_status lathe_token_list_create(int64_t n, lathe_token_list *out);
/** Indexes the tokens; call it when they are there. If several have one text, the last one counts,
 * as in a dictionary of Python. only_merged 1: those that have is_merged. */
lathe_status lathe_token_list_index(lathe_token_list *list, int only_merged);
/** The id of an indexed token; -1: there is none. */
int32_t lathe_token_list_find(const lathe_token_list *list, const char *text, int64_t n);
void lathe_token_list_fini(lathe_token_list *list);

/** The order of the tokens by which merges are ranked, and that of the ways to make one token. */
enum {
    LATHE_MERGES_BY_ID = 0,    /* by id; the ways by their place of cutting */
    LATHE_MERGES_BY_SCORE = 1, /* by falling score, then id; the ways by their place of cutting */
    LATHE_MERGES_OF_BYTES = 2  /* by id; the ways by the ids of their parts; between any bytes */
};

/** Appends the merges as elements of a JSON list: every way to put an indexed token together from
 * two indexed ones. Takes time O(sum of the squares of the tokens' lengths). */
lathe_status lathe_token_list_merges(const lathe_token_list *list, int32_t order,
                                     lathe_buffer *out);
/** Appends the text of a token as a JSON string; of_bytes 1: in the byte-level alphabet. */
void lathe_token_list_put(lathe_buffer *out, const char *text, int64_t n, int of_bytes);

#endif

/* The two large tables of a tokenizer.json, model.vocab and model.merges, read without a tree of
 * JSON values: what takes most of the time of loading a large vocabulary. */
#ifndef LATHE_TOKENJSON_TOKEN_TABLES_H
#define LATHE_TOKENJSON_TOKEN_TABLES_H

#include "lathe/status.h"

typedef struct lathe_table_token {
    const char *text; /* n bytes of UTF-8, borrowed from the file's text or from `unescaped` */
    int32_t n, id;
} lathe_table_token;

typedef struct lathe_table_merge {
    const char *left, *right;
    int32_t n_left, n_right;
} lathe_table_merge;

typedef struct lathe_token_tables {
    lathe_table_token *tokens;
    lathe_table_merge *merges;
    int64_t n_tokens, n_merges, token_capacity, merge_capacity;
    char *unescaped; /* texts that the file writes with escapes */
    int64_t n_unescaped;
    char *rest; /* the file's text with nothing in model.vocab and model.merges */
    int64_t rest_bytes;
    const char *scored,
        *end; /* Unigram: where its list's first token stands, else NULL; the text's end */
    int64_t n_scored, longest_escaped;
} lathe_token_tables;

/** Reads the tables of a BPE model, or finds the list of a Unigram model. 1: all went well; 0:
 *  something is not as usual, or wrong, or memory is out: who asks reads the file in the ordinary
 *  way, which tells what. Nothing but the two tables is checked: that is for the reader of `rest`.
 *  lathe__token_tables_fini in either case. */
int lathe__token_tables_read(const char *json, int64_t bytes, lathe_token_tables *out);
/** The token of a Unigram's list at `at`, first `scored`: its text (in `unescaped`, with room for
 *  longest_escaped bytes, when it has escapes) and its score. Returns where the next one stands;
 *  NULL when the text has changed since it was read. */
const char *lathe__token_tables_scored(const lathe_token_tables *tables, const char *at,
                                       char *unescaped, const char **out_text, int32_t *out_n,
                                       double *out_score);
void lathe__token_tables_fini(lathe_token_tables *tables);

#endif

/* Reads the two large tables of a tokenizer.json, model.vocab and model.merges, without a tree of
 * JSON values, which would take most of the time of loading a large vocabulary. */
#ifndef LATHE_TOKENIZER_TOKEN_TABLES_H
#define LATHE_TOKENIZER_TOKEN_TABLES_H

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
    char *unescaped; /* texts that have escapes in the file */
    int64_t n_unescaped;
    char *rest; /* the text of the file with model.vocab and model.merges empty */
    int64_t rest_bytes;
    const char *scored; /* Unigram: the first token of its list, else NULL */
    const char *end;    /* end of the text */
    int64_t n_scored, longest_escaped;
} lathe_token_tables;

/** Reads the tables of a BPE model, or finds the list of a Unigram model. Returns 1 on success; 0
 *  if the file is unusual or wrong, or memory runs out: the caller then reads the file as a JSON
 *  tree, which reports the error. Checks only the two tables; the reader of `rest` checks the rest.
 *  Call lathe__token_tables_fini in either case. */
int lathe__token_tables_read(const char *json, int64_t bytes, lathe_token_tables *out);
/** Reads the token of a Unigram's list at `at`, which is `scored` for the first one: its text (in
 *  `unescaped`, with room for longest_escaped bytes, if it has escapes) and its score. Returns the
 *  position of the next token; NULL if the text has changed since it was checked. */
const char *lathe__token_tables_scored(const lathe_token_tables *tables, const char *at,
                                       char *unescaped, const char **out_text, int32_t *out_n,
                                       double *out_score);
void lathe__token_tables_fini(lathe_token_tables *tables);

#endif

/* Rows of tokens and targets made from shards. */
#ifndef LATHE_DATA_LOADER_ROWS_H
#define LATHE_DATA_LOADER_ROWS_H

#include "data/shards.h"

/** One row of T tokens; what each array holds is told at lathe_batch. */
typedef struct lathe_row {
    int32_t *tokens, *targets, *positions, *doc_start;
    int64_t n_tokens; /* T */
} lathe_row;

/** Puts tokens [begin, begin + n) of the stream, of one document, at place `at` of the row. more:
 *  the document goes on, and its next token is the last one's target. Adds its targets to
 *  *n_target. */
lathe_status lathe__row_piece(const lathe_shards *shards, int64_t begin, int64_t n, int32_t more,
                              int64_t at, const lathe_row *row, int64_t *n_target);
/** Record k with its completion `which` (1 chosen, 2 rejected). */
lathe_status lathe__row_pair(const lathe_shards *shards, int64_t k, int32_t which,
                             const lathe_row *row, int64_t *n_target);
/** Tokens [from, T) become a document of eos without targets. */
void lathe__row_fill(const lathe_row *row, int64_t from, int32_t eos);

#endif

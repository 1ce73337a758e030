/* Makes rows of tokens and targets from shards. */
#ifndef LATHE_DATA_LOADER_ROWS_H
#define LATHE_DATA_LOADER_ROWS_H

#include "data/shards.h"

/** One row of T tokens; lathe_batch describes the arrays. */
typedef struct lathe_row {
    int32_t *tokens, *targets, *positions, *doc_start;
    int64_t n_tokens; /* T */
} lathe_row;

/** Writes tokens [begin, begin + n) of the stream, which belong to one document, to the row from
 *  place `at` on. more: the document continues, and its next token is the target of the last one.
 *  Adds the number of targets to *n_target. */
lathe_status lathe__row_piece(const lathe_shards *shards, int64_t begin, int64_t n, int32_t more,
                              int64_t at, const lathe_row *row, int64_t *n_target);
/** Writes record k with its completion `which` (1 chosen, 2 rejected). */
lathe_status lathe__row_pair(const lathe_shards *shards, int64_t k, int32_t which,
                             const lathe_row *row, int64_t *n_target);
/** Turns tokens [from, T) into a document of eos without targets. */
void lathe__row_fill(const lathe_row *row, int64_t from, int32_t eos);

#endif

/* Makes rows of tokens and targets from shards. */
#ifndef LATHE_DATA_LOADER_ROWS_H
#define LATHE_DATA_LOADER_ROWS_H

#include "data/rows/logprob_set.h"
#include "data/rows/shards.h"

/** One row of T tokens; lathe_batch describes the arrays. */
typedef struct lathe_row {
    int32_t *tokens, *targets, *positions, *doc_start;
    int32_t *key_end;                      /* NULL: the objective is causal */
    int64_t n_tokens;                      /* T */
    int32_t n_inputs;                      /* inputs of the stage that come from columns */
    float *inputs[LATHE_MAX_STAGE_INPUTS]; /* f32[T] of a column per token; NULL: another input */
    const lathe_logprob_set *stored;       /* a teacher's log-probabilities; NULL: none */
    int32_t top_k;
    int32_t *stored_ids;  /* i32[T, top_k]; NULL: not wanted */
    float *stored_values; /* f32[T, top_k + 1]; NULL: not wanted */
} lathe_row;

/** Writes tokens [begin, begin + n) of the stream, which belong to one document, to the row from
 *  place `at` on. more: the document continues, and its next token is the target of the last one.
 *  Adds the number of targets to *n_target. */
lathe_status lathe__row_piece(const lathe_shards *shards, int64_t begin, int64_t n, int32_t more,
                              int64_t at, const lathe_row *row, int64_t *n_target);
/** Writes the prompt of record k and, after it, the completion in segment `which`, which may be of
 *  another record. Adds the number of targets to *n_target. LATHE_E_IO: a file became shorter. */
lathe_status lathe__row_completion(const lathe_shards *shards, int64_t k, int64_t which,
                                   const lathe_row *row, int64_t *n_target);
/** Writes the prompt of record k, without targets. */
lathe_status lathe__row_prompt(const lathe_shards *shards, int64_t k, const lathe_row *row);
/** Writes the inputs of record k to tokens [from, to). */
void lathe__row_inputs(const lathe_shards *shards, int64_t k, int64_t from, int64_t to,
                       const lathe_row *row);
/** Turns tokens [from, T) into a document of eos without targets. */
void lathe__row_fill(const lathe_row *row, int64_t from, int32_t eos);

#endif

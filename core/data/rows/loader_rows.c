/* Fills rows: packed documents, and completions after their prompts. */
#include "data/rows/loader_rows.h"

#include <string.h>

#include "base/error.h"
#include "data/records/row_kind.h"

/* Moves stored entry `of` to token i; of -1: the token has none. */
static void put_entry(const lathe_row *row, int64_t i, int64_t of)
{
    const int64_t k = row->top_k;
    for (int64_t j = 0; row->stored_ids && j < k; j++)
        row->stored_ids[i * k + j] = of < 0 ? -1 : row->stored_ids[of * k + j];
    for (int64_t j = 0; row->stored_values && j <= k; j++)
        row->stored_values[i * (k + 1) + j] = of < 0 ? 0.0f : row->stored_values[of * (k + 1) + j];
}

void lathe__row_fill(const lathe_row *row, int64_t from, int32_t eos)
{
    for (int64_t i = from; i < row->n_tokens; i++) {
        row->tokens[i] = eos;
        row->targets[i] = -1;
        row->positions[i] = (int32_t)(i - from);
        row->doc_start[i] = (int32_t)from;
        if (row->key_end)
            row->key_end[i] = (int32_t)(i + 1);
    }
    for (int32_t i = 0; i < row->n_inputs; i++)
        if (row->inputs[i])
            memset(row->inputs[i] + from, 0, (size_t)(row->n_tokens - from) * sizeof(float));
    for (int64_t i = from; i < row->n_tokens; i++)
        put_entry(row, i, -1);
}

/* Writes the teacher's entries of record r to its targets among tokens [at, end): reads them to the
 * front of that range, and moves them to their places from the last one on. */
static lathe_status put_stored(const lathe_row *row, int64_t r, int64_t at, int64_t end)
{
    int64_t n = 0;
    for (int64_t i = at; i < end; i++)
        n += row->targets[i] >= 0;
    if (row->stored)
        LATHE_TRY(lathe_logprob_set_read(row->stored, r, n, row->stored_ids + at * row->top_k,
                                         row->stored_values + at * (row->top_k + 1)));
    for (int64_t i = end; i-- > at;)
        put_entry(row, i, row->targets[i] >= 0 && row->stored ? at + --n : -1);
    return LATHE_OK;
}

void lathe__row_inputs(const lathe_shards *shards, int64_t k, int64_t from, int64_t to,
                       const lathe_row *row)
{
    for (int32_t i = 0; i < row->n_inputs; i++) {
        const float value = (float)lathe_shards_input(shards, k, i);
        for (int64_t t = from; row->inputs[i] && t < to; t++)
            row->inputs[i][t] = value;
    }
}

/* Marks places [from, to) of the row as one document; it starts there or continues from the row
 * before. */
static void mark_document(const lathe_row *row, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        row->targets[i] = i + 1 < to ? row->tokens[i + 1] : -1;
        row->positions[i] = (int32_t)(i - from);
        row->doc_start[i] = (int32_t)from;
    }
}

lathe_status lathe__row_piece(const lathe_shards *shards, int64_t begin, int64_t n, int32_t more,
                              int64_t at, const lathe_row *row, int64_t *n_target)
{
    LATHE_TRY(lathe_shards_read(shards, begin, begin + n, row->tokens + at));
    mark_document(row, at, at + n);
    if (row->n_inputs > 0 && n > 0)
        lathe__row_inputs(shards, lathe_shards_find(shards, begin), at, at + n, row);
    if (more)
        LATHE_TRY(lathe_shards_read(shards, begin + n, begin + n + 1, &row->targets[at + n - 1]));
    if (!lathe_row_kind_get(lathe_shards_rows(shards))->is_masked) {
        *n_target += n - 1 + (more != 0);
        return LATHE_OK;
    }
    lathe_shards_mask(shards, begin + 1, begin + n + (more != 0), row->targets + at);
    for (int64_t i = at; i < at + n; i++)
        *n_target += row->targets[i] >= 0;
    return row->stored_ids && row->stored_values && n > 0
               ? put_stored(row, lathe_shards_find(shards, begin), at, at + n)
               : LATHE_OK;
}

lathe_status lathe__row_completion(const lathe_shards *shards, int64_t k, int64_t which,
                                   const lathe_row *row, int64_t *n_target)
{
    const int64_t first = lathe_row_kind_get(lathe_shards_rows(shards))->n_segments * k;
    const int64_t prompt = lathe_shards_offset(shards, first);
    const int64_t n_prompt = lathe_shards_offset(shards, first + 1) - prompt;
    const int64_t completion = lathe_shards_offset(shards, which);
    int64_t n = lathe_shards_offset(shards, which + 1) - completion;
    if (n_prompt < 0 || n <= 0) /* the file may be shorter than when its index was checked */
        LATHE_TRY(lathe_shards_check(shards));
    if (n_prompt < 0 || n < 0)
        return lathe_error(LATHE_E_IO, "the prepared data changed while it was read");
    if (n > row->n_tokens - n_prompt)
        n = row->n_tokens - n_prompt;
    LATHE_TRY(lathe_shards_read(shards, prompt, prompt + n_prompt, row->tokens));
    LATHE_TRY(lathe_shards_read(shards, completion, completion + n, row->tokens + n_prompt));
    mark_document(row, 0, n_prompt + n);
    for (int64_t i = 0; i + 1 < n_prompt; i++)
        row->targets[i] = -1;
    *n_target += n_prompt > 0 ? n : (n > 0 ? n - 1 : 0);
    lathe__row_fill(row, n_prompt + n, lathe_shards_eos(shards));
    return LATHE_OK;
}

lathe_status lathe__row_prompt(const lathe_shards *shards, int64_t k, const lathe_row *row)
{
    const int64_t begin = lathe_shards_offset(shards, k);
    int64_t n = lathe_shards_offset(shards, k + 1) - begin;
    if (n < 0) {
        LATHE_TRY(lathe_shards_check(shards));
        return lathe_error(LATHE_E_IO, "the prepared data changed while it was read");
    }
    n = n < row->n_tokens ? n : row->n_tokens;
    LATHE_TRY(lathe_shards_read(shards, begin, begin + n, row->tokens));
    mark_document(row, 0, n);
    for (int64_t i = 0; i < n; i++)
        row->targets[i] = -1;
    lathe__row_fill(row, n, lathe_shards_eos(shards));
    return LATHE_OK;
}

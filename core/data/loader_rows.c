/* Rows: documents packed and cut, and completions behind their prompts. */
#include "data/loader_rows.h"

int64_t lathe__rows_packed(const lathe_shards *shards, int64_t row_tokens)
{
    return (lathe_shards_tokens(shards) + row_tokens - 1) / row_tokens;
}

void lathe__row_fill(const lathe_row *row, int64_t from, int32_t eos)
{
    for (int64_t i = from; i < row->n_tokens; i++) {
        row->tokens[i] = eos;
        row->targets[i] = -1;
        row->positions[i] = (int32_t)(i - from);
        row->doc_start[i] = (int32_t)from;
    }
}

/* Places [from, to) of the row are one document from its start or the row's. */
static void mark_document(const lathe_row *row, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        row->targets[i] = i + 1 < to ? row->tokens[i + 1] : -1;
        row->positions[i] = (int32_t)(i - from);
        row->doc_start[i] = (int32_t)from;
    }
}

lathe_status lathe__row_pack(const lathe_shards *shards, int64_t r, const lathe_row *row,
                             int64_t *n_target)
{
    const int64_t total = lathe_shards_tokens(shards), begin = r * row->n_tokens;
    const int64_t end = begin + row->n_tokens < total ? begin + row->n_tokens : total;
    LATHE_TRY(lathe_shards_read(shards, begin, end, row->tokens));
    int64_t segment = lathe_shards_find(shards, begin);
    for (int64_t at = begin; at < end; segment++) {
        const int64_t doc_end = lathe_shards_offset(shards, segment + 1);
        if (doc_end <= at) /* an empty segment */
            continue;
        const int64_t stop = doc_end < end ? doc_end : end;
        mark_document(row, at - begin, stop - begin);
        *n_target += stop - at - 1;
        if (doc_end > stop) { /* it goes on in the next row */
            LATHE_TRY(lathe_shards_read(shards, stop, stop + 1, &row->targets[stop - begin - 1]));
            *n_target += 1;
        }
        at = stop;
    }
    lathe__row_fill(row, end - begin, lathe_shards_eos(shards));
    return LATHE_OK;
}

lathe_status lathe__row_pair(const lathe_shards *shards, int64_t k, int32_t which,
                             const lathe_row *row, int64_t *n_target)
{
    const int64_t prompt = lathe_shards_offset(shards, 3 * k);
    const int64_t n_prompt = lathe_shards_offset(shards, 3 * k + 1) - prompt;
    const int64_t completion = lathe_shards_offset(shards, 3 * k + which);
    int64_t n = lathe_shards_offset(shards, 3 * k + which + 1) - completion;
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

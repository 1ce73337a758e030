/* Fills rows: packed documents, and completions after their prompts. */
#include "data/loader_rows.h"

#include "base/error.h"
#include "data/row_kind.h"

void lathe__row_fill(const lathe_row *row, int64_t from, int32_t eos)
{
    for (int64_t i = from; i < row->n_tokens; i++) {
        row->tokens[i] = eos;
        row->targets[i] = -1;
        row->positions[i] = (int32_t)(i - from);
        row->doc_start[i] = (int32_t)from;
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
    if (more)
        LATHE_TRY(lathe_shards_read(shards, begin + n, begin + n + 1, &row->targets[at + n - 1]));
    if (!lathe_row_kind_get(lathe_shards_rows(shards))->is_masked) {
        *n_target += n - 1 + (more != 0);
        return LATHE_OK;
    }
    lathe_shards_mask(shards, begin + 1, begin + n + (more != 0), row->targets + at);
    for (int64_t i = at; i < at + n; i++)
        *n_target += row->targets[i] >= 0;
    return LATHE_OK;
}

lathe_status lathe__row_pair(const lathe_shards *shards, int64_t k, int32_t which,
                             const lathe_row *row, int64_t *n_target)
{
    const int64_t prompt = lathe_shards_offset(shards, 3 * k);
    const int64_t n_prompt = lathe_shards_offset(shards, 3 * k + 1) - prompt;
    const int64_t completion = lathe_shards_offset(shards, 3 * k + which);
    int64_t n = lathe_shards_offset(shards, 3 * k + which + 1) - completion;
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

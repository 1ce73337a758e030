/* Gives the prompts of the data, for stages that write the completions themselves. */
#include <stdlib.h>

#include "base/error.h"
#include "data/rows/loader_internal.h"

static lathe_status reserve_prompts(lathe_loader *l, int32_t n)
{
    if (n <= l->prompts_max)
        return LATHE_OK;
    int32_t *prompts =
        realloc(l->prompts, (size_t)n * (size_t)l->config.row_tokens * sizeof *prompts);
    if (!prompts)
        return lathe_error(LATHE_E_NOMEM, "%d prompts of %d tokens", n, l->config.row_tokens);
    l->prompts = prompts;
    l->prompts_max = n;
    return LATHE_OK;
}

lathe_status lathe_prompt_next(lathe_loader *l, int32_t n, lathe_prompt_row *out, int32_t *out_n)
{
    const lathe_shards *shards = l->config.shards;
    const int64_t first = l->consumed + (int64_t)l->config.rank * n;
    *out_n = 0;
    if (lathe_shards_rows(shards) != LATHE_ROWS_PROMPTS || n < 1)
        return lathe_error(LATHE_E_ARG, "%d prompts of data that have %s", n,
                           l->index.kind->records);
    LATHE_TRY(reserve_prompts(l, n));
    for (int32_t i = 0; i < n && (l->limit < 0 || first + i < l->limit); i++) {
        lathe_prompt_row *p = &out[i];
        int32_t *tokens = l->prompts + (int64_t)i * l->config.row_tokens;
        *p = (lathe_prompt_row){
            .tokens = tokens,
            .index = lathe__row_index_record(&l->index, lathe__loader_row_at(l, first + i))};
        const int64_t begin = lathe_shards_offset(shards, p->index);
        p->n_tokens = (int32_t)(lathe_shards_offset(shards, p->index + 1) - begin);
        LATHE_TRY(lathe_shards_read(shards, begin, begin + p->n_tokens, tokens));
        p->record = lathe_shards_record(shards, p->index, &p->record_bytes);
        ++*out_n;
    }
    l->consumed += (int64_t)n * l->config.n_ranks;
    if (l->limit >= 0 && l->consumed > l->limit)
        l->consumed = l->limit;
    l->produced = l->consumed;
    return LATHE_OK;
}

/* Writes rows of batches as text. */
#include "cmd/text/sample_text.h"

#include <stdlib.h>

#include "base/print.h"

int64_t lathe_app_filling(const lathe_batch *batch, int64_t r, int32_t eos)
{
    const int64_t T = batch->row_tokens;
    const int32_t *tokens = batch->tokens + r * T, *targets = batch->targets + r * T;
    const int64_t begin = batch->doc_start[r * T + T - 1];
    for (int64_t i = begin; i < T; i++)
        if (tokens[i] != eos || targets[i] >= 0)
            return 0;
    return T - begin;
}

/* Appends tokens [from, to), of which either all are learnt or none is. */
static lathe_status put_run(const lathe_tokenizer *tok, const int32_t *tokens, int64_t from,
                            int64_t to, int learnt, const lathe_sample_style *style, int64_t *room,
                            lathe_buffer *out)
{
    char *text = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_tokenizer_decode(tok, tokens + from, to - from, 0, &text, &n));
    if (!learnt)
        lathe_buffer_puts(out, style->colour ? LATHE_DIM : "[-");
    *room -= lathe_buffer_printable(out, text, n, *room);
    if (!learnt)
        lathe_buffer_puts(out, style->colour ? LATHE_PLAIN : "-]");
    free(text);
    return LATHE_OK;
}

/* Appends tokens [from, to) of a row with masked tokens: the text, and {token=target} for each
 * masked one. */
static lathe_status put_masked(const lathe_tokenizer *tok, const int32_t *tokens,
                               const int32_t *targets, int64_t from, int64_t to, int64_t *room,
                               lathe_buffer *out)
{
    static const lathe_sample_style plain = {.colour = 0};
    for (int64_t at = from, end; *room > 0 && at < to; at = end) {
        const int is_target = targets[at] >= 0;
        for (end = at + 1; end < to && !is_target && targets[end] < 0; end++) {
        }
        lathe_buffer_puts(out, is_target ? "{" : "");
        LATHE_TRY(put_run(tok, tokens, at, end, 1, &plain, room, out));
        lathe_buffer_puts(out, is_target ? "=" : "");
        if (is_target)
            LATHE_TRY(put_run(tok, targets, at, end, 1, &plain, room, out));
        lathe_buffer_puts(out, is_target ? "}" : "");
    }
    return LATHE_OK;
}

static lathe_status put_document(const lathe_tokenizer *tok, const lathe_batch *batch, int64_t r,
                                 int64_t from, int64_t to, const lathe_sample_style *style,
                                 int64_t *room, lathe_buffer *out)
{
    const int64_t T = batch->row_tokens;
    const int32_t *tokens = batch->tokens + r * T, *targets = batch->targets + r * T;
    const int32_t *positions = batch->positions + r * T;
    int64_t n_learnt = 0;
    for (int64_t i = from; i < to; i++)
        n_learnt += targets[i] >= 0;
    lathe_buffer_printf(
        out, "-- tokens %lld to %lld, positions %d to %d, %lld learnt%s\n", (long long)from,
        (long long)(to - 1), positions[from], positions[to - 1], (long long)n_learnt,
        !style->is_masked && targets[to - 1] >= 0 ? ", continues after this row" : "");
    if (style->is_masked)
        LATHE_TRY(put_masked(tok, tokens, targets, from, to, room, out));
    for (int64_t at = from; !style->is_masked && *room > 0 && at < to;) {
        const int learnt = at > from && targets[at - 1] >= 0;
        int64_t end = at + 1;
        while (end < to && (targets[end - 1] >= 0) == learnt)
            end++;
        LATHE_TRY(put_run(tok, tokens, at, end, learnt, style, room, out));
        at = end;
    }
    lathe_buffer_puts(out, *room > 0 ? "\n" : " ...\n");
    return LATHE_OK;
}

lathe_status lathe_app_sample(const lathe_tokenizer *tok, const lathe_batch *batch, int64_t r,
                              int32_t eos, const lathe_sample_style *style, lathe_buffer *out)
{
    const int64_t T = batch->row_tokens, n = T - lathe_app_filling(batch, r, eos);
    int64_t room = style->max_chars > 0 ? style->max_chars : INT64_MAX;
    for (int64_t from = 0; from < n;) {
        int64_t to = from + 1;
        while (to < n && batch->doc_start[r * T + to] == from)
            to++;
        if (room > 0)
            LATHE_TRY(put_document(tok, batch, r, from, to, style, &room, out));
        from = to;
    }
    if (n < T)
        lathe_buffer_printf(out, "-- tokens %lld to %lld are filling\n", (long long)n,
                            (long long)(T - 1));
    return out->status;
}

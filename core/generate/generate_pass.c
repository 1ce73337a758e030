/* Runs the programs of a generator: sets their inputs, and assigns the rows of a step to sequences.
 */
#include <string.h>

#include "base/error.h"
#include "generate/generator_internal.h"

/* Writes token `at` of a sequence (NULL: padding) to element i of the inputs. */
static void put_token(const lathe__pass *p, const lathe__sequence *s, int64_t at, int64_t i)
{
    lathe_exec *exec = p->program.exec;
    int32_t *tokens = lathe_exec_input(exec, p->program.tokens);
    int32_t *positions = lathe_exec_input(exec, p->program.positions);
    tokens[i] = s ? s->ids[at] : 0;
    positions[i] = s ? (int32_t)(at + s->offset) : 0;
}

/* Sets which keys row `row` attends to: those of tokens [0, end) of the sequence. A padding row
 * (s NULL) writes its key to a position of its own in the padding blocks, because rows may run at
 * the same time. */
static void put_keys(const lathe_generator *g, const lathe__pass *p, const lathe__sequence *s,
                     int64_t end, int64_t row)
{
    int32_t *len =
        (int32_t *)lathe_exec_input(p->program.exec, p->program.kv_len) + row * (1 + g->row_blocks);
    len[0] = s ? (int32_t)end : g->in_blocks ? 1 + (int32_t)(row % LATHE__BLOCK_TOKENS) : 1;
    if (!g->in_blocks)
        return;
    memset(len + 1, 0, (size_t)g->row_blocks * sizeof *len);
    if (s)
        memcpy(len + 1, s->blocks, (size_t)s->n_blocks * sizeof *len);
    else
        len[1] = (int32_t)(row / LATHE__BLOCK_TOKENS);
}

/* Says whose states row `row` continues; padding (s NULL) leaves none. */
static void put_slot(const lathe_generator *g, const lathe__pass *p, const lathe__sequence *s,
                     int64_t row)
{
    const lathe_val slots = lathe_exec_graph(p->program.exec)->slots;
    if (slots != LATHE_NONE)
        ((int32_t *)lathe_exec_input(p->program.exec, slots))[row] =
            s ? (int32_t)(s - g->slots) : -1;
}

/* Runs a program whose inputs are set. Copies the logits to the host if tokens are drawn there. */
static lathe_status run_pass(const lathe_generator *g, const lathe__pass *p, lathe__logits *out)
{
    const lathe_program *program = &p->program;
    const void *rows = NULL, *sums = NULL;
    LATHE_TRY(lathe_exec_send(program->exec));
    LATHE_TRY(lathe_exec_run(program->exec, 0));
    *out = (lathe__logits){.first = 0};
    if (g->sampling)
        return LATHE_OK;
    LATHE_TRY(lathe_exec_fetch(program->exec, program->logits, &rows));
    if (program->log_sums != LATHE_NONE)
        LATHE_TRY(lathe_exec_fetch(program->exec, program->log_sums, &sums));
    out->rows = rows;
    out->sums = sums;
    return LATHE_OK;
}

lathe_status lathe__chunk_run(lathe_generator *g, lathe__sequence *s, const lathe__pass *p,
                              lathe__logits *out)
{
    const int64_t begin = s->computed, end = begin + p->tokens;
    LATHE_TRY(lathe_exec_next_inputs(p->program.exec));
    LATHE_TRY(lathe__cache_hold(g, s, begin, end));
    for (int64_t i = 0; i < p->tokens; i++)
        put_token(p, s, begin + i, i);
    put_keys(g, p, s, end, 0);
    put_slot(g, p, s, 0);
    LATHE_TRY(run_pass(g, p, out));
    s->computed = end;
    return LATHE_OK;
}

/* Assigns rows to the sequences. The first rows are for the sequences that have only their last
 * token and drafted tokens to compute; the program has rows for all of these. The rows that are
 * left are for sequences with more tokens to compute, such as the rest of a prompt. Returns the
 * number of rows. */
static int64_t share_rows(const lathe_generator *g, int64_t max)
{
    int64_t n = 0;
    for (int32_t has_more = 0; has_more < 2; has_more++)
        for (int32_t i = 0; i < g->batch; i++) {
            const lathe__sequence *s = &g->slots[i];
            const int64_t left = s->n + s->n_drafted - s->computed;
            if (!s->is_active || s->is_done || (s->n - s->computed > 1) != has_more)
                continue;
            for (int64_t k = 0; k < left && n < max; k++)
                g->row_slots[n++] = i;
        }
    return n;
}

/* The smallest program with at least n rows. */
static const lathe__pass *pass_for(const lathe_generator *g, int64_t n)
{
    int32_t i = g->n_passes - 1;
    while (i > g->n_chunks && g->passes[i].rows < n)
        i--;
    return &g->passes[i];
}

lathe_status lathe__rows_run(lathe_generator *g, int64_t *out_n, lathe__logits *out)
{
    const int64_t n = share_rows(g, g->passes[g->n_chunks].rows);
    const lathe__pass *p = pass_for(g, n);
    LATHE_TRY(lathe_exec_next_inputs(p->program.exec));
    for (int64_t r = 0; r < p->rows; r++) {
        lathe__sequence *s = r < n ? &g->slots[g->row_slots[r]] : NULL;
        const int64_t at = s ? s->computed : 0;
        if (s)
            LATHE_TRY(lathe__cache_hold(g, s, at, at + 1));
        put_token(p, s, at, r);
        put_keys(g, p, s, at + 1, r);
        put_slot(g, p, s, r);
        if (s)
            s->computed++;
    }
    *out_n = n;
    LATHE_TRY(run_pass(g, p, out));
    return g->sampling ? lathe__sample_rows(g, n, out) : LATHE_OK;
}

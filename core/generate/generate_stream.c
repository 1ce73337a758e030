/* Continuous generation: each step computes the next tokens of all active sequences, and a finished
 * sequence makes room for the next prompt.
 *
 * A prompt is computed in chunks while whole chunks remain, then token by token in the rows of the
 * steps, together with the tokens of other sequences. The prompt alone decides which program
 * computes a token, and rows do not depend on each other, so a sequence has the same bits whatever
 * other sequences are generated. */
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "generate/generator_internal.h"
#include "update/nonfinite.h"

/* State of one call of lathe_generator_stream. */
typedef struct engine {
    lathe_generator *g;
    const lathe_sampling *how;
    const lathe_prompt_stream *stream;
    int64_t n_given;          /* prompts taken from the stream */
    int64_t failed;           /* the prompt that an error is about */
    int32_t has_pending;      /* g->ids has a prompt that waits for a slot */
    int32_t has_ended;        /* the stream has no more prompts */
    int32_t n_active, n_done; /* n_done: sequences whose results are not yet given */
    uint64_t seed;            /* of the pending prompt */
    lathe_status status;
} engine;

/* Logits of a program that has run. */
typedef struct logits {
    const float *rows;  /* [rows, V] */
    const double *sums; /* [rows]; NULL: the device does not compute them */
} logits;

/* Draws the next token of a sequence from row `row`. */
static lathe_status draw(engine *e, lathe__sequence *s, const logits *l, int64_t row)
{
    const float *x = l->rows + row * e->g->parts.model->vocab;
    float logprob = 0.0f;
    int32_t ends = 0;
    const int32_t token =
        lathe_sampler_pick(e->g->sampler, x, &s->how, s->ids, s->n, l->sums ? NULL : &logprob);
    e->failed = s->index;
    if (token < 0)
        return lathe_nonfinite_refuse(e->g->parts.machine, e->g->parts.store,
                                      e->g->parts.params->compute_dtype, "the logits of token",
                                      s->n);
    if (l->sums) /* as the device's HEAD_LOGPROB rounds it */
        logprob = (float)((double)x[token] - l->sums[row]);
    s->logprobs[s->n - s->n_prompt] = logprob;
    s->ids[s->n++] = token;
    LATHE_TRY(lathe__sequence_ends(e->g, s, &ends));
    if (e->g->watch.fn && e->g->watch.fn(e->g->watch.arg, token))
        ends = 1;
    if (ends) {
        s->is_done = 1;
        e->n_done++;
    }
    return LATHE_OK;
}

/* Draws a token after the keys of all tokens of the sequence were computed. `row` has the logits of
 * the last one. */
static lathe_status advance(engine *e, lathe__sequence *s, const logits *l, int64_t row)
{
    if (s->n == s->n_prompt && e->stream->shares)
        lathe__cache_keep(e->g, s, l->rows + row * e->g->parts.model->vocab,
                          l->sums ? l->sums[row] : 0.0);
    LATHE_TRY(draw(e, s, l, row));
    const int64_t offset = lathe_model_position_offset(e->g->parts.model, e->g->capacity, s->n);
    if (s->is_done || offset == s->offset)
        return LATHE_OK;
    /* Where longrope changes its factors, all keys are computed again, as in transformers. */
    s->reserved += s->n_blocks;
    const int64_t reserved = s->reserved;
    lathe__cache_release(e->g, s);
    s->reserved = reserved;
    s->offset = offset;
    return LATHE_OK;
}

/* ---- programs ---- */

/* Writes token `at` of a sequence (NULL: padding) to element i of the inputs. */
static void put_token(const lathe__pass *p, const lathe__sequence *s, int64_t at, int64_t i)
{
    lathe_exec *exec = p->program.exec;
    int32_t *tokens = lathe_exec_input(exec, p->program.tokens);
    int32_t *positions = lathe_exec_input(exec, p->program.positions);
    tokens[i] = s ? s->ids[at] : 0;
    positions[i] = s ? (int32_t)(at + s->offset) : 0;
}

/* Sets the keys that row `row` sees: tokens [0, end) of the sequence. */
static void put_keys(const lathe_generator *g, const lathe__pass *p, const lathe__sequence *s,
                     int64_t end, int64_t row)
{
    int32_t *len =
        (int32_t *)lathe_exec_input(p->program.exec, p->program.kv_len) + row * (1 + g->row_blocks);
    len[0] = s ? (int32_t)end : 1;
    if (g->in_blocks)
        memset(len + 1, 0, (size_t)g->row_blocks * sizeof *len);
    if (g->in_blocks && s)
        memcpy(len + 1, s->blocks, (size_t)s->n_blocks * sizeof *len);
}

/* Runs a program whose inputs are set. */
static lathe_status run_pass(const lathe__pass *p, logits *out)
{
    const lathe_program *program = &p->program;
    const void *rows = NULL, *sums = NULL;
    LATHE_TRY(lathe_exec_send(program->exec));
    LATHE_TRY(lathe_exec_run(program->exec, 0));
    LATHE_TRY(lathe_exec_fetch(program->exec, program->logits, &rows));
    if (program->log_sums != LATHE_NONE)
        LATHE_TRY(lathe_exec_fetch(program->exec, program->log_sums, &sums));
    *out = (logits){rows, sums};
    return LATHE_OK;
}

static lathe_status run_chunk(engine *e, lathe__sequence *s, const lathe__pass *p)
{
    const int64_t begin = s->computed, end = begin + p->tokens;
    logits l;
    LATHE_TRY(lathe_exec_next_inputs(p->program.exec));
    lathe__cache_hold(e->g, s, begin, end);
    for (int64_t i = 0; i < p->tokens; i++)
        put_token(p, s, begin + i, i);
    put_keys(e->g, p, s, end, 0);
    LATHE_TRY(run_pass(p, &l));
    s->computed = end;
    return s->computed == s->n ? advance(e, s, &l, 0) : LATHE_OK;
}

/* Computes whole chunks of what the sequence still has to compute, longest first. */
static lathe_status run_chunks(engine *e, lathe__sequence *s)
{
    for (int32_t i = 0; i < e->g->n_chunks; i++) {
        const lathe__pass *p = &e->g->passes[i];
        while (s->is_active && !s->is_done && s->n - s->computed >= p->tokens)
            LATHE_TRY(run_chunk(e, s, p));
    }
    return LATHE_OK;
}

/* Gives rows to the sequences: first one to each that has one token to compute, then as many as fit
 * to those with more. Returns the number of rows. */
static int64_t share_rows(const lathe_generator *g, int64_t most)
{
    int64_t n = 0;
    for (int32_t many = 0; many < 2; many++)
        for (int32_t i = 0; i < g->batch; i++) {
            const lathe__sequence *s = &g->slots[i];
            const int64_t left = s->n - s->computed;
            if (!s->is_active || s->is_done || (left > 1) != many)
                continue;
            for (int64_t k = 0; k < left && n < most; k++)
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

/* Runs one program on the tokens that share_rows chooses, and draws a token for each sequence whose
 * tokens are then all computed. */
static lathe_status step(engine *e)
{
    lathe_generator *g = e->g;
    e->failed = -1;
    const int64_t n = share_rows(g, g->passes[g->n_chunks].rows);
    const lathe__pass *p = pass_for(g, n);
    logits l;
    LATHE_TRY(lathe_exec_next_inputs(p->program.exec));
    for (int64_t r = 0; r < p->rows; r++) {
        lathe__sequence *s = r < n ? &g->slots[g->row_slots[r]] : NULL;
        const int64_t at = s ? s->computed : 0;
        if (s)
            lathe__cache_hold(e->g, s, at, at + 1);
        put_token(p, s, at, r);
        put_keys(g, p, s, at + 1, r);
        if (s)
            s->computed++;
    }
    LATHE_TRY(run_pass(p, &l));
    for (int64_t r = 0; r < n; r++) {
        lathe__sequence *s = &g->slots[g->row_slots[r]];
        const int is_last = r + 1 == n || g->row_slots[r + 1] != g->row_slots[r];
        if (s && is_last && s->computed == s->n)
            LATHE_TRY(advance(e, s, &l, r));
    }
    return LATHE_OK;
}

/* Steps until a sequence is done or has a whole chunk to compute. */
static void steps(void *arg)
{
    engine *e = arg;
    int again = 1;
    while (again && e->status == LATHE_OK && e->n_done == 0) {
        const lathe_generator *g = e->g;
        e->status = step(e);
        for (int32_t i = 0; g->n_chunks > 0 && i < g->batch; i++)
            if (g->slots[i].is_active &&
                g->slots[i].n - g->slots[i].computed >= g->passes[g->n_chunks - 1].tokens)
                again = 0;
    }
}

/* ---- prompts in, results out ---- */

static lathe_status give_results(engine *e)
{
    for (int32_t i = 0; i < e->g->batch; i++) {
        lathe__sequence *s = &e->g->slots[i];
        lathe_generation made;
        if (!s->is_active || !s->is_done)
            continue;
        e->failed = s->index;
        LATHE_TRY(lathe__sequence_result(e->g, s, &made));
        lathe__cache_release(e->g, s);
        s->is_active = 0;
        e->n_active--;
        e->n_done--;
        LATHE_TRY(e->stream->done(e->stream->arg, s->index, &made));
    }
    return LATHE_OK;
}

/* Takes the next prompt of the stream into g->ids. */
static lathe_status take_prompt(engine *e)
{
    lathe_prompt prompt;
    int32_t given = 0;
    if (e->has_pending || e->has_ended)
        return LATHE_OK;
    e->failed = -1;
    LATHE_TRY(e->stream->next(e->stream->arg, &prompt, &given));
    e->has_ended = given == LATHE_PROMPT_NONE;
    if (given != LATHE_PROMPT_GIVEN)
        return LATHE_OK;
    e->failed = e->n_given++;
    LATHE_TRY(lathe__prompt_read(e->g, &prompt));
    e->seed = prompt.seed;
    e->has_pending = 1;
    return LATHE_OK;
}

/* Starts the pending prompt in a free slot. *out_waits: there is no room for it yet. */
static lathe_status start(engine *e, lathe__sequence *s, int32_t *out_waits)
{
    lathe_generator *g = e->g;
    const lathe__kept_prompt *kept = NULL;
    memcpy(s->ids, g->ids.data, (size_t)g->ids.n * sizeof *s->ids);
    s->index = e->n_given - 1;
    s->how = *e->how;
    s->how.seed = e->seed;
    s->n = s->n_prompt = g->ids.n;
    s->limit = g->capacity;
    if (s->how.max_length > 0 && s->how.max_length < s->limit)
        s->limit = s->how.max_length;
    if (s->how.max_new_tokens < s->limit - s->n)
        s->limit = s->n + s->how.max_new_tokens;
    e->has_pending = 0;
    if (s->limit <= s->n) { /* max_length leaves no room for a token */
        s->is_active = s->is_done = 1;
        s->finish = LATHE_FINISH_LENGTH;
        s->n_blocks = s->reserved = s->computed = 0;
        e->n_active++;
        e->n_done++;
        return LATHE_OK;
    }
    if (!lathe__cache_admit(e->g, s, e->stream->shares, &kept)) {
        *out_waits = e->has_pending = 1;
        if (e->n_active > 0)
            return LATHE_OK;
        return lathe_error(LATHE_E_STATE, "the KV cache has no room for one sequence");
    }
    e->n_active++;
    if (kept) {
        const logits l = {kept->logits, &kept->log_sum};
        return draw(e, s, &l, 0);
    }
    return run_chunks(e, s);
}

static lathe_status fill_slots(engine *e)
{
    int32_t waits = 0;
    for (int32_t i = 0; i < e->g->batch && !waits; i++) {
        lathe__sequence *s = &e->g->slots[i];
        if (s->is_active)
            continue;
        LATHE_TRY(take_prompt(e));
        if (!e->has_pending)
            return LATHE_OK;
        LATHE_TRY(start(e, s, &waits));
    }
    return LATHE_OK;
}

static lathe_status generate(engine *e)
{
    for (;;) {
        LATHE_TRY(fill_slots(e));
        for (int32_t i = 0; i < e->g->batch; i++)
            LATHE_TRY(run_chunks(e, &e->g->slots[i]));
        if (e->n_active == 0 && e->has_ended)
            return LATHE_OK;
        if (e->n_active == 0)
            return lathe_error(LATHE_E_STATE, "the stream of prompts waits for a result that "
                                              "cannot come");
        if (e->n_done == 0 && e->g->uses_team)
            lathe_parallel_team(steps, e);
        else if (e->n_done == 0)
            steps(e);
        LATHE_TRY(e->status);
        LATHE_TRY(give_results(e));
    }
}

lathe_status lathe_generator_stream(lathe_generator *g, const lathe_sampling *how,
                                    const lathe_prompt_stream *stream, int64_t *out_failed)
{
    engine e = {.g = g, .how = how, .stream = stream, .failed = -1};
    /* The weights may have changed since the last call. */
    lathe__cache_reset(e.g);
    const lathe_status status = generate(&e);
    *out_failed = e.failed;
    return status;
}

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
#include "optim/nonfinite.h"

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
    int32_t has_cached;       /* the last step computed a prompt that equal ones can share */
    uint64_t seed;            /* of the pending prompt */
    lathe_status status;
} engine;

/* The next token of a sequence, from row `row`, drawn by the host. */
static int32_t pick(const engine *e, const lathe__sequence *s, const lathe__logits *l, int64_t row,
                    int32_t drafted, float *out_logprob)
{
    const float *x = l->rows + row * e->g->parts.model->vocab;
    float *wants_logprob = l->sums ? NULL : out_logprob;
    const int32_t token =
        drafted < 0 ? lathe_sampler_pick(e->g->sampler, x, &s->how, s->ids, s->n, wants_logprob)
                    : lathe_sampler_verify(e->g->sampler, x, lathe__draft_logits(e->g, s), drafted,
                                           &s->how, s->ids, s->n, wants_logprob);
    if (token >= 0 && l->sums) /* as the device's HEAD_LOGPROB rounds it */
        *out_logprob = (float)((double)x[token] - l->sums[row]);
    return token;
}

/* Draws the next token of a sequence from row `row`. drafted: the draft model's token; -1: none. */
static lathe_status draw(engine *e, lathe__sequence *s, const lathe__logits *l, int64_t row,
                         int32_t drafted)
{
    float logprob = 0.0f;
    int32_t ends = 0;
    if (l->tokens)
        logprob = l->logprobs[row];
    const int32_t token = l->tokens ? l->tokens[row] : pick(e, s, l, row, drafted, &logprob);
    e->failed = s->index;
    if (token < 0)
        return lathe_nonfinite_refuse(e->g->parts.machine, e->g->parts.store,
                                      e->g->parts.params->compute_dtype, "the logits of token",
                                      s->n);
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
static lathe_status advance(engine *e, lathe__sequence *s, const lathe__logits *l, int64_t row,
                            int32_t drafted)
{
    if (s->n == s->n_prompt && e->stream->shares) {
        LATHE_TRY(lathe__cache_keep(e->g, s, l, row));
        e->has_cached = 1;
    }
    LATHE_TRY(draw(e, s, l, row, drafted));
    const int64_t offset = lathe_model_position_offset(e->g->parts.model, e->g->capacity, s->n);
    if (s->is_done || offset == s->offset)
        return LATHE_OK;
    return lathe__cache_restart(e->g, s, offset);
}

/* Draws tokens from the rows of a sequence of which the keys of all tokens were computed, until one
 * differs from the drafted token. `row` has the logits of the last token that was drawn. */
static lathe_status verify(engine *e, lathe__sequence *s, const lathe__logits *l, int64_t row)
{
    const int32_t n_drafted = s->n_drafted;
    int32_t agrees = 1, k = 0;
    s->n_drafted = 0;
    for (; k < n_drafted && agrees && !s->is_done; k++) {
        const int32_t drafted = s->ids[s->n];
        s->verified = k;
        LATHE_TRY(advance(e, s, l, row + k, drafted));
        agrees = s->ids[s->n - 1] == drafted;
        e->g->n_accepted += agrees;
    }
    e->g->n_drafted += s->is_done ? k : n_drafted;
    if (agrees && !s->is_done)
        LATHE_TRY(advance(e, s, l, row + n_drafted, -1));
    if (s->computed >= s->n) /* the keys of tokens that were not accepted */
        s->computed = s->n - 1;
    return LATHE_OK;
}

/* ---- steps ---- */

static lathe_status run_chunk(engine *e, lathe__sequence *s, const lathe__pass *p)
{
    lathe__logits l;
    LATHE_TRY(lathe__chunk_run(e->g, s, p, &l));
    if (s->computed < s->n)
        return LATHE_OK;
    if (e->g->sampling)
        LATHE_TRY(lathe__sample_one(e->g, s, &l));
    return advance(e, s, &l, 0, -1);
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

/* Runs one program on tokens of the sequences, and draws tokens for each sequence whose tokens are
 * then all computed. */
static lathe_status step(engine *e)
{
    lathe_generator *g = e->g;
    lathe__logits l;
    int64_t n = 0;
    e->failed = -1;
    if (g->draft)
        LATHE_TRY(lathe__draft_propose(g));
    LATHE_TRY(lathe__rows_run(g, &n, &l));
    for (int64_t r = 0; r < n; r++) {
        lathe__sequence *s = &g->slots[g->row_slots[r]];
        const int is_last = r + 1 == n || g->row_slots[r + 1] != g->row_slots[r];
        if (is_last && s->computed == s->n + s->n_drafted)
            LATHE_TRY(verify(e, s, &l, r - s->n_drafted));
    }
    return LATHE_OK;
}

/* Steps until a sequence is done or has a whole chunk to compute, or the prompt that others wait
 * for was computed. */
static void steps(void *arg)
{
    engine *e = arg;
    int again = 1;
    while (again && e->status == LATHE_OK && e->n_done == 0) {
        const lathe_generator *g = e->g;
        e->has_cached = 0;
        e->status = step(e);
        again = !(e->has_cached && e->has_pending);
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
        if (e->g->draft)
            lathe__draft_end(e->g, s);
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

/* Draws the first token of a sequence whose prompt is kept. */
static lathe_status draw_from_cached(engine *e, lathe__sequence *s,
                                     const lathe__cached_prompt *cached)
{
    lathe__logits l = {.rows = cached->logits, .sums = &cached->log_sum};
    if (e->g->sampling) {
        l = (lathe__logits){.first = lathe__cached_row(e->g, cached)};
        LATHE_TRY(lathe__sample_one(e->g, s, &l));
    }
    return draw(e, s, &l, 0, -1);
}

/* Starts the pending prompt in a free slot. *out_waits: there is no room for it yet. */
static lathe_status start(engine *e, lathe__sequence *s, int32_t *out_waits)
{
    lathe_generator *g = e->g;
    const lathe__cached_prompt *cached = NULL;
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
    s->n_drafted = 0;
    int32_t fits = 0, draft_fits = 1;
    LATHE_TRY(lathe__cache_admit(g, s, e->stream->shares, &cached, &fits));
    if (fits && g->draft)
        LATHE_TRY(lathe__draft_begin(g, s, e->stream->shares, &draft_fits));
    if (!draft_fits) {
        lathe__cache_release(g, s);
        s->is_active = fits = 0;
    }
    if (!fits) {
        *out_waits = e->has_pending = 1;
        if (e->n_active > 0)
            return LATHE_OK;
        return lathe_error(LATHE_E_STATE, "the KV cache has no room for one sequence");
    }
    e->n_active++;
    return cached ? draw_from_cached(e, s, cached) : run_chunks(e, s);
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
        if (e->g->draft)
            LATHE_TRY(lathe__draft_prompts(e->g));
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
    if (g->draft)
        lathe__cache_reset(g->draft);
    const lathe_status status = generate(&e);
    *out_failed = e.failed;
    return status;
}

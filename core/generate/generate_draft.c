/* Speculative decoding: a draft model proposes tokens, and the model computes all of them in one
 * step, one token in each row. A row has the same bits whatever the number of rows, so the model's
 * logits are those that it would have without a draft.
 *
 * Without sampling, a proposed token is accepted if it is the most likely one. With sampling it is
 * accepted with probability min(1, p/q), where p and q are its probabilities under the model and
 * the draft model; otherwise a token is drawn from the normalised max(0, p - q). So tokens have the
 * distribution p.
 *
 * The draft model has a generator of its own, whose slot i drafts for slot i of the model's. How
 * many tokens are drafted depends on the sequence alone, so that results do not depend on the
 * batch.
 *
 * Both models have the same tokens, but their embeddings may be filled up to different numbers of
 * rows. The draft's distribution q is then over the tokens that both have: further logits of the
 * draft are not read, and where it has fewer, the logits that it lacks count as NO_TOKEN. Tokens
 * still have the distribution p, which holds for any q.
 *
 * In this file g and s are the model's generator and a sequence of it; d and `own` are the draft
 * model's generator and its sequence in the same slot.
 *
 *   Source  arXiv:2211.17192 (algorithm 1), arXiv:2302.01318.
 */
#include <string.h>

#include "base/error.h"
#include "generate/generator_internal.h"
#include "optim/nonfinite.h"

/* A logit of probability 0 at every temperature that a logit of a model can stand beside. It is
 * finite, because an infinite one means that a model is broken. */
#define NO_TOKEN (-1e4f)

static int64_t slot_of(const lathe_generator *g, const lathe__sequence *s)
{
    return s - g->slots;
}

static float *logits_at(const lathe_generator *g, int64_t slot, int64_t k)
{
    return g->draft_logits + (slot * g->config.draft_tokens + k) * g->parts.model->vocab;
}

static int64_t common_tokens(const lathe_generator *g)
{
    const int64_t own = g->parts.model->vocab, of_draft = g->draft->parts.model->vocab;
    return own < of_draft ? own : of_draft;
}

/* The token at place i that the draft model reads, after those of own_ids: instead of one that it
 * has no row for, the token before it, so that a repetition penalty sees the same tokens. */
static int32_t id_for(const lathe_generator *draft, const int32_t *own_ids, int64_t i, int32_t id)
{
    return id < draft->parts.model->vocab ? id : i > 0 ? own_ids[i - 1] : 0;
}

static void copy_ids(const lathe_generator *draft, int32_t *to, const int32_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = id_for(draft, to, i, from[i]);
}

void lathe__draft_clear_logits(const lathe_generator *g, float *rows, int64_t n_rows)
{
    const int64_t vocab = g->parts.model->vocab;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t i = common_tokens(g); i < vocab; i++)
            rows[r * vocab + i] = NO_TOKEN;
}

const float *lathe__draft_logits(const lathe_generator *g, const lathe__sequence *s)
{
    return s->how.temperature > 0.0 ? logits_at(g, slot_of(g, s), s->verified) : NULL;
}

lathe_status lathe__draft_begin(lathe_generator *g, const lathe__sequence *s, int32_t shares,
                                int32_t *out_fits)
{
    lathe__sequence *own = &g->draft->slots[slot_of(g, s)];
    const lathe__cached_prompt *cached = NULL;
    copy_ids(g->draft, own->ids, s->ids, s->n_prompt);
    own->index = s->index;
    own->how = s->how;
    own->n = own->n_prompt = s->n_prompt;
    own->limit = s->limit;
    own->n_drafted = 0;
    shares = shares ? LATHE__SHARE_KEPT : LATHE__SHARE_NO;
    LATHE_TRY(lathe__cache_admit(g->draft, own, shares, &cached, out_fits));
    own->is_cached = shares == LATHE__SHARE_NO || cached != NULL;
    return LATHE_OK;
}

void lathe__draft_end(lathe_generator *g, const lathe__sequence *s)
{
    lathe__sequence *own = &g->draft->slots[slot_of(g, s)];
    lathe__cache_release(g->draft, own);
    own->is_active = 0;
}

/* Number of tokens to draft for a sequence. None are drafted before its first token was drawn,
 * because that token may come from the kept logits of an equal prompt, without a step. The model
 * draws one token more than were drafted, so the last token of the limit is not drafted. Drafting
 * also stops where longrope changes its factors, because all keys are then computed again. */
static int32_t tokens_to_draft(const lathe_generator *g, const lathe__sequence *s)
{
    const lathe_model_config *model = g->parts.model;
    int64_t n = s->limit - s->n - 1;
    if (!s->is_active || s->is_done || s->n == s->n_prompt || s->n - s->computed != 1)
        return 0;
    n = n < g->config.draft_tokens ? n : g->config.draft_tokens;
    while (n > 0 && lathe_model_position_offset(model, g->capacity, s->n + n) != s->offset)
        n--;
    return (int32_t)n;
}

/* Copies the tokens of the sequence to the draft model's. The draft model's keys of tokens that
 * were not accepted count as not computed. */
static lathe_status follow(const lathe_generator *g, const lathe__sequence *s, lathe__sequence *own)
{
    lathe_generator *d = g->draft;
    const int64_t offset = lathe_model_position_offset(d->parts.model, d->capacity, s->n);
    int64_t same = 0;
    while (same < own->computed && same < s->n - 1 &&
           own->ids[same] == id_for(d, own->ids, same, s->ids[same]))
        same++;
    own->computed = same;
    copy_ids(d, own->ids, s->ids, s->n);
    own->n = s->n;
    return offset != own->offset ? lathe__cache_restart(d, own, offset) : LATHE_OK;
}

/* Keeps the logits of the draft model in row `row`, over the model's tokens: they are needed to
 * draw a token, and to accept or reject it. */
static lathe_status keep_logits(lathe_generator *g, int64_t slot, int64_t k, const lathe__logits *l,
                                int64_t row)
{
    if (l->rows == NULL)
        return lathe__keep_draft_logits(g, slot * g->config.draft_tokens + k, l->first + row);
    memcpy(logits_at(g, slot, k), l->rows + row * g->draft->parts.model->vocab,
           (size_t)common_tokens(g) * sizeof *l->rows);
    return LATHE_OK;
}

/* Draws a token of the draft model, whose keys of all earlier tokens are computed. `row` has the
 * logits of the last one. */
static lathe_status draw(lathe_generator *g, int64_t slot, const lathe__logits *l, int64_t row)
{
    lathe_generator *d = g->draft;
    lathe__sequence *own = &d->slots[slot], *s = &g->slots[slot];
    const int64_t k = own->n - s->n;
    if (l->tokens == NULL || s->how.temperature > 0.0)
        LATHE_TRY(keep_logits(g, slot, k, l, row));
    const int32_t token = l->tokens ? l->tokens[row]
                                    : lathe_sampler_pick_draft(d->sampler, logits_at(g, slot, k),
                                                               &s->how, s->ids, own->n);
    if (token < 0)
        return lathe_nonfinite_refuse(d->parts.machine, d->parts.store,
                                      d->parts.params->compute_dtype,
                                      "the draft model's logits of token", own->n);
    s->ids[own->n] = own->ids[own->n] = token;
    own->n++;
    own->is_done = own->n - s->n == s->n_drafted;
    return LATHE_OK;
}

static lathe_status draw_if_computed(lathe_generator *g, int64_t slot, const lathe__logits *l,
                                     int64_t row)
{
    lathe_generator *d = g->draft;
    lathe__sequence *own = &d->slots[slot];
    if (own->computed != own->n)
        return LATHE_OK;
    if (!own->is_cached)
        LATHE_TRY(lathe__cache_keep(d, own, l, row));
    own->is_cached = 1;
    return draw(g, slot, l, row);
}

static lathe_status run_rows(lathe_generator *g)
{
    lathe_generator *d = g->draft;
    lathe__logits l;
    int64_t n = 0;
    LATHE_TRY(lathe__rows_run(d, &n, &l));
    for (int64_t r = 0; r < n; r++)
        if (r + 1 == n || d->row_slots[r + 1] != d->row_slots[r])
            LATHE_TRY(draw_if_computed(g, d->row_slots[r], &l, r));
    return LATHE_OK;
}

lathe_status lathe__draft_propose(lathe_generator *g)
{
    lathe_generator *d = g->draft;
    int again = 1;
    for (int64_t i = 0; i < g->batch; i++) {
        lathe__sequence *s = &g->slots[i], *own = &d->slots[i];
        s->n_drafted = tokens_to_draft(g, s);
        own->is_done = s->n_drafted == 0;
        if (s->n_drafted > 0)
            LATHE_TRY(follow(g, s, own));
    }
    while (again) {
        again = 0;
        for (int64_t i = 0; i < g->batch; i++)
            again |= d->slots[i].is_active && !d->slots[i].is_done;
        if (again)
            LATHE_TRY(run_rows(g));
    }
    return LATHE_OK;
}

lathe_status lathe__draft_prompts(lathe_generator *g)
{
    lathe_generator *d = g->draft;
    lathe__logits unused;
    for (int32_t i = 0; i < g->batch; i++) {
        lathe__sequence *own = &d->slots[i];
        for (int32_t k = 0; own->is_active && k < d->n_chunks; k++)
            while (own->n_prompt - own->computed >= d->passes[k].tokens)
                LATHE_TRY(lathe__chunk_run(d, own, &d->passes[k], &unused));
    }
    return LATHE_OK;
}

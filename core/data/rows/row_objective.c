/* Masks rows, and draws their prefixes. */
#include "data/rows/row_objective.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "data/rows/loader_rows.h"
#include "lathe/rng.h"

/* Streams of the RNG: "MASK" and "PREF". */
enum { STREAM_MASK = 0x4d41534b, STREAM_PREFIX = 0x50524546 };

/* ---- the tokens ---- */

static lathe_status find_mask_token(const char *name, const lathe_tokenizer *tok, int32_t *out)
{
    *out = name ? lathe_tokenizer_id(tok, name, (int64_t)strlen(name)) : lathe_tokenizer_mask(tok);
    if (*out >= 0)
        return LATHE_OK;
    if (name)
        return lathe_error_at(
            LATHE_E_CONFIG, "stage", "mask_token",
            "mask_token \"%s\" is not a token of the tokenizer; expected the text of "
            "a token that the data do not use",
            name);
    return lathe_error_at(
        LATHE_E_CONFIG, "stage", "mask_token",
        "mask_token is unset, and %s: set stage.mask_token to the text of a token that the data do "
        "not use, such as a reserved one",
        lathe_tokenizer_is_bytes(tok)
            ? "raw bytes have none"
            : "the tokenizer has none (mask_token of tokenizer_config.json)");
}

static int is_special(const lathe_tokenizer *tok, int32_t id)
{
    return lathe_tokenizer_is_special(tok, id) || id == lathe_tokenizer_bos(tok) ||
           id == lathe_tokenizer_eos(tok) || id == lathe_tokenizer_pad(tok);
}

lathe_status lathe_row_objective_init(const lathe_objective *stage, const lathe_tokenizer *tok,
                                      lathe_arena *arena, lathe_row_objective *out)
{
    *out = (lathe_row_objective){.stage = *stage, .mask_token = -1};
    if (stage->kind != LATHE_OBJECTIVE_MASKED)
        return LATHE_OK;
    LATHE_TRY(find_mask_token(stage->mask_token, tok, &out->mask_token));
    const int64_t n = out->n_tokens = lathe_tokenizer_vocab_size(tok);
    uint8_t *kept = lathe_arena_alloc(arena, n);
    int32_t *others = lathe_arena_alloc(arena, n * (int64_t)sizeof *others);
    if (!kept || !others)
        return lathe_error(LATHE_E_NOMEM, "no memory for the kinds of %lld tokens", (long long)n);
    for (int32_t id = 0; id < n; id++) {
        int64_t bytes = 0;
        kept[id] = id == out->mask_token || is_special(tok, id);
        if (!kept[id] && lathe_tokenizer_token(tok, id, &bytes))
            others[out->n_others++] = id;
    }
    out->is_kept = kept;
    out->others = others;
    return LATHE_OK;
}

/* ---- rows ---- */

/* Tokens [from, to) of a row are one document. `at` + i: number of token i among those of all rows,
 * the key of its random numbers. */
typedef struct document {
    const lathe_row *row;
    int64_t from, to, at;
    uint64_t seed;
} document;

/* Returns what becomes of the chosen token `id`. how: uniform in [0, 1). */
static int32_t replaced(const lathe_row_objective *o, int32_t id, double how, uint32_t word)
{
    if (how < o->stage.mask_share)
        return o->mask_token;
    if (how < o->stage.mask_share + o->stage.random_share && o->n_others > 0)
        return o->others[((uint64_t)word * (uint64_t)o->n_others) >> 32];
    return id;
}

static int64_t mask_document(const lathe_row_objective *o, const document *d)
{
    int64_t n_target = 0;
    for (int64_t i = d->from; i < d->to; i++) {
        const int32_t id = d->row->tokens[i];
        d->row->key_end[i] = (int32_t)d->to;
        d->row->targets[i] = -1;
        if (id < 0 || id >= o->n_tokens || o->is_kept[id])
            continue;
        const lathe_u32x4 u = lathe_rng_block(d->seed, 0, STREAM_MASK, (uint64_t)(d->at + i));
        if (!(lathe_uniform_f64(u.v[0], u.v[1]) < o->stage.mask_probability))
            continue;
        d->row->targets[i] = id;
        d->row->tokens[i] = replaced(o, id, (double)lathe_uniform_f32(u.v[2]), u.v[3]);
        n_target++;
    }
    return n_target;
}

/* The tokens of the prefix: at least 1, so that the suffix has something before it, and at most one
 * less than the n tokens that are there or a target, so that it has a target. */
static int64_t prefix_length(const lathe_row_objective *o, const document *d, int64_t n)
{
    const double share = o->stage.prefix_fraction;
    const lathe_u32x4 u = lathe_rng_block(d->seed, 0, STREAM_PREFIX, (uint64_t)(d->at + d->from));
    const int64_t length = share > 0.0
                               ? llround(share * (double)n)
                               : 1 + (int64_t)(lathe_uniform_f64(u.v[0], u.v[1]) * (double)(n - 1));
    return length < 1 ? 1 : length > n - 1 ? n - 1 : length;
}

static int64_t divide_document(const lathe_row_objective *o, const document *d)
{
    const lathe_row *row = d->row;
    const int64_t n = d->to - d->from + (row->targets[d->to - 1] >= 0);
    const int64_t prefix_end = d->from + prefix_length(o, d, n);
    int64_t n_target = 0;
    for (int64_t i = d->from; i < d->to; i++) {
        row->key_end[i] = (int32_t)(i < prefix_end ? prefix_end : i + 1);
        if (i + 1 < prefix_end)
            row->targets[i] = -1;
        n_target += row->targets[i] >= 0;
    }
    return n_target;
}

int64_t lathe__row_objective_apply(const lathe_row_objective *objective, uint64_t seed,
                                   int64_t place, const lathe_row *row)
{
    int64_t n_target = 0;
    document d = {.row = row, .at = place * row->n_tokens, .seed = seed};
    for (d.from = 0; d.from < row->n_tokens; d.from = d.to) {
        int has_target = row->targets[d.from] >= 0;
        for (d.to = d.from + 1;
             d.to < row->n_tokens && row->doc_start[d.to] == row->doc_start[d.from]; d.to++)
            has_target |= row->targets[d.to] >= 0;
        if (has_target) {
            n_target += objective->stage.kind == LATHE_OBJECTIVE_MASKED
                            ? mask_document(objective, &d)
                            : divide_document(objective, &d);
            continue;
        }
        for (int64_t i = d.from; i < d.to; i++) /* padding, or a single token */
            row->key_end[i] = (int32_t)(i + 1);
    }
    return n_target;
}

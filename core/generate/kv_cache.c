/* The blocks of the KV cache. Sequences with equal prompts share the blocks of the prompt; a block
 * is copied before a sequence writes to it while others use it.
 *
 * A sequence is admitted only if the free blocks suffice for it and for the blocks reserved for the
 * others, so that a sequence never has to be stopped halfway. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/transfer.h"
#include "generate/generator_internal.h"
#include "model/family/model_size.h"

static int64_t blocks_for(int64_t tokens)
{
    return (tokens + LATHE__BLOCK_TOKENS - 1) / LATHE__BLOCK_TOKENS;
}

lathe_status lathe__cache_init(lathe_generator *g)
{
    const size_t capacity = (size_t)g->capacity, row_blocks = (size_t)g->row_blocks + 1;
    int ok = 1;
    g->slots = calloc((size_t)g->batch, sizeof *g->slots);
    g->free_blocks = calloc((size_t)g->n_blocks + 1, sizeof *g->free_blocks);
    g->refs = calloc((size_t)g->n_blocks + 1, sizeof *g->refs);
    for (int32_t i = 0; g->slots && i < g->batch; i++) {
        lathe__sequence *s = &g->slots[i];
        s->ids = calloc(capacity + 1, sizeof *s->ids);
        s->logprobs = calloc(capacity, sizeof *s->logprobs);
        s->blocks = calloc(row_blocks, sizeof *s->blocks);
        ok &= s->ids && s->logprobs && s->blocks;
    }
    for (int32_t i = 0; g->in_blocks && g->batch > 1 && i < LATHE__CACHED_PROMPTS; i++) {
        lathe__cached_prompt *k = &g->cached[i];
        k->ids = calloc(capacity, sizeof *k->ids);
        k->blocks = calloc(row_blocks, sizeof *k->blocks);
        if (g->sampling == NULL)
            k->logits = calloc((size_t)g->parts.model->vocab, sizeof *k->logits);
        ok &= k->ids && k->blocks && (k->logits || g->sampling);
    }
    if (!ok || g->slots == NULL || g->free_blocks == NULL || g->refs == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to generate");
    lathe__cache_reset(g);
    return LATHE_OK;
}

void lathe__cache_fini(lathe_generator *g)
{
    for (int32_t i = 0; g->slots && i < g->batch; i++) {
        free(g->slots[i].ids);
        free(g->slots[i].logprobs);
        free(g->slots[i].blocks);
    }
    for (int32_t i = 0; i < LATHE__CACHED_PROMPTS; i++) {
        free(g->cached[i].ids);
        free(g->cached[i].blocks);
        free(g->cached[i].logits);
    }
    free(g->slots);
    free(g->free_blocks);
    free(g->refs);
}

void lathe__cache_reset(lathe_generator *g)
{
    g->n_free = 0;
    for (int64_t i = g->n_blocks - 1; i >= g->n_padding; i--) {
        g->free_blocks[g->n_free++] = (int32_t)i;
        g->refs[i] = 0;
    }
    g->least_free = g->n_free;
    for (int32_t i = 0; i < g->batch; i++) {
        lathe__sequence *s = &g->slots[i];
        s->is_active = 0;
        s->n_blocks = s->reserved = 0;
    }
    for (int32_t i = 0; i < LATHE__CACHED_PROMPTS; i++)
        g->cached[i].n = 0;
}

static void drop(lathe_generator *g, int32_t block)
{
    if (--g->refs[block] == 0)
        g->free_blocks[g->n_free++] = block;
}

static void forget(lathe_generator *g, lathe__cached_prompt *k)
{
    for (int64_t i = 0; i < blocks_for(k->n); i++)
        drop(g, k->blocks[i]);
    k->n = 0;
}

/* The least recently used kept prompt, other than `except`; NULL: there is none. */
static lathe__cached_prompt *oldest(lathe_generator *g, const lathe__cached_prompt *except)
{
    lathe__cached_prompt *best = NULL;
    for (int32_t i = 0; i < LATHE__CACHED_PROMPTS; i++) {
        lathe__cached_prompt *k = &g->cached[i];
        if (k != except && k->n > 0 && (best == NULL || k->used < best->used))
            best = k;
    }
    return best;
}

static lathe__cached_prompt *find(lathe_generator *g, const lathe__sequence *s)
{
    for (int32_t i = 0; i < LATHE__CACHED_PROMPTS; i++) {
        lathe__cached_prompt *k = &g->cached[i];
        if (k->n == s->n_prompt && memcmp(k->ids, s->ids, (size_t)k->n * sizeof *k->ids) == 0)
            return k;
    }
    return NULL;
}

/* Free blocks that are not reserved for an active sequence. */
static int64_t unreserved(const lathe_generator *g)
{
    int64_t n = g->n_free;
    for (int32_t i = 0; i < g->batch; i++)
        n -= g->slots[i].is_active ? g->slots[i].reserved : 0;
    return n;
}

/* Whether equal prompts share blocks. They do not where longrope changes its factors within the
 * context, because the keys are then computed again. */
static int may_share(const lathe_generator *g, int32_t shares)
{
    return shares && g->in_blocks && g->batch > 1 &&
           lathe_model_position_offset(g->parts.model, g->capacity, g->capacity) ==
               lathe_model_position_offset(g->parts.model, g->capacity, 1);
}

/* Whether another active sequence has the same prompt and has not yet computed all of it. */
static int is_underway(const lathe_generator *g, const lathe__sequence *s)
{
    for (int32_t i = 0; i < g->batch; i++) {
        const lathe__sequence *o = &g->slots[i];
        if (o != s && o->is_active && o->computed < o->n_prompt && o->n_prompt == s->n_prompt &&
            memcmp(o->ids, s->ids, (size_t)s->n_prompt * sizeof *s->ids) == 0)
            return 1;
    }
    return 0;
}

char *lathe__layer_keys(const lathe_generator *g, int32_t layer)
{
    return g->caches + layer * (g->keys_bytes + g->values_bytes);
}

char *lathe__layer_values(const lathe_generator *g, int32_t layer)
{
    return lathe__layer_keys(g, layer) + g->keys_bytes;
}

int64_t lathe__kv_bytes(const lathe_generator *g)
{
    return g->parts.model->n_layers * (g->keys_bytes + g->values_bytes);
}

int64_t lathe__states_bytes(const lathe_generator *g, int32_t i)
{
    return (g->n_slots * g->state_bytes[i] + 63) / 64 * 64;
}

/* Copies the states of slot `from` to slot `to`, in all ops, in order with the queued work. */
static lathe_status copy_states(const lathe_generator *g, int64_t from, int64_t to)
{
    char *pool = g->caches + lathe__kv_bytes(g);
    for (int32_t i = 0; i < g->n_states; i++) {
        const int64_t bytes = g->state_bytes[i];
        LATHE_TRY(lathe_move(g->parts.machine, pool + to * bytes, pool + from * bytes, bytes));
        pool += lathe__states_bytes(g, i);
    }
    return LATHE_OK;
}

static int64_t slot_of(const lathe_generator *g, const lathe__sequence *s)
{
    return s - g->slots;
}

static int64_t cached_slot(const lathe_generator *g, const lathe__cached_prompt *k)
{
    return g->batch + (k - g->cached);
}

lathe_status lathe__cache_admit(lathe_generator *g, lathe__sequence *s, int32_t shares,
                                const lathe__cached_prompt **out_cached, int32_t *out_fits)
{
    shares = may_share(g, shares) ? shares : LATHE__SHARE_NO;
    lathe__cached_prompt *k = shares ? find(g, s) : NULL;
    *out_cached = NULL;
    *out_fits = 0;
    s->n_blocks = s->computed = 0;
    s->reserved = 0;
    if (shares == LATHE__SHARE && k == NULL && is_underway(g, s))
        return LATHE_OK;
    if (g->in_blocks && k)
        s->reserved = blocks_for(s->limit) - s->n_prompt / LATHE__BLOCK_TOKENS;
    else if (g->in_blocks)
        s->reserved = blocks_for(s->limit) + (shares && s->n_prompt % LATHE__BLOCK_TOKENS != 0);
    while (unreserved(g) < s->reserved) {
        lathe__cached_prompt *old = oldest(g, k);
        if (old == NULL)
            return LATHE_OK;
        forget(g, old);
    }
    *out_fits = 1;
    s->is_active = 1;
    s->is_done = 0;
    s->offset = lathe_model_position_offset(g->parts.model, g->capacity, s->n_prompt);
    LATHE_TRY(copy_states(g, k != NULL ? cached_slot(g, k) : g->n_slots - 1, slot_of(g, s)));
    if (k == NULL)
        return LATHE_OK;
    k->used = ++g->clock;
    s->n_blocks = blocks_for(k->n);
    s->computed = k->n;
    for (int64_t i = 0; i < s->n_blocks; i++) {
        s->blocks[i] = k->blocks[i];
        g->refs[s->blocks[i]]++;
    }
    *out_cached = k;
    return LATHE_OK;
}

/* Copies row `row` of the logits to those of a kept prompt. */
static lathe_status keep_logits(const lathe_generator *g, lathe__cached_prompt *k,
                                const lathe__logits *l, int64_t row)
{
    const int64_t vocab = g->parts.model->vocab;
    if (l->rows == NULL)
        return lathe__keep_logits(g, k, l->first + row);
    k->log_sum = l->sums ? l->sums[row] : 0.0;
    memcpy(k->logits, l->rows + row * vocab, (size_t)vocab * sizeof *k->logits);
    return LATHE_OK;
}

lathe_status lathe__cache_keep(lathe_generator *g, const lathe__sequence *s, const lathe__logits *l,
                               int64_t row)
{
    if (!may_share(g, 1) || find(g, s))
        return LATHE_OK;
    lathe__cached_prompt *k = oldest(g, NULL);
    for (int32_t i = 0; i < LATHE__CACHED_PROMPTS; i++)
        if (g->cached[i].n == 0)
            k = &g->cached[i];
    if (k->n > 0)
        forget(g, k);
    k->n = s->n_prompt;
    k->used = ++g->clock;
    memcpy(k->ids, s->ids, (size_t)k->n * sizeof *k->ids);
    for (int64_t i = 0; i < blocks_for(k->n); i++) {
        k->blocks[i] = s->blocks[i];
        g->refs[k->blocks[i]]++;
    }
    LATHE_TRY(copy_states(g, slot_of(g, s), cached_slot(g, k)));
    return keep_logits(g, k, l, row);
}

static int32_t take(lathe_generator *g, lathe__sequence *s)
{
    const int32_t block = g->free_blocks[--g->n_free];
    g->least_free = g->n_free < g->least_free ? g->n_free : g->least_free;
    g->refs[block] = 1;
    s->reserved--;
    return block;
}

/* Copies the keys and values of a block, in all layers, in order with the queued work. */
static lathe_status copy_block(const lathe_generator *g, int32_t from, int32_t to)
{
    const lathe_model_config *model = g->parts.model;
    const int64_t each = LATHE__BLOCK_TOKENS * lathe_dtype_bytes(g->parts.params->compute_dtype);
    for (int32_t i = 0; i < model->n_layers; i++) {
        char *const caches[] = {lathe__layer_keys(g, i), lathe__layer_values(g, i)};
        const int64_t bytes[] = {each * lathe_model_key_width(&model->layers[i]),
                                 each * lathe_model_value_width(&model->layers[i])};
        for (int32_t v = 0; v < 2; v++)
            LATHE_TRY(lathe_move(g->parts.machine, caches[v] + to * bytes[v],
                                 caches[v] + from * bytes[v], bytes[v]));
    }
    return LATHE_OK;
}

lathe_status lathe__cache_hold(lathe_generator *g, lathe__sequence *s, int64_t begin, int64_t end)
{
    if (!g->in_blocks)
        return LATHE_OK;
    for (int64_t i = begin / LATHE__BLOCK_TOKENS; i < blocks_for(end); i++) {
        if (i >= s->n_blocks) {
            s->blocks[s->n_blocks++] = take(g, s);
        } else if (g->refs[s->blocks[i]] > 1) {
            const int32_t own = take(g, s);
            LATHE_TRY(copy_block(g, s->blocks[i], own));
            drop(g, s->blocks[i]);
            s->blocks[i] = own;
        }
    }
    return LATHE_OK;
}

lathe_status lathe__cache_restart(lathe_generator *g, lathe__sequence *s, int64_t offset)
{
    const int64_t reserved = s->reserved + s->n_blocks;
    lathe__cache_release(g, s);
    s->reserved = reserved;
    s->offset = offset;
    return copy_states(g, g->n_slots - 1, slot_of(g, s));
}

void lathe__cache_release(lathe_generator *g, lathe__sequence *s)
{
    for (int64_t i = 0; i < s->n_blocks; i++)
        drop(g, s->blocks[i]);
    s->n_blocks = s->reserved = 0;
    s->computed = 0;
}

/* The loader: turns places in the endless order of epochs into batches, and prefetches them. */
#include "data/rows/loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "data/rows/loader_internal.h"

enum { MAX_PREFETCH = 64 };

static void produce(const lathe_loader *l, int64_t place, lathe_loader_slot *s)
{
    s->status = lathe__loader_fill(l, place, s);
    if (s->status != LATHE_OK) {
        lathe_error_keep(&s->error);
        s->after = place;
    }
}

/* ---- prefetching ---- */

static void *prefetch(void *arg)
{
    lathe_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (l->count == l->n_slots) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        lathe_loader_slot *s = &l->slots[(l->head + l->count) % l->n_slots];
        const int64_t place = l->produced;
        pthread_mutex_unlock(&l->lock);
        produce(l, place, s);
        pthread_mutex_lock(&l->lock);
        l->produced = s->after;
        l->count++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static lathe_status start(lathe_loader *l)
{
    l->head = l->count = l->borrowed = l->stop = 0;
    l->produced = l->consumed;
    if (l->config.n_prefetch == 0)
        return LATHE_OK;
    if (pthread_create(&l->thread, NULL, prefetch, l) != 0)
        return lathe_error(LATHE_E_NOMEM, "cannot start the prefetch thread");
    l->threaded = 1;
    return LATHE_OK;
}

static void stop(lathe_loader *l)
{
    if (!l->threaded)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->threaded = 0;
}

lathe_status lathe_loader_next(lathe_loader *l, lathe_batch *out)
{
    lathe_loader_slot *s = &l->slots[0];
    if (l->threaded) {
        pthread_mutex_lock(&l->lock);
        if (l->borrowed) {
            l->head = (l->head + 1) % l->n_slots;
            l->count--;
            pthread_cond_broadcast(&l->changed);
        }
        l->borrowed = 1;
        while (l->count == 0)
            pthread_cond_wait(&l->changed, &l->lock);
        s = &l->slots[l->head];
        pthread_mutex_unlock(&l->lock);
    } else {
        produce(l, l->consumed, s);
    }
    if (s->status != LATHE_OK)
        return lathe_error_raise(s->status, &s->error);
    l->consumed = s->after;
    *out = s->batch;
    return LATHE_OK;
}

/* ---- creating and destroying ---- */

static lathe_status check(const lathe_loader_config *c)
{
    if (!c->shards)
        return lathe_error(LATHE_E_ARG, "a loader without shards");
    const int32_t each = lathe_row_shape_get(lathe_shards_rows(c->shards))->n_rows;
    if (c->n_rows < 1 || c->n_rows % each != 0)
        return lathe_error(LATHE_E_ARG,
                           "%d rows in a batch; expected a multiple of %d, the rows of "
                           "a record",
                           c->n_rows, each);
    if (c->n_inputs < 0 || c->n_inputs > LATHE_MAX_STAGE_INPUTS || (c->n_inputs && !c->inputs))
        return lathe_error(LATHE_E_ARG, "%d inputs; expected 0 to %d", c->n_inputs,
                           LATHE_MAX_STAGE_INPUTS);
    if (c->row_tokens < 2 || (int64_t)c->row_tokens * c->n_rows > INT32_MAX)
        return lathe_error(
            LATHE_E_ARG,
            "a batch of %d rows of %d tokens; expected rows of at least 2 tokens, and "
            "less than 2^31 tokens in all",
            c->n_rows, c->row_tokens);
    if (c->rank < 0 || c->rank >= c->n_ranks)
        return lathe_error(LATHE_E_ARG, "rank %d of %d", c->rank, c->n_ranks);
    if (!(c->validation_fraction >= 0.0 && c->validation_fraction < 1.0))
        return lathe_error(LATHE_E_ARG, "validation fraction %g; expected [0, 1)",
                           c->validation_fraction);
    if (c->validation_count < 0 || (c->validation_count > 0 && c->validation_fraction > 0.0))
        return lathe_error(LATHE_E_ARG,
                           "validation by count (%lld) and by fraction (%g) exclude each other",
                           (long long)c->validation_count, c->validation_fraction);
    if (c->packing < LATHE_PACK_SEQUENTIAL || c->packing > LATHE_PACK_NONE)
        return lathe_error(LATHE_E_ARG, "packing %d", c->packing);
    if (c->split != LATHE_SPLIT_TRAIN && c->split != LATHE_SPLIT_VALIDATION)
        return lathe_error(LATHE_E_ARG, "split %d", c->split);
    if (c->n_prefetch < 0 || c->n_prefetch > MAX_PREFETCH || c->n_epochs < 0)
        return lathe_error(LATHE_E_ARG,
                           "%d batches prepared in advance, %lld epochs; expected 0 to %d batches, "
                           "and 0 or more epochs",
                           c->n_prefetch, (long long)c->n_epochs, MAX_PREFETCH);
    return LATHE_OK;
}

int32_t lathe_packing(int32_t packing, int32_t rows)
{
    if (rows == LATHE_ROWS_COMPLETIONS && packing != LATHE_PACK_NONE)
        return LATHE_PACK_MULTIPACK;
    return packing == LATHE_PACK_AUTO ? LATHE_PACK_SEQUENTIAL : packing;
}

static lathe_status count_rows(lathe_loader *l)
{
    const lathe_loader_config *c = &l->config;
    const lathe_row_index_config config = {.shards = c->shards,
                                           .row_tokens = c->row_tokens,
                                           .packing = c->packing,
                                           .validates = c->split == LATHE_SPLIT_VALIDATION,
                                           .overlong = c->overlong,
                                           .n_validation = c->validation_count,
                                           .fraction = c->validation_fraction,
                                           .seed = c->seed};
    LATHE_TRY(lathe__row_index_init(&l->index, &config));
    l->n_epoch = l->index.n_places;
    const int64_t n_longer = c->overlong == LATHE_OVERLONG_LEAVE_OUT ? l->index.n_overlong : 0;
    if (l->n_epoch < 1)
        return lathe_error(LATHE_E_CONFIG,
                           "the data has no rows for %s: %lld %s of %lld, %lld left out "
                           "because their prompt alone fills %d tokens, %lld because they are "
                           "longer, %lld for validation only",
                           c->split == LATHE_SPLIT_TRAIN ? "training" : "validation",
                           (long long)l->index.n_kept, l->index.kind->records,
                           (long long)(l->index.n_all + l->index.n_left_out + n_longer),
                           (long long)l->index.n_left_out, c->row_tokens, (long long)n_longer,
                           (long long)l->index.n_validation);
    if (c->n_epochs > (INT64_MAX >> 8) / l->n_epoch)
        return lathe_error(LATHE_E_ARG, "%lld epochs of %lld rows", (long long)c->n_epochs,
                           (long long)l->n_epoch);
    l->limit = c->n_epochs ? c->n_epochs * l->n_epoch : -1;
    return LATHE_OK;
}

/* Computes the identity that a cursor must match: a hash of data, row settings and weights, and of
 * the mask token, which the tokenizer's files may name. */
static lathe_status identify(lathe_loader *l)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    lathe_buffer_printf(&b, "%s %d %d %lld %lld %d %d", lathe_shards_hash(l->config.shards),
                        l->config.row_tokens, l->config.split, (long long)l->index.n_all,
                        (long long)l->index.n_validation, l->config.no_shuffle, l->config.packing);
    for (int32_t d = 0; d < l->index.n_sets; d++)
        lathe_buffer_printf(&b, " %lld %lld", (long long)l->index.sets[d].n_rows,
                            (long long)l->index.sets[d].per_epoch);
    if (l->config.objective && l->config.objective->mask_token >= 0)
        lathe_buffer_printf(&b, " mask %d", l->config.objective->mask_token);
    if (b.status == LATHE_OK)
        l->identity = (int64_t)(lathe_hash64(b.data, b.len) >> 1);
    const lathe_status status = b.status;
    lathe_buffer_fini(&b);
    return status;
}

static lathe_status create_inputs(const lathe_loader *l, lathe_loader_slot *s)
{
    int64_t n = 0;
    for (int32_t i = 0; i < l->config.n_inputs; i++)
        n += lathe__loader_input_size(l, i);
    if (n == 0)
        return LATHE_OK;
    s->inputs[0] = malloc((size_t)n * sizeof(float));
    if (!s->inputs[0])
        return lathe_error(LATHE_E_NOMEM, "a batch of %lld inputs", (long long)n);
    for (int32_t i = 0; i < l->config.n_inputs; i++) {
        if (i > 0)
            s->inputs[i] = (float *)s->inputs[i - 1] + lathe__loader_input_size(l, i - 1);
        s->batch.inputs[i] = s->inputs[i];
    }
    return LATHE_OK;
}

static lathe_status create_slots(lathe_loader *l)
{
    const int64_t plane = (int64_t)l->config.n_rows * l->config.row_tokens;
    l->n_slots = l->config.n_prefetch + 1; /* one slot is with the caller */
    l->slots = calloc((size_t)l->n_slots, sizeof *l->slots);
    if (!l->slots)
        return lathe_error(LATHE_E_NOMEM, "%d batches", l->n_slots);
    for (int32_t i = 0; i < l->n_slots; i++) {
        lathe_loader_slot *s = &l->slots[i];
        s->memory = malloc((size_t)plane * 5 * sizeof *s->memory);
        if (!s->memory)
            return lathe_error(LATHE_E_NOMEM, "%d batches of %lld tokens", l->n_slots,
                               (long long)plane);
        s->batch.n_rows = l->config.n_rows;
        s->batch.row_tokens = l->config.row_tokens;
        s->batch.tokens = s->memory;
        s->batch.targets = s->memory + plane;
        s->batch.positions = s->memory + 2 * plane;
        s->batch.doc_start = s->memory + 3 * plane;
        s->batch.key_end = l->config.objective ? s->memory + 4 * plane : NULL;
        LATHE_TRY(create_inputs(l, s));
    }
    return LATHE_OK;
}

lathe_status lathe_loader_create(const lathe_loader_config *config, lathe_loader **out)
{
    lathe_loader *l = calloc(1, sizeof *l);
    if (!l)
        return lathe_error(LATHE_E_NOMEM, "loader");
    l->config = *config;
    if (l->config.n_ranks == 0)
        l->config.n_ranks = 1;
    if (config->shards)
        l->config.packing = lathe_packing(config->packing, lathe_shards_rows(config->shards));
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    lathe_status status = check(&l->config);
    if (status == LATHE_OK)
        status = count_rows(l);
    if (status == LATHE_OK) {
        l->shape = lathe_row_shape_get(lathe_shards_rows(config->shards));
        l->per_batch = l->config.n_rows / l->shape->n_rows;
        if (l->index.kind->has_records) /* lathe_prompt_next moves the cursor itself */
            l->config.n_prefetch = 0;
        status = identify(l);
    }
    if (status == LATHE_OK)
        status = create_slots(l);
    if (status == LATHE_OK)
        status = start(l);
    if (status != LATHE_OK) {
        lathe_loader_destroy(l);
        return status;
    }
    *out = l;
    return LATHE_OK;
}

void lathe_loader_destroy(lathe_loader *loader)
{
    if (!loader)
        return;
    stop(loader);
    for (int32_t i = 0; i < loader->n_slots && loader->slots; i++) {
        free(loader->slots[i].memory);
        free(loader->slots[i].inputs[0]);
    }
    free(loader->prompts);
    free(loader->slots);
    lathe__row_index_fini(&loader->index);
    pthread_mutex_destroy(&loader->lock);
    pthread_cond_destroy(&loader->changed);
    free(loader);
}

/* ---- state ---- */

void lathe_loader_cursor(const lathe_loader *loader, lathe_cursor *out)
{
    out->seed = (int64_t)loader->config.seed;
    out->epoch = loader->consumed / loader->n_epoch;
    out->index = loader->consumed % loader->n_epoch;
    out->rows_per_epoch = loader->n_epoch;
    out->identity = loader->identity;
}

lathe_status lathe_loader_check_cursor(const lathe_loader *loader, const lathe_cursor *cursor)
{
    if (cursor->seed != (int64_t)loader->config.seed)
        return lathe_error(
            LATHE_E_STATE,
            "the saved data position was made with seed %llu, but the run's seed is %llu",
            (unsigned long long)cursor->seed, (unsigned long long)loader->config.seed);
    if (cursor->rows_per_epoch != loader->n_epoch || cursor->identity != loader->identity)
        return lathe_error(
            LATHE_E_STATE,
            "the saved data position belongs to other data: an epoch had %lld rows, and has %lld "
            "now; to resume, use the same datasets, tokenizer, row length and split",
            (long long)cursor->rows_per_epoch, (long long)loader->n_epoch);
    if (cursor->epoch < 0 || cursor->index < 0 || cursor->index >= loader->n_epoch ||
        cursor->epoch > (INT64_MAX >> 8) / loader->n_epoch)
        return lathe_error(
            LATHE_E_STATE, "the saved data position is not valid: epoch %lld, row %lld of %lld",
            (long long)cursor->epoch, (long long)cursor->index, (long long)loader->n_epoch);
    return LATHE_OK;
}

lathe_status lathe_loader_seek(lathe_loader *loader, const lathe_cursor *cursor)
{
    LATHE_TRY(lathe_loader_check_cursor(loader, cursor));
    stop(loader);
    loader->consumed = lathe_loader_passed(loader, cursor);
    return start(loader);
}

int64_t lathe_loader_rows(const lathe_loader *loader)
{
    return loader->n_epoch;
}

int64_t lathe_loader_rows_of(const lathe_loader *loader, double n_epochs)
{
    const double most = (double)(INT64_MAX >> 8);
    const double n = ceil(n_epochs * (double)loader->n_epoch * (1.0 - 1e-15));
    return n < 1.0 ? 1 : n < most ? (int64_t)n : INT64_MAX >> 8;
}

int64_t lathe_loader_batch_rows(const lathe_loader *loader)
{
    return loader->per_batch * loader->config.n_ranks;
}

int64_t lathe_loader_batches_of(const lathe_loader *loader, int64_t n)
{
    const int64_t places = lathe_loader_batch_rows(loader);
    return n > 0 ? (n + places - 1) / places : 0;
}

int64_t lathe_loader_batches(const lathe_loader *loader, double n_epochs)
{
    return lathe_loader_batches_of(loader, lathe_loader_rows_of(loader, n_epochs));
}

int64_t lathe_loader_passed(const lathe_loader *loader, const lathe_cursor *cursor)
{
    return cursor->epoch * loader->n_epoch + cursor->index;
}

void lathe_loader_facts_get(const lathe_loader *loader, lathe_loader_facts *out)
{
    const lathe_row_index *x = &loader->index;
    *out = (lathe_loader_facts){.n_overlong = x->n_overlong,
                                .n_documents = x->n_kept,
                                .n_tokens = x->n_tokens,
                                .text_bytes = x->text_bytes,
                                .n_rows = x->n_rows,
                                .n_spare = x->n_spare,
                                .n_places = x->n_places,
                                .n_left_out = x->n_left_out,
                                .n_cut = x->n_cut,
                                .n_same_cut = x->n_same_cut,
                                .index_bytes = x->bytes,
                                .is_cut = x->cut,
                                .fill = (double)(x->n_tokens - x->n_spare) /
                                        ((double)x->n_rows * (double)loader->config.row_tokens)};
    memcpy(out->left_out, x->useless, sizeof out->left_out);
    memcpy(out->overlong, x->too_long, sizeof out->overlong);
    memcpy(out->same_cut, x->same_cut, sizeof out->same_cut);
}

int64_t lathe_loader_record(const lathe_loader *loader, int64_t i)
{
    return lathe__row_index_record(&loader->index, i);
}

int64_t lathe_loader_text_bytes(const lathe_loader *loader)
{
    return loader->index.text_bytes;
}

int64_t lathe_loader_tokens(const lathe_loader *loader)
{
    return loader->index.n_tokens;
}

/* Fills the batches of the loader: rows, and the inputs of the stage that records have. */
#include <string.h>

#include "data/rows/loader_internal.h"
#include "data/rows/shuffle.h"

enum { STREAM_EPOCH = 0x65706f63 };

int64_t lathe__loader_row_at(const lathe_loader *l, int64_t place)
{
    const lathe_loader_config *c = &l->config;
    const int64_t epoch = place / l->n_epoch, i = place % l->n_epoch;
    const int64_t j =
        c->no_shuffle ? i : lathe_shuffle(l->n_epoch, c->seed, (uint64_t)epoch, STREAM_EPOCH, i);
    return lathe__row_index_at(&l->index, epoch, j, !c->no_shuffle);
}

static int is_per_row(const lathe_loader *l, int32_t i)
{
    return l->config.inputs[i].per == LATHE_PER_ROW;
}

/* Numbers of input i per token or row. */
static int64_t count_of(const lathe_loader *l, int32_t i)
{
    return l->config.shapes && l->config.shapes[i].count > 1 ? l->config.shapes[i].count : 1;
}

int64_t lathe__loader_input_size(const lathe_loader *l, int32_t i)
{
    return (int64_t)l->config.n_rows * (is_per_row(l, i) ? 1 : l->config.row_tokens) *
           count_of(l, i);
}

static lathe_row row_of(const lathe_loader *l, const lathe_loader_slot *s, int64_t r)
{
    const int64_t T = s->batch.row_tokens, plane = s->batch.n_rows * T;
    int32_t *base = s->memory + r * T;
    lathe_row row = {.tokens = base,
                     .targets = base + plane,
                     .positions = base + 2 * plane,
                     .doc_start = base + 3 * plane,
                     .key_end = l->config.objective ? base + 4 * plane : NULL,
                     .n_tokens = T,
                     .n_inputs = l->config.n_inputs,
                     .stored = l->config.stored};
    for (int32_t i = 0; i < l->config.n_inputs; i++) {
        const int is_stored = l->config.inputs[i].source == LATHE_INPUT_STORED;
        const int are_tokens = is_stored && l->config.shapes[i].dtype == LATHE_I32;
        if (are_tokens)
            row.stored_ids = (int32_t *)s->inputs[i] + r * T * count_of(l, i);
        else if (is_stored)
            row.stored_values = (float *)s->inputs[i] + r * T * count_of(l, i);
        else if (!is_per_row(l, i))
            row.inputs[i] = (float *)s->inputs[i] + r * T;
        row.top_k = are_tokens ? l->config.shapes[i].count : row.top_k;
    }
    return row;
}

/* Writes the inputs of record k to row r, which has no other record. */
static void put_inputs(const lathe_loader *l, const lathe_loader_slot *s, int64_t r, int64_t k)
{
    const lathe_row row = row_of(l, s, r);
    int64_t n = 0;
    while (n < row.n_tokens && row.doc_start[n] == 0)
        n++;
    lathe__row_inputs(l->config.shards, k, 0, n, &row);
    for (int32_t i = 0; i < l->config.n_inputs; i++)
        if (is_per_row(l, i))
            ((float *)s->inputs[i])[r] = (float)lathe_shards_input(l->config.shards, k, i);
}

/* Row `row` of the i-th record of a batch. */
static int64_t place_of(const lathe_loader *l, int64_t row, int64_t i)
{
    return row * l->per_batch + i;
}

/* Fills the rows of record k, the i-th of the batch: one for each of its answers; where rows mix
 * records, then one with the answer of record `before`; -1: there is none, and that row is
 * padding. */
static lathe_status fill_record(const lathe_loader *l, int64_t i, int64_t k, int64_t before,
                                lathe_loader_slot *s)
{
    const lathe_shards *shards = l->config.shards;
    const int64_t n = l->index.kind->n_segments, n_answers = l->shape->n_answers;
    lathe_batch *b = &s->batch;
    for (int64_t a = 0; a < n_answers; a++) {
        const lathe_row row = row_of(l, s, place_of(l, a, i));
        LATHE_TRY(lathe__row_completion(shards, k, n * k + 1 + a, &row, &b->n_target));
    }
    if (n_answers == 0) {
        const lathe_row row = row_of(l, s, i);
        LATHE_TRY(lathe__row_prompt(shards, k, &row));
    }
    if (l->shape->mixes) {
        const lathe_row row = row_of(l, s, place_of(l, n_answers, i));
        if (before >= 0)
            LATHE_TRY(lathe__row_completion(shards, k, n * before + 1, &row, &b->n_target));
        else
            lathe__row_fill(&row, 0, lathe_shards_eos(shards));
    }
    b->n_records += l->shape->compares;
    for (int64_t row = 0; row < l->shape->n_rows; row++)
        put_inputs(l, s, place_of(l, row, i), k);
    return LATHE_OK;
}

/* The places of the batch of all ranks that are not padding. */
typedef struct place_range {
    int64_t begin, end;
} place_range;

static int64_t record_at(const lathe_loader *l, int64_t place)
{
    return lathe__row_index_record(&l->index, lathe__loader_row_at(l, place));
}

/* The place before, or for the first one of a batch the last; alone in its batch, as the last one
 * of an evaluation may be, the one of the batch before. -1: there is no other place. */
static int64_t place_before(const place_range *all, int64_t at)
{
    if (at > all->begin)
        return at - 1;
    return all->end - 1 > at ? all->end - 1 : at - 1;
}

/* The record at place_before; -1: there is none but the record itself. */
static int64_t record_before(const lathe_loader *l, const place_range *all, int64_t at)
{
    const int64_t place = place_before(all, at), k = place < 0 ? -1 : record_at(l, place);
    return k == record_at(l, at) ? -1 : k;
}

/* Fills the rows of place `at`, which is the i-th of this rank's batch. */
static lathe_status fill_place(const lathe_loader *l, const place_range *all, int64_t at, int64_t i,
                               lathe_loader_slot *s)
{
    if (!l->index.is_alone) {
        const lathe_row row = row_of(l, s, i);
        int64_t n_target = 0;
        LATHE_TRY(lathe__row_index_pack(&l->index, lathe__loader_row_at(l, at), &row, &n_target));
        if (l->config.objective)
            n_target = lathe__row_objective_apply(l->config.objective, l->config.seed, at, &row);
        s->batch.n_target += n_target;
        return LATHE_OK;
    }
    return fill_record(l, i, record_at(l, at), record_before(l, all, at), s);
}

static int64_t segment_tokens(const lathe_loader *l, int64_t segment)
{
    return lathe_shards_offset(l->config.shards, segment + 1) -
           lathe_shards_offset(l->config.shards, segment);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Tokens of the longest sequence in the rows of all ranks. */
static int64_t longest_sequence(const lathe_loader *l, const place_range *all)
{
    const int64_t T = l->config.row_tokens, n = l->index.kind->n_segments;
    int64_t longest = 0;
    if (!l->index.is_alone)
        return T;
    for (int64_t at = all->begin; at < all->end; at++) {
        const int64_t k = record_at(l, at);
        int64_t most = 0;
        for (int64_t a = 0; a < l->shape->n_answers; a++)
            most = larger(most, segment_tokens(l, n * k + 1 + a));
        const int64_t before = l->shape->mixes ? record_before(l, all, at) : -1;
        if (before >= 0)
            most = larger(most, segment_tokens(l, n * before + 1));
        longest = larger(longest, segment_tokens(l, n * k) + most);
    }
    return longest < T ? longest : T;
}

lathe_status lathe__loader_fill(const lathe_loader *l, int64_t place, lathe_loader_slot *s)
{
    const int32_t eos = lathe_shards_eos(l->config.shards);
    const int64_t first = place + l->config.rank * l->per_batch;
    place_range all = {place, place + l->per_batch * l->config.n_ranks};
    lathe_batch *b = &s->batch;
    b->n_target = b->n_records = b->n_filled = 0;
    b->ended = l->limit >= 0 && place >= l->limit;
    if (l->limit >= 0 && all.end > l->limit)
        all.end = b->ended ? place : l->limit;
    s->after = all.end;
    int64_t n = all.end - first; /* places of this rank that are not padding */
    n = n < 0 ? 0 : n > l->per_batch ? l->per_batch : n;
    b->n_longest = longest_sequence(l, &all);
    for (int32_t i = 0; i < l->config.n_inputs; i++)
        memset(s->inputs[i], 0, (size_t)lathe__loader_input_size(l, i) * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        LATHE_TRY(fill_place(l, &all, first + i, i, s));
    for (int64_t i = n; i < l->per_batch; i++) {
        for (int64_t row = 0; row < l->shape->n_rows; row++) {
            const lathe_row padding = row_of(l, s, place_of(l, row, i));
            lathe__row_fill(&padding, 0, eos);
        }
        b->n_filled++;
    }
    return LATHE_OK;
}

/* Divides the trained elements among the ranks of an island, and holds the outer state. */
#include "parallel/islands/islands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "parallel/islands/islands_internal.h"

enum { ALIGNED = LATHE_DELTA_ALIGNED };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* ---- parts ---- */

lathe_extent lathe__islands_row(const lathe_islands *x, int32_t row, int32_t place)
{
    const lathe_store *store = x->store;
    const lathe_param *p = store->params->rows[row];
    if (!p->trainable)
        return (lathe_extent){0, 0};
    if (store->division && store->division->n[row] > 0)
        return lathe_division_of(store->division, row, place);
    return (lathe_extent){0, lathe_desc_count(&p->desc)};
}

lathe_extent lathe__islands_part(const lathe_islands *x, int32_t copy, int32_t place)
{
    const int64_t n = x->places[(int64_t)place * (x->store->n_rows + 1) + x->store->n_rows];
    const int64_t each = round_up((n + x->layout->n_copies - 1) / x->layout->n_copies, ALIGNED);
    const int64_t begin = least(copy * each, n);
    return (lathe_extent){begin, least(begin + each, n) - begin};
}

lathe_extent lathe__islands_shard(const lathe_islands *x, int64_t n, int32_t k)
{
    const int64_t blocks = n / ALIGNED, islands = x->layout->n_islands;
    const int64_t begin = k * blocks / islands * ALIGNED;
    const int64_t end = k + 1 == islands ? n : (k + 1) * blocks / islands * ALIGNED;
    return (lathe_extent){begin, end - begin};
}

/* Elements of a row that a copy of a place has, from the begin of the row. */
static lathe_extent part_of_row(const lathe_islands *x, int32_t row, int32_t copy, int32_t place)
{
    const lathe_extent part = lathe__islands_part(x, copy, place);
    const lathe_extent own = lathe__islands_row(x, row, place);
    const int64_t at = x->places[(int64_t)place * (x->store->n_rows + 1) + row];
    const int64_t begin = at > part.begin ? at : part.begin;
    const int64_t end = least(at + own.n, part.begin + part.n);
    return (lathe_extent){own.begin + begin - at, end > begin ? end - begin : 0};
}

lathe_extent lathe_islands_part(const void *islands, int32_t family, int32_t row, int32_t copy,
                                int32_t place)
{
    const lathe_extent part = part_of_row(islands, row, copy, place);
    (void)family;
    return (lathe_extent){4 * part.begin, 4 * part.n};
}

static float *own_of(const lathe_islands *x, int32_t family, int32_t row)
{
    const lathe_rank_layout *l = x->layout;
    const lathe_extent own = lathe__islands_row(x, row, l->shard_no);
    const lathe_extent part = part_of_row(x, row, l->copy_no, l->shard_no);
    return x->state[family] + (x->row_at[row] + part.begin - own.begin - x->part.begin);
}

const void *lathe_islands_own(const void *islands, int32_t family, int32_t row)
{
    return own_of(islands, family, row);
}

void lathe_islands_put(lathe_islands *x, int32_t family, int32_t row, const float *whole)
{
    const lathe_rank_layout *l = x->layout;
    const lathe_extent part = part_of_row(x, row, l->copy_no, l->shard_no);
    if (part.n == 0 || x->state[family] == NULL)
        return;
    float *own = own_of(x, family, row);
    if (whole)
        memcpy(own, whole + part.begin, (size_t)part.n * sizeof *own);
    else
        memset(own, 0, (size_t)part.n * sizeof *own);
}

/* ---- making ---- */

static lathe_status find_part(lathe_islands *x)
{
    const int32_t n = x->store->n_rows, n_places = x->layout->n_shard;
    x->places = calloc((size_t)n_places * ((size_t)n + 1), sizeof *x->places);
    if (x->places == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the parts of %d parameters", n);
    for (int32_t p = 0; p < n_places; p++) {
        int64_t *at = x->places + (int64_t)p * (n + 1);
        for (int32_t i = 0; i < n; i++)
            at[i + 1] = at[i] + lathe__islands_row(x, i, p).n;
    }
    x->row_at = x->places + (int64_t)x->layout->shard_no * (n + 1);
    x->part = lathe__islands_part(x, x->layout->copy_no, x->layout->shard_no);
    return LATHE_OK;
}

/* Sizes of pieces and buffers. */
static void size_pieces(lathe_islands *x)
{
    const lathe_rank_layout *l = x->layout;
    const int64_t islands = l->n_islands, copies = l->n_copies;
    const int64_t unit = ALIGNED * islands;
    const int64_t fewest = round_up(ALIGNED * (islands > copies ? islands : copies), unit);
    /* the first copy has most; all copies have pieces of one size */
    const int64_t max = lathe__islands_part(x, 0, l->shard_no).n;
    int64_t piece = x->set.bucket_bytes / 4 / unit * unit;
    piece = least(piece, round_up(max, unit));
    x->piece = piece > fewest ? piece : fewest;
    x->n_pieces = (int32_t)((x->part.n + x->piece - 1) / x->piece);
    x->copied_each = x->piece / copies / ALIGNED * ALIGNED;
    x->n_copied = copies > 1 ? (int32_t)((max + x->copied_each - 1) / x->copied_each) : 0;
    if (islands < 2)
        return;
    x->decoded = x->piece / islands + ALIGNED; /* the last shard has what the others leave */
    const int64_t shard = lathe_delta_bytes(x->set.dtype, x->decoded);
    x->send_bytes = round_up(islands * shard, 64);
    x->receive_bytes = round_up(islands * shard, 64);
}

static lathe_status prepare(lathe_ranks *ranks, lathe_exchange_problem *problem,
                            lathe_exchange **out)
{
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    problem->size = (uint32_t)sizeof *problem;
    LATHE_TRY(ranks->table->prepare(ranks->group, problem, out, &info));
    return info.scratch_bytes == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_UNSUPPORTED,
                             "the engine of [collective] needs scratch memory to pass bytes "
                             "between islands, which this version does not plan");
}

/* counts: [2 * n_islands] scratch. */
static lathe_status prepare_piece(lathe_islands *x, int32_t k, int64_t *counts)
{
    const int32_t n = x->layout->n_islands;
    char label[64];
    lathe__piece *p = &x->pieces[k];
    int64_t all = 0;
    p->at = k * x->piece;
    p->n = least(x->piece, x->part.n - p->at);
    if (x->layout->others == NULL)
        return LATHE_OK;
    const int64_t own =
        lathe_delta_bytes(x->set.dtype, lathe__islands_shard(x, p->n, x->layout->island_no).n);
    for (int32_t i = 0; i < n; i++) {
        counts[i] = lathe_delta_bytes(x->set.dtype, lathe__islands_shard(x, p->n, i).n);
        counts[n + i] = own;
        all += counts[i];
    }
    (void)snprintf(label, sizeof label, "changes %d of %d", k + 1, x->n_pieces);
    lathe_exchange_problem scatter = {.op = LATHE_ALL_TO_ALL,
                                      .dtype = LATHE_U8,
                                      .counts = counts,
                                      .from = counts + n,
                                      .label = label};
    LATHE_TRY(prepare(x->layout->others, &scatter, &p->scatter));
    lathe_exchange_problem gather = {
        .op = LATHE_ALL_GATHER, .dtype = LATHE_U8, .n = all, .counts = counts, .label = label};
    return prepare(x->layout->others, &gather, &p->gather);
}

/* The weights of all copies' parts, copied_each at a time. counts: [n_copies] scratch. */
static lathe_status prepare_copied(lathe_islands *x, int32_t k, int64_t *counts)
{
    const lathe_rank_layout *l = x->layout;
    char label[64];
    int64_t all = 0;
    for (int32_t c = 0; c < l->n_copies; c++) {
        const int64_t left = lathe__islands_part(x, c, l->shard_no).n - k * x->copied_each;
        counts[c] = left < 0 ? 0 : least(left, x->copied_each);
        all += counts[c];
    }
    (void)snprintf(label, sizeof label, "weights %d of %d of an island", k + 1, x->n_copied);
    lathe_exchange_problem gather = {
        .op = LATHE_ALL_GATHER, .dtype = LATHE_F32, .n = all, .counts = counts, .label = label};
    return prepare(l->copies, &gather, &x->copied[k]);
}

static lathe_status prepare_all(lathe_islands *x)
{
    const lathe_rank_layout *l = x->layout;
    const int32_t max = 2 * l->n_islands > l->n_copies ? 2 * l->n_islands : l->n_copies;
    int64_t *counts = calloc((size_t)max, sizeof *counts);
    x->pieces = calloc((size_t)x->n_pieces + 1, sizeof *x->pieces);
    x->copied = calloc((size_t)x->n_copied + 1, sizeof *x->copied);
    lathe_status status = counts && x->pieces && x->copied
                              ? LATHE_OK
                              : lathe_error(LATHE_E_NOMEM, "no memory for the exchange of islands");
    for (int32_t k = 0; status == LATHE_OK && k < x->n_pieces; k++)
        status = prepare_piece(x, k, counts);
    for (int32_t k = 0; status == LATHE_OK && l->copies && k < x->n_copied; k++)
        status = prepare_copied(x, k, counts);
    free(counts);
    return status;
}

lathe_status lathe_islands_create(const lathe_rank_layout *layout, lathe_store *store,
                                  const lathe_island_settings *settings, lathe_islands **out)
{
    lathe_islands *x = calloc(1, sizeof *x);
    if (x == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for islands");
    x->set = *settings;
    x->layout = layout;
    x->store = store;
    lathe_status status = find_part(x);
    if (status == LATHE_OK) {
        size_pieces(x);
        status = prepare_all(x);
    }
    if (status != LATHE_OK) {
        lathe_islands_destroy(x);
        return status;
    }
    *out = x;
    return LATHE_OK;
}

void lathe_islands_destroy(lathe_islands *x)
{
    if (x == NULL)
        return;
    for (int32_t k = 0; x->pieces && k < x->n_pieces; k++) {
        if (x->pieces[k].scatter)
            x->layout->others->table->exchange_destroy(x->pieces[k].scatter);
        if (x->pieces[k].gather)
            x->layout->others->table->exchange_destroy(x->pieces[k].gather);
    }
    for (int32_t k = 0; x->copied && k < x->n_copied; k++)
        if (x->copied[k])
            x->layout->copies->table->exchange_destroy(x->copied[k]);
    free(x->pieces);
    free((void *)x->copied);
    free(x->places);
    free(x);
}

void lathe_islands_enter(lathe_islands *x, int64_t max_steps)
{
    x->set.max_steps = max_steps;
    lathe_islands_begin(x);
    x->is_within = 1;
}

/* ---- memory ---- */

static int64_t family_bytes(const lathe_islands *x)
{
    return round_up(4 * x->part.n, 64);
}

static int64_t state_bytes(const lathe_islands *x)
{
    return family_bytes(x) * (LATHE_N_OUTER - !lathe_islands_has_error(x));
}

static int64_t buffer_bytes(const lathe_islands *x)
{
    return 4 * (x->piece + x->decoded) + x->send_bytes + x->receive_bytes;
}

void lathe_islands_bytes(const lathe_islands *x, lathe_mem_bytes *bytes)
{
    if (x == NULL)
        return;
    bytes->by[LATHE_MEM_OPTIMIZER] += state_bytes(x);
    bytes->by[LATHE_MEM_STAGING] += buffer_bytes(x);
}

lathe_status lathe_islands_place(lathe_islands *x, lathe_machine *m)
{
    void *memory = NULL;
    if (x == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_OPTIMIZER, state_bytes(x), &memory));
    x->memory = memory;
    if (x->memory)
        memset(x->memory, 0, (size_t)state_bytes(x));
    for (int32_t f = 0; f < LATHE_N_OUTER; f++)
        if (f != LATHE_OUTER_ERROR || lathe_islands_has_error(x))
            x->state[f] = (float *)(void *)(x->memory + f * family_bytes(x));
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_STAGING, buffer_bytes(x), &memory));
    x->buffers = memory;
    return LATHE_OK;
}

void lathe_islands_unplace(lathe_islands *x, lathe_machine *m)
{
    if (x == NULL)
        return;
    lathe_machine_free(m, LATHE_MEM_OPTIMIZER, state_bytes(x), x->memory);
    lathe_machine_free(m, LATHE_MEM_STAGING, buffer_bytes(x), x->buffers);
    x->memory = x->buffers = NULL;
}

/* ---- counters ---- */

int32_t lathe_islands_ends_round(const lathe_islands *x, int64_t step)
{
    return x && (step % x->set.inner_steps == 0 || step == x->set.max_steps);
}

int64_t lathe_islands_take_sent(lathe_islands *x, int64_t *out_across)
{
    const int64_t sent = x ? x->sent_bytes : 0;
    *out_across = x ? x->across_bytes : 0;
    if (x)
        x->sent_bytes = x->across_bytes = 0;
    return sent;
}

void lathe_islands_note(lathe_islands *x, int64_t tokens, int32_t stops)
{
    x->tokens += tokens;
    x->wants_stop |= stops;
}

void lathe_islands_note_skip(lathe_islands *x)
{
    x->skipped++;
}

/* Numbers that a rank tells when a round ends; the first rank of an island tells its sums. */
enum { TOKENS, SKIPPED, IN_ROW, STOPS, N_TOLD };

lathe_status lathe_islands_agree(lathe_islands *x, int64_t skipped_in_row, int64_t *out_tokens)
{
    const lathe_rank_layout *l = x->layout;
    const int is_first = l->copy_no == 0 && l->shard_no == 0; /* of its island */
    const double own[N_TOLD] = {is_first ? (double)x->tokens : 0.0,
                                is_first ? (double)x->skipped : 0.0, (double)skipped_in_row,
                                x->wants_stop},
                 *all = own;
    double tokens = 0.0, skipped = 0.0, max = -1.0;
    const int32_t n = l->all ? l->all->info.n_ranks : 1;
    if (l->all)
        LATHE_TRY(lathe_ranks_gather(l->all, own, N_TOLD, 0, &all));
    x->stop = 0;
    for (int32_t q = 0; q < n; q++) {
        const double *its = all + (int64_t)q * LATHE_RANK_NUMBERS;
        tokens += its[TOKENS];
        skipped += its[SKIPPED];
        x->stop |= its[STOPS] != 0.0;
        if (its[IN_ROW] > max) {
            max = its[IN_ROW];
            x->max_rank = q;
        }
    }
    *out_tokens = l->all ? (int64_t)tokens - x->tokens : 0;
    x->skipped_elsewhere += l->all ? (int64_t)skipped - x->skipped : 0;
    x->max_in_row = (int64_t)max;
    x->tokens = x->skipped = 0;
    return LATHE_OK;
}

int64_t lathe_islands_skipped(const lathe_islands *x)
{
    return x ? x->skipped_elsewhere : 0;
}

int64_t lathe_islands_skipped_in_row(const lathe_islands *x, int32_t *out_rank)
{
    *out_rank = x->max_rank;
    return x->max_in_row;
}

int32_t lathe_islands_stop(const lathe_islands *x)
{
    return x->stop;
}

int32_t lathe_islands_count(const lathe_islands *x)
{
    return x->layout->n_islands;
}

const lathe_rank_layout *lathe_islands_layout(const lathe_islands *x)
{
    return x->layout;
}

const lathe_island_settings *lathe_islands_settings(const lathe_islands *x)
{
    return &x->set;
}

int64_t lathe_islands_tokens(const lathe_islands *x)
{
    return x->tokens;
}

int32_t lathe_islands_has_error(const lathe_islands *x)
{
    return x->layout->n_islands > 1 && lathe_delta_has_error(x->set.dtype);
}

int32_t lathe_islands_is_within(const lathe_islands *x)
{
    return x->is_within;
}

void lathe_islands_resume(lathe_islands *x, int64_t tokens, int64_t skipped, int32_t is_within)
{
    x->tokens = tokens;
    x->skipped = 0;
    x->skipped_elsewhere = skipped;
    x->is_within = is_within;
    x->has_begun = 1;
}

void lathe_islands_restart(lathe_islands *x)
{
    memset(x->memory, 0, (size_t)state_bytes(x));
    x->tokens = x->skipped = x->skipped_elsewhere = 0;
    x->has_begun = x->is_within = 0;
}

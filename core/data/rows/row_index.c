/* Builds the row index and finds rows in it. */
#include "data/rows/row_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/rows/shuffle.h"

enum { STREAM_SPLIT = 0x73706c74, STREAM_LAP = 0x6c617073 };

static int bit(const uint64_t *bits, int64_t i)
{
    return (int)(bits[i / 64] >> (i % 64) & 1);
}

static void set_bit(uint64_t *bits, int64_t i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}

/* Allocates n zeroed elements and counts their bytes. */
static lathe_status take(lathe_row_index *x, int64_t n, int64_t size, void *out)
{
    void *memory = calloc((size_t)(n ? n : 1), (size_t)size);
    if (!memory)
        return lathe_error(LATHE_E_NOMEM, "an index of rows: %lld bytes", (long long)(n * size));
    memcpy(out, &memory, sizeof memory);
    x->bytes += n * size;
    return LATHE_OK;
}

/* Whether a document (pair) belongs to the split. */
static int is_kept(const lathe_row_index *x, int64_t document)
{
    if (x->left_out && bit(x->left_out, document))
        return 0;
    if (x->cut)
        return 1;
    return x->validation ? bit(x->validation, document) == x->config.validates
                         : !x->config.validates;
}

/* Where segment i begins, limited to the tokens that the split may use. */
static int64_t offset_of(const lathe_row_index *x, int64_t segment)
{
    const int64_t at = lathe_shards_offset(x->config.shards, segment);
    return at < x->low ? x->low : at > x->high ? x->high : at;
}

static int64_t length_of(const lathe_row_index *x, int64_t segment)
{
    return offset_of(x, segment + 1) - offset_of(x, segment);
}

/* ---- selecting documents ---- */

/* Whether record k has no target in its first T tokens: a pair whose prompt fills the row, or an
 * example whose completion begins later. The first token of a document is never a target. */
static int is_useless(const lathe_row_index *x, int64_t k)
{
    const lathe_shards *shards = x->config.shards;
    const int64_t n = x->kind->n_segments, T = x->config.row_tokens;
    const int64_t begin = lathe_shards_offset(shards, n * k);
    const int64_t next = lathe_shards_offset(shards, n * k + 1);
    if (x->is_alone)
        return next - begin >= T;
    const int64_t end = next - begin < T ? next : begin + T;
    return lathe_shards_first_target(shards, begin + 1, end) >= end;
}

/* Length of the row that record k needs to be whole; for a pair, of the longer row. */
static int64_t row_tokens_of(const lathe_row_index *x, int64_t k)
{
    const int64_t n = x->kind->n_segments;
    int64_t longest = 0;
    for (int64_t i = 1; i < n; i++) {
        const int64_t completion = length_of(x, n * k + i);
        longest = completion > longest ? completion : longest;
    }
    return length_of(x, n * k) + longest;
}

/* Counts a record, and keeps it if it is one of the first. */
static void count(int64_t *n, int64_t list[LATHE_ROW_EXAMPLES], int64_t k)
{
    if (*n < LATHE_ROW_EXAMPLES)
        list[*n] = k;
    ++*n;
}

/* Whether two answers of a record, in segments a and b, are equal in the n tokens that fit. */
static lathe_status are_same_cut(const lathe_row_index *x, int64_t a, int64_t b, int64_t n,
                                 int *out)
{
    const lathe_shards *shards = x->config.shards;
    const int64_t first = lathe_shards_offset(shards, a), second = lathe_shards_offset(shards, b);
    *out = 0;
    if (lathe_shards_offset(shards, a + 1) - first < n ||
        lathe_shards_offset(shards, b + 1) - second < n)
        return LATHE_OK; /* the cut takes the end of one of them alone, or of none */
    int32_t *ids = malloc((size_t)n * 2 * sizeof *ids);
    if (!ids)
        return lathe_error(LATHE_E_NOMEM, "rows of %lld tokens", (long long)n);
    lathe_status status = lathe_shards_read(shards, first, first + n, ids);
    if (status == LATHE_OK)
        status = lathe_shards_read(shards, second, second + n, ids + n);
    *out = status == LATHE_OK && memcmp(ids, ids + n, (size_t)n * sizeof *ids) == 0;
    free(ids);
    return status;
}

/* Whether all answers of a record are equal in the tokens that fit a row, and cut there. */
static lathe_status is_same_cut(const lathe_row_index *x, int64_t k, int *out)
{
    const int64_t at = x->kind->n_segments * k;
    const int64_t n = x->config.row_tokens - (lathe_shards_offset(x->config.shards, at + 1) -
                                              lathe_shards_offset(x->config.shards, at));
    *out = 1;
    for (int32_t a = 1; a < x->kind->n_answers && *out; a++)
        LATHE_TRY(are_same_cut(x, at + 1, at + 1 + a, n, out));
    return LATHE_OK;
}

/* Marks the records with nothing to learn, and, if they are to be left out, those that are longer
 * than a row. */
static lathe_status leave_out(lathe_row_index *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const int useless = is_useless(x, k);
        if (useless)
            count(&x->n_left_out, x->useless, k);
        else if (row_tokens_of(x, k) > x->config.row_tokens)
            count(&x->n_overlong, x->too_long, k);
        else
            continue;
        int is_same = 0;
        if (!useless && x->kind->n_answers > 1 && x->config.overlong != LATHE_OVERLONG_LEAVE_OUT)
            LATHE_TRY(is_same_cut(x, k, &is_same));
        if (is_same)
            count(&x->n_same_cut, x->same_cut, k);
        if (!useless && x->config.overlong != LATHE_OVERLONG_LEAVE_OUT)
            continue;
        if (!x->left_out)
            LATHE_TRY(take(x, (n + 63) / 64, 8, &x->left_out));
        set_bit(x->left_out, k);
    }
    return LATHE_OK;
}

/* Records of both splits that are left out. */
static int64_t n_unused(const lathe_row_index *x)
{
    return x->n_left_out + (x->config.overlong == LATHE_OVERLONG_LEAVE_OUT ? x->n_overlong : 0);
}

/* The first document (pair) from `at` on that can be used. */
static int64_t next_usable(const lathe_row_index *x, int64_t at)
{
    while (x->left_out && bit(x->left_out, at))
        at++;
    return at;
}

/* Divides the only document: its last tokens become the validation split. */
static void cut_document(lathe_row_index *x)
{
    const int64_t n = x->high;
    int64_t k = (int64_t)(x->config.fraction * (double)n + 0.5);
    k = k < 1 ? 1 : k;
    x->cut = 1;
    if (x->config.validates)
        x->low = n - k;
    else
        x->high = n - k;
}

/* Validation leaves nothing to train on, because most of the n records cannot be used. */
static lathe_status refuse_few(const lathe_row_index *x, int64_t n)
{
    const char *what = x->kind->records;
    const long long longer = (long long)(n_unused(x) - x->n_left_out);
    lathe_buffer why = LATHE_BUFFER_INIT;
    if (x->n_left_out > 0)
        lathe_buffer_printf(&why, "%lld have nothing to learn within %d tokens",
                            (long long)x->n_left_out, x->config.row_tokens);
    if (longer > 0)
        lathe_buffer_printf(&why, "%s%lld are longer than that", x->n_left_out > 0 ? ", " : "",
                            longer);
    const lathe_status status = lathe_error(
        LATHE_E_CONFIG,
        "%lld of the %lld %s can be used, and validation takes %lld: that leaves none to train on; "
        "rows hold data.seq_len = %d tokens: %s; set data.seq_len higher, or give more %s",
        (long long)x->n_all, (long long)n, what, (long long)x->n_validation, x->config.row_tokens,
        why.status == LATHE_OK ? why.data : "", what);
    lathe_buffer_fini(&why);
    return status;
}

static lathe_status choose_validation(lathe_row_index *x, int64_t n)
{
    const lathe_row_index_config *c = &x->config;
    const char *what = x->kind->records;
    x->n_all = n - n_unused(x);
    int64_t k = c->n_validation;
    if (k == 0 && c->fraction > 0.0) {
        k = (int64_t)(c->fraction * (double)x->n_all + 0.5);
        k = k > 0 ? k : 1;
    }
    x->n_validation = k;
    if (k == 0)
        return LATHE_OK;
    if (x->n_all == 1 && lathe_shards_rows(c->shards) == LATHE_ROWS_PACKED && c->fraction > 0.0) {
        cut_document(x);
        return LATHE_OK;
    }
    if (k >= x->n_all && n_unused(x) > 0)
        return refuse_few(x, n);
    if (k >= x->n_all)
        return lathe_error(
            LATHE_E_CONFIG,
            "validation takes whole %s, %lld of %lld: that leaves none to train on; give more "
            "%s (a text file is one document), or name files of their own in data.validation",
            what, (long long)k, (long long)x->n_all, what);
    LATHE_TRY(take(x, (n + 63) / 64, 8, &x->validation));
    if (!x->left_out) {
        for (int64_t i = 0; i < k; i++)
            set_bit(x->validation, lathe_shuffle(n, c->seed, 0, STREAM_SPLIT, i));
        return LATHE_OK;
    }
    /* The usable documents are numbered; the j-th one is marked if the shuffle selects j. */
    uint64_t *chosen = calloc((size_t)(x->n_all + 63) / 64, 8);
    if (!chosen)
        return lathe_error(LATHE_E_NOMEM, "choosing %lld of %lld pairs", (long long)k,
                           (long long)x->n_all);
    for (int64_t i = 0; i < k; i++)
        set_bit(chosen, lathe_shuffle(x->n_all, c->seed, 0, STREAM_SPLIT, i));
    for (int64_t j = 0, at = 0; j < x->n_all; j++, at++) {
        at = next_usable(x, at);
        if (bit(chosen, j))
            set_bit(x->validation, at);
    }
    free(chosen);
    return LATHE_OK;
}

/* ---- rows of one dataset ---- */

/* Whether the whole dataset belongs to the split, so that documents need no check. */
static int takes_all(const lathe_row_index *x)
{
    return !x->validation && !x->left_out && (x->cut || !x->config.validates);
}

/* Bytes of text of segments [begin, end). For a divided document, its share of the tokens. */
static int64_t text_bytes_of(const lathe_row_index *x, int64_t begin, int64_t end)
{
    const int64_t bytes = lathe_shards_text_bytes(x->config.shards, begin, end);
    if (!x->cut)
        return bytes;
    return (int64_t)((double)bytes * (double)(x->high - x->low) /
                         (double)lathe_shards_tokens(x->config.shards) +
                     0.5);
}

/* Rows that n tokens fill. A last row of one token is not made: it would have no target, and the
 * token is already the target of the one before it. */
static int64_t rows_of(int64_t n, int64_t T)
{
    return n > T && n % T == 1 ? n / T : (n + T - 1) / T;
}

/* Whether rows are made of whole documents, or of pieces of long ones. */
static int makes_pieces(const lathe_row_index *x)
{
    return !x->is_alone && x->config.packing != LATHE_PACK_SEQUENTIAL;
}

/* Counts the documents, tokens and rows that a dataset gives to the split; for multipack also
 * pieces. */
static void count_set(lathe_row_index *x, lathe_row_set *set)
{
    const int64_t T = x->config.row_tokens, step = x->kind->n_segments;
    int64_t n_tokens = 0;
    if (takes_all(x)) {
        const int64_t n = (set->end_segment - set->first_segment) / step;
        n_tokens = offset_of(x, set->end_segment) - offset_of(x, set->first_segment);
        x->text_bytes += text_bytes_of(x, set->first_segment, set->end_segment);
        x->n_kept += n;
        set->n_rows = n;
    }
    const int multipack = makes_pieces(x);
    for (int64_t s = set->first_segment; s < set->end_segment; s += step) {
        if (takes_all(x) && !multipack && !x->is_alone)
            break;
        if (!is_kept(x, s / step))
            continue;
        const int64_t length = row_tokens_of(x, s / step);
        x->n_pieces += x->kind->is_masked ? 1 : rows_of(length, T); /* only multipack uses it */
        x->n_spare += multipack && !x->kind->is_masked && length > T && length % T == 1;
        x->n_cut += (x->kind->is_masked || x->is_alone) && length > T;
        if (x->kind->is_masked && length > T)
            n_tokens -= length - T;
        if (takes_all(x))
            continue;
        n_tokens += offset_of(x, s + step) - offset_of(x, s);
        x->n_kept++;
        x->text_bytes += text_bytes_of(x, s, s + step);
        set->n_rows++;
    }
    x->n_tokens += n_tokens;
    if (!x->is_alone)
        set->n_rows = rows_of(n_tokens, T);
    x->n_spare += !x->is_alone && !multipack && n_tokens > T && n_tokens % T == 1;
}

static void list_records(lathe_row_index *x, const lathe_row_set *set)
{
    const int64_t step = x->kind->n_segments;
    int64_t row = set->first_row;
    for (int64_t s = set->first_segment; s < set->end_segment; s += step)
        if (is_kept(x, s / step))
            x->kept[row++] = s / step;
}

static void list_starts(lathe_row_index *x, const lathe_row_set *set)
{
    const int64_t T = x->config.row_tokens;
    int64_t row = set->first_row, filled = T; /* filled: tokens of the current row */
    for (int64_t s = set->first_segment; s < set->end_segment; s++) {
        if (!is_kept(x, s))
            continue;
        const int64_t n = length_of(x, s), begin = offset_of(x, s);
        for (int64_t at = 0; at < n;) {
            if (filled == T) {
                if (row == set->first_row + set->n_rows)
                    return; /* one token is left */
                x->starts[row++] = (lathe_row_start){s, begin + at};
                filled = 0;
            }
            const int64_t k = n - at < T - filled ? n - at : T - filled;
            filled += k;
            at += k;
        }
    }
}

/* Packs the dataset's pieces, x->pieces[at] and following, into rows. */
static lathe_status pack_set(lathe_row_index *x, lathe_row_set *set, int64_t at)
{
    const int64_t T = x->config.row_tokens, begin = at;
    for (int64_t s = set->first_segment; s < set->end_segment; s++) {
        if (!is_kept(x, s))
            continue;
        const int64_t first = offset_of(x, s), n = length_of(x, s);
        const int64_t end = x->kind->is_masked ? 1 : rows_of(n, T) * T;
        for (int64_t k = 0; k < n && k < end; k += T)
            x->pieces[at++] = (lathe_row_piece){first + k, (int32_t)(n - k < T ? n - k : T),
                                                n - k > T && !x->kind->is_masked};
    }
    int64_t *rows = x->row_pieces + set->first_row;
    if (x->config.packing == LATHE_PACK_NONE) {
        set->n_rows = at - begin;
        for (int64_t r = 0; r <= set->n_rows; r++)
            rows[r] = begin + r;
        return LATHE_OK;
    }
    LATHE_TRY(
        lathe__multipack(x->pieces + begin, at - begin, T, LATHE_PACK_WINDOW, rows, &set->n_rows));
    for (int64_t r = 0; r < set->n_rows; r++)
        rows[r] += begin;
    rows[set->n_rows] = at;
    return LATHE_OK;
}

/* ---- all rows ---- */

static lathe_status pack_all(lathe_row_index *x)
{
    LATHE_TRY(take(x, x->n_pieces, (int64_t)sizeof *x->pieces, &x->pieces));
    LATHE_TRY(take(x, x->n_pieces + 1, 8, &x->row_pieces));
    x->n_rows = 0;
    for (int32_t d = 0; d < x->n_sets; d++) {
        lathe_row_set *set = &x->sets[d];
        set->first_row = x->n_rows;
        LATHE_TRY(pack_set(x, set, x->n_rows ? x->row_pieces[x->n_rows] : 0));
        x->n_rows += set->n_rows;
    }
    int64_t *smaller = realloc(x->row_pieces, (size_t)(x->n_rows + 1) * 8);
    if (smaller) {
        x->bytes -= (x->n_pieces - x->n_rows) * 8;
        x->row_pieces = smaller;
    }
    return LATHE_OK;
}

static lathe_status list_rows(lathe_row_index *x)
{
    for (int32_t d = 0; d < x->n_sets; d++) {
        lathe_row_set *set = &x->sets[d];
        count_set(x, set);
        set->first_row = x->n_rows;
        x->n_rows += set->n_rows;
    }
    if (makes_pieces(x))
        return pack_all(x);
    if (takes_all(x))
        return LATHE_OK;
    if (x->is_alone)
        LATHE_TRY(take(x, x->n_rows, 8, &x->kept));
    else
        LATHE_TRY(take(x, x->n_rows, (int64_t)sizeof *x->starts, &x->starts));
    for (int32_t d = 0; d < x->n_sets; d++) {
        if (x->is_alone)
            list_records(x, &x->sets[d]);
        else
            list_starts(x, &x->sets[d]);
    }
    return LATHE_OK;
}

/* Computes how many places each dataset has in an epoch. Evaluation uses each row once. */
static lathe_status weigh(lathe_row_index *x)
{
    for (int32_t d = 0; d < x->n_sets; d++) {
        lathe_row_set *set = &x->sets[d];
        const double weight =
            x->config.validates ? 1.0 : lathe_shards_set_get(x->config.shards, d)->weight;
        const double places = floor(weight * (double)set->n_rows + 0.5);
        if (!(weight > 0.0) || !(places < 0x1p60))
            return lathe_error(LATHE_E_ARG, "dataset %d: weight %g of %lld rows", d, weight,
                               (long long)set->n_rows);
        set->per_epoch = places < 1.0 ? set->n_rows > 0 : (int64_t)places;
        set->first_place = x->n_places;
        x->n_places += set->per_epoch;
    }
    return LATHE_OK;
}

lathe_status lathe__row_index_init(lathe_row_index *x, const lathe_row_index_config *config)
{
    memset(x, 0, sizeof *x);
    x->config = *config;
    x->kind = lathe_row_kind_get(lathe_shards_rows(config->shards));
    x->is_alone = lathe_row_shape_get(lathe_shards_rows(config->shards))->is_padded;
    x->n_sets = (int32_t)lathe_shards_sets(config->shards);
    const int64_t n = lathe_shards_segments(config->shards) / x->kind->n_segments;
    x->high = lathe_shards_tokens(config->shards);
    LATHE_TRY(take(x, x->n_sets, (int64_t)sizeof *x->sets, &x->sets));
    for (int32_t d = 0; d < x->n_sets; d++) {
        const lathe_shards_set *set = lathe_shards_set_get(config->shards, d);
        x->sets[d].first_segment = set->first_segment;
        x->sets[d].end_segment = set->first_segment + set->n_segments;
    }
    if (lathe_shards_rows(config->shards) != LATHE_ROWS_PACKED)
        LATHE_TRY(leave_out(x, n));
    LATHE_TRY(choose_validation(x, n));
    LATHE_TRY(list_rows(x));
    return weigh(x);
}

void lathe__row_index_fini(lathe_row_index *x)
{
    free(x->sets);
    free(x->validation);
    free(x->left_out);
    free(x->kept);
    free(x->starts);
    free(x->pieces);
    free(x->row_pieces);
    memset(x, 0, sizeof *x);
}

/* ---- lookup ---- */

int64_t lathe__row_index_at(const lathe_row_index *x, int64_t epoch, int64_t place,
                            int32_t shuffled)
{
    /* find the last dataset that begins at or before the place */
    int32_t low = 0, high = x->n_sets;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (x->sets[middle].first_place <= place)
            low = middle;
        else
            high = middle;
    }
    const lathe_row_set *set = &x->sets[low];
    const int64_t i = place - set->first_place;
    /* the weight is a whole number: the order within the epoch is enough */
    if (set->per_epoch % set->n_rows == 0)
        return set->first_row + i % set->n_rows;
    const int64_t laps_place = epoch * set->per_epoch + i;
    const int64_t lap = laps_place / set->n_rows, at = laps_place % set->n_rows;
    return set->first_row + (shuffled ? lathe_shuffle(set->n_rows, x->config.seed, (uint64_t)lap,
                                                      STREAM_LAP + (uint32_t)low, at)
                                      : at);
}

static lathe_status pack_pieces(const lathe_row_index *x, int64_t r, const lathe_row *out,
                                int64_t *n_target)
{
    int64_t at = 0;
    for (int64_t k = x->row_pieces[r]; k < x->row_pieces[r + 1]; k++) {
        const lathe_row_piece *p = &x->pieces[k];
        LATHE_TRY(lathe__row_piece(x->config.shards, p->begin, p->n, p->more, at, out, n_target));
        at += p->n;
    }
    lathe__row_fill(out, at, lathe_shards_eos(x->config.shards));
    return LATHE_OK;
}

/* Packs documents one after another, from token `from` of the stream on, which is in `segment`. */
static lathe_status pack_run(const lathe_row_index *x, const lathe_row_set *set, int64_t segment,
                             int64_t from, const lathe_row *out, int64_t *n_target)
{
    int64_t at = 0;
    for (; at < out->n_tokens && segment < set->end_segment; segment++) {
        const int64_t begin = offset_of(x, segment), end = offset_of(x, segment + 1);
        if (!is_kept(x, segment))
            continue;
        from = from > begin ? from : begin;
        const int64_t left = end - from, room = out->n_tokens - at;
        const int64_t n = left < room ? left : room;
        if (n < 0) {
            LATHE_TRY(lathe_shards_check(x->config.shards));
            return lathe_error(LATHE_E_IO, "the prepared data changed while it was read");
        }
        if (n > 0)
            LATHE_TRY(lathe__row_piece(x->config.shards, from, n, left > room, at, out, n_target));
        at += n;
    }
    /* If the row has no tokens, no ids were read, and so a file that became shorter was not
     * noticed. */
    if (at == 0)
        LATHE_TRY(lathe_shards_check(x->config.shards));
    lathe__row_fill(out, at, lathe_shards_eos(x->config.shards));
    return LATHE_OK;
}

static const lathe_row_set *set_of_row(const lathe_row_index *x, int64_t row)
{
    int32_t low = 0, high = x->n_sets;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (x->sets[middle].first_row <= row)
            low = middle;
        else
            high = middle;
    }
    return &x->sets[low];
}

lathe_status lathe__row_index_pack(const lathe_row_index *x, int64_t row, const lathe_row *out,
                                   int64_t *n_target)
{
    if (x->pieces)
        return pack_pieces(x, row, out, n_target);
    const lathe_row_set *set = set_of_row(x, row);
    if (x->starts)
        return pack_run(x, set, x->starts[row].segment, x->starts[row].offset, out, n_target);
    const int64_t begin =
        offset_of(x, set->first_segment) + (row - set->first_row) * x->config.row_tokens;
    return pack_run(x, set, lathe_shards_find(x->config.shards, begin), begin, out, n_target);
}

int64_t lathe__row_index_record(const lathe_row_index *x, int64_t row)
{
    if (x->kept)
        return x->kept[row];
    const lathe_row_set *set = set_of_row(x, row);
    return set->first_segment / x->kind->n_segments + row - set->first_row;
}

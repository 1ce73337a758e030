/* The set of shards, in memory or from files: one stream of segments over all of them. */
#include "data/rows/shards.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "data/records/row_kind.h"
#include "data/rows/shards_internal.h"
#include "lathe/rng.h"

lathe_status lathe__shards_create(int64_t n_sets, int32_t rows, int32_t eos, int64_t vocab_size,
                                  lathe_shards **out)
{
    lathe_shards *shards = calloc(1, sizeof *shards);
    if (shards)
        shards->sets = calloc((size_t)(n_sets ? n_sets : 1), sizeof *shards->sets);
    if (!shards || !shards->sets) {
        free(shards);
        return lathe_error(LATHE_E_NOMEM, "%lld datasets", (long long)n_sets);
    }
    shards->rows = rows;
    shards->eos = eos;
    shards->vocab_size = vocab_size;
    *out = shards;
    return LATHE_OK;
}

void lathe__shards_begin(lathe_shards *shards, double weight)
{
    lathe_shards_set *set = &shards->sets[shards->n_sets++];
    set->first_segment = shards->n_segments;
    set->first_token = shards->n_tokens;
    set->weight = weight == 0.0 ? 1.0 : weight;
}

lathe_status lathe__shards_add(lathe_shards *shards, const lathe_shard *shard)
{
    if (shards->n == shards->capacity) {
        const int64_t capacity = shards->capacity * 2 + 8;
        lathe_shard *list = realloc(shards->list, (size_t)capacity * sizeof *list);
        if (!list)
            return lathe_error(LATHE_E_NOMEM, "%lld shards", (long long)capacity);
        shards->list = list;
        shards->capacity = capacity;
    }
    lathe_shard *slot = &shards->list[shards->n++];
    lathe_shards_set *set = &shards->sets[shards->n_sets - 1];
    *slot = *shard;
    slot->first_token = shards->n_tokens;
    slot->first_segment = shards->n_segments;
    shards->n_tokens += slot->n_tokens;
    shards->n_segments += slot->n_segments;
    shards->n_skipped += slot->n_skipped;
    lathe__record_notes_add(&set->notes, &slot->notes);
    lathe__record_counts_add(&set->counts, &slot->counts,
                             slot->first_segment / lathe_row_kind_get(shards->rows)->n_segments);
    set->n_segments += slot->n_segments;
    set->n_tokens += slot->n_tokens;
    return LATHE_OK;
}

lathe_status lathe__shards_seal(lathe_shards *shards)
{
    lathe_sha256 *hash;
    LATHE_TRY(lathe_sha256_create(&hash));
    for (int64_t i = 0; i < shards->n; i++)
        lathe_sha256_update(hash, shards->list[i].payload, 64);
    lathe_sha256_finish(hash, shards->hash);
    return LATHE_OK;
}

void lathe_shards_destroy(lathe_shards *shards)
{
    if (!shards)
        return;
    for (int64_t i = 0; i < shards->n; i++)
        lathe__shard_close(&shards->list[i]);
    lathe_arena_fini(&shards->arena);
    free(shards->list);
    free(shards->sets);
    free(shards);
}

lathe_status lathe__shards_note(lathe_shards *shards, const lathe_sources *sources)
{
    const int64_t n = shards->n_sources + sources->n;
    lathe_shards_set *set = &shards->sets[shards->n_sets - 1];
    set->first_source = shards->n_sources;
    set->n_sources = sources->n;
    lathe_source *list = lathe_arena_alloc(&shards->arena, (n + 1) * (int64_t)sizeof *list);
    if (!list)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        const int is_old = i < shards->n_sources;
        list[i] = is_old ? shards->sources[i] : sources->list[i - shards->n_sources];
        if (!is_old && !(list[i].path = lathe_arena_strdup(&shards->arena, list[i].path)))
            return LATHE_E_NOMEM;
    }
    shards->sources = list;
    shards->n_sources = n;
    if (!sources->left_out)
        return LATHE_OK;
    shards->left_out = shards->left_out ? lathe_arena_printf(&shards->arena, "%s; %s",
                                                             shards->left_out, sources->left_out)
                                        : lathe_arena_strdup(&shards->arena, sources->left_out);
    return shards->left_out ? LATHE_OK : LATHE_E_NOMEM;
}

const char *lathe_shards_left_out(const lathe_shards *shards)
{
    return shards->left_out;
}

const lathe_source *lathe_shards_sources(const lathe_shards *shards, int64_t *out_n)
{
    *out_n = shards->n_sources;
    return shards->sources;
}

/* `memory` has the offsets, then the ids as u32; the shards own it from now on. */
static lathe_status from_memory(int32_t rows, void *memory, int64_t n_segments, int32_t eos,
                                int64_t vocab_size, lathe_shards **out)
{
    lathe_shard shard;
    memset(&shard, 0, sizeof shard);
    shard.memory = memory;
    shard.offsets = memory;
    shard.ids = shard.offsets + n_segments + 1;
    shard.n_segments = n_segments;
    shard.n_tokens = shard.offsets[n_segments];
    shard.token_bytes = 4;
    memcpy(shard.path, "(memory)", 9);
    lathe_sha256 *hash;
    lathe_status status = lathe_sha256_create(&hash);
    if (status == LATHE_OK) {
        lathe_sha256_update(hash, memory, (n_segments + 1) * 8 + shard.n_tokens * 4);
        lathe_sha256_finish(hash, shard.payload);
        status = lathe__shards_create(1, rows, eos, vocab_size, out);
    }
    if (status != LATHE_OK) {
        free(memory);
        return status;
    }
    lathe__shards_begin(*out, 1.0);
    status = lathe__shards_add(*out, &shard);
    if (status != LATHE_OK)
        free(memory);
    if (status == LATHE_OK)
        status = lathe__shards_seal(*out);
    if (status != LATHE_OK)
        lathe_shards_destroy(*out);
    return status;
}

static lathe_status check_kind(int32_t rows, int64_t n_segments)
{
    if (!lathe_rows_valid(rows) || lathe_row_kind_get(rows)->is_masked)
        return lathe_error(LATHE_E_ARG, "rows is %d: no kind of rows that needs only ids", rows);
    const lathe_row_kind *kind = lathe_row_kind_get(rows);
    if (n_segments < 0 || n_segments % kind->n_segments)
        return lathe_error(LATHE_E_ARG, "%lld segments; %s have %d each", (long long)n_segments,
                           kind->records, kind->n_segments);
    return LATHE_OK;
}

lathe_status lathe_shards_from_ids(int32_t rows, const int32_t *ids, const int64_t *offsets,
                                   int64_t n_segments, int32_t eos, int64_t vocab_size,
                                   lathe_shards **out)
{
    LATHE_TRY(check_kind(rows, n_segments));
    if (offsets[0] != 0)
        return lathe_error(LATHE_E_ARG, "offsets[0] is %lld, not 0", (long long)offsets[0]);
    for (int64_t i = 0; i < n_segments; i++)
        if (offsets[i + 1] < offsets[i])
            return lathe_error(LATHE_E_ARG, "offsets[%lld] is smaller than the offset before it",
                               (long long)(i + 1));
    const int64_t n = offsets[n_segments];
    char *memory = malloc((size_t)((n_segments + 1) * 8 + n * 4));
    if (!memory)
        return lathe_error(LATHE_E_NOMEM, "%lld tokens", (long long)n);
    memcpy(memory, offsets, (size_t)(n_segments + 1) * 8);
    if (n > 0)
        memcpy(memory + (n_segments + 1) * 8, ids, (size_t)n * 4);
    return from_memory(rows, memory, n_segments, eos, vocab_size, out);
}

lathe_status lathe_shards_synthetic(int64_t n_docs, int64_t doc_tokens, int64_t vocab_size,
                                    uint64_t seed, lathe_shards **out)
{
    if (n_docs < 1 || doc_tokens < 1 || vocab_size < 2 || vocab_size > INT32_MAX ||
        n_docs > (INT64_MAX >> 8) / doc_tokens)
        return lathe_error(LATHE_E_ARG, "%lld documents of %lld tokens below %lld",
                           (long long)n_docs, (long long)doc_tokens, (long long)vocab_size);
    char *memory = malloc((size_t)((n_docs + 1) * 8 + n_docs * doc_tokens * 4));
    if (!memory)
        return lathe_error(LATHE_E_NOMEM, "%lld tokens", (long long)(n_docs * doc_tokens));
    int64_t *offsets = (int64_t *)(void *)memory;
    uint32_t *ids = (uint32_t *)(void *)(memory + (n_docs + 1) * 8);
    for (int64_t d = 0; d <= n_docs; d++)
        offsets[d] = d * doc_tokens;
    for (int64_t i = 0; i < n_docs * doc_tokens; i++) {
        const lathe_u32x4 word = lathe_rng_block(seed, 0, 0x73796e74, (uint64_t)i);
        ids[i] = (i + 1) % doc_tokens
                     ? (uint32_t)((uint64_t)word.v[0] * (uint64_t)(vocab_size - 1) >> 32)
                     : (uint32_t)(vocab_size - 1);
    }
    return from_memory(LATHE_ROWS_PACKED, memory, n_docs, (int32_t)(vocab_size - 1), vocab_size,
                       out);
}

int32_t lathe_shards_rows(const lathe_shards *shards)
{
    return shards->rows;
}

int64_t lathe_shards_segments(const lathe_shards *shards)
{
    return shards->n_segments;
}

int64_t lathe_shards_tokens(const lathe_shards *shards)
{
    return shards->n_tokens;
}

int64_t lathe_shards_skipped(const lathe_shards *shards)
{
    return shards->n_skipped;
}

int64_t lathe_shards_built(const lathe_shards *shards)
{
    return shards->n_built;
}

int32_t lathe_shards_eos(const lathe_shards *shards)
{
    return shards->eos;
}

const char *lathe_shards_hash(const lathe_shards *shards)
{
    return shards->hash;
}

int64_t lathe_shards_sets(const lathe_shards *shards)
{
    return shards->n_sets;
}

const lathe_shards_set *lathe_shards_set_get(const lathe_shards *shards, int64_t i)
{
    return &shards->sets[i];
}

/* The last shard that begins at or before segment i. */
static const lathe_shard *shard_of_segment(const lathe_shards *shards, int64_t i)
{
    int64_t low = 0, high = shards->n;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (shards->list[middle].first_segment <= i)
            low = middle;
        else
            high = middle;
    }
    return &shards->list[low];
}

int lathe_shards_where(const lathe_shards *shards, int64_t i, const lathe_source **out_source,
                       int64_t *out_line)
{
    const int64_t n = lathe_row_kind_get(shards->rows)->n_segments;
    const lathe_shard *shard = shard_of_segment(shards, i * n);
    int64_t d = shards->n_sets - 1;
    if (!shard->lines)
        return 0;
    while (d > 0 && shards->sets[d].first_segment > i * n)
        d--;
    return lathe_shards_line(shards, &shards->sets[d], shard->lines[i - shard->first_segment / n],
                             out_source, out_line);
}

int lathe_shards_line(const lathe_shards *shards, const lathe_shards_set *set, int64_t line,
                      const lathe_source **out_source, int64_t *out_line)
{
    const int64_t file = LATHE_SHARD_LINE_FILE(line);
    if (file < 0 || file >= set->n_sources)
        return 0;
    *out_source = &shards->sources[set->first_source + file];
    *out_line = LATHE_SHARD_LINE_LINE(line);
    return 1;
}

double lathe_shards_input(const lathe_shards *shards, int64_t k, int32_t i)
{
    const int64_t n = lathe_row_kind_get(shards->rows)->n_segments;
    const lathe_shard *shard = shard_of_segment(shards, k * n);
    return shard->inputs ? shard->inputs[(k - shard->first_segment / n) * shard->n_inputs + i]
                         : 0.0;
}

const char *lathe_shards_record(const lathe_shards *shards, int64_t k, int64_t *out_bytes)
{
    const int64_t n = lathe_row_kind_get(shards->rows)->n_segments;
    const lathe_shard *shard = shard_of_segment(shards, k * n);
    const int64_t i = k - shard->first_segment / n;
    *out_bytes = 0;
    if (!shard->record_ends)
        return NULL;
    const int64_t begin = i > 0 ? shard->record_ends[i - 1] : 0;
    *out_bytes = shard->record_ends[i] - begin;
    return shard->records + begin;
}

int64_t lathe_shards_text_bytes(const lathe_shards *shards, int64_t begin, int64_t end)
{
    int64_t sum = 0;
    while (begin < end) {
        const lathe_shard *shard = shard_of_segment(shards, begin);
        const int64_t from = begin - shard->first_segment, rest = end - shard->first_segment;
        const int64_t to = rest < shard->n_segments ? rest : shard->n_segments;
        if (from == 0 && to == shard->n_segments)
            sum += shard->text_bytes;
        else
            for (int64_t i = from; shard->sizes && i < to; i++)
                sum += shard->sizes[i];
        begin += to - from;
    }
    return sum;
}

int64_t lathe_shards_offset(const lathe_shards *shards, int64_t i)
{
    const lathe_shard *shard = shard_of_segment(shards, i);
    return shard->first_token + shard->offsets[i - shard->first_segment];
}

/* The last shard that begins at or before token `at`. It is not empty, unless all later ones
 * are. */
static const lathe_shard *shard_of_token(const lathe_shards *shards, int64_t at)
{
    int64_t low = 0, high = shards->n;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (shards->list[middle].first_token <= at)
            low = middle;
        else
            high = middle;
    }
    return &shards->list[low];
}

int64_t lathe_shards_find(const lathe_shards *shards, int64_t at)
{
    const lathe_shard *shard = shard_of_token(shards, at);
    int64_t low = 0, high = shard->n_segments; /* offsets[low] <= at < offsets[high] */
    at -= shard->first_token;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (shard->offsets[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return shard->first_segment + low;
}

lathe_status lathe_shards_check(const lathe_shards *shards)
{
    for (int64_t i = 0; i < shards->n; i++) {
        const lathe_shard *shard = &shards->list[i];
        if (shard->map.data)
            LATHE_TRY(lathe_map_check(&shard->map));
        for (int64_t k = 0; k < shard->n_segments; k++)
            if (shard->offsets[k + 1] < shard->offsets[k])
                return lathe_error(
                    LATHE_E_CORRUPT,
                    "%s: the offsets of its index do not ascend; delete the file to have it made "
                    "again",
                    shard->path);
    }
    return lathe_maps_check();
}

lathe_status lathe_shards_read(const lathe_shards *shards, int64_t begin, int64_t end, int32_t *out)
{
    const uint32_t limit = (uint32_t)shards->vocab_size;
    while (begin < end) {
        const lathe_shard *shard = shard_of_token(shards, begin);
        const int64_t from = begin - shard->first_token;
        int64_t n = shard->n_tokens - from;
        if (n > end - begin)
            n = end - begin;
        if (n <= 0)
            return lathe_error(LATHE_E_ARG, "tokens up to %lld of %lld", (long long)end,
                               (long long)shards->n_tokens);
        uint32_t largest = 0;
        for (int64_t i = 0; i < n; i++) {
            const uint32_t id = shard->token_bytes == 2 ? ((const uint16_t *)shard->ids)[from + i]
                                                        : ((const uint32_t *)shard->ids)[from + i];
            out[i] = (int32_t)id;
            largest = id > largest ? id : largest;
        }
        if (shard->map.data)
            LATHE_TRY(lathe_map_check(&shard->map));
        if (largest >= limit)
            return lathe_error(LATHE_E_CORRUPT, "%s: id %u in a vocabulary of %u", shard->path,
                               largest, limit);
        out += n;
        begin += n;
    }
    return LATHE_OK;
}

static int is_target(const lathe_shard *shard, int64_t at)
{
    return !shard->mask || (int)(shard->mask[at / 64] >> (at % 64) & 1);
}

void lathe_shards_mask(const lathe_shards *shards, int64_t begin, int64_t end, int32_t *targets)
{
    for (int64_t i = 0; begin + i < end;) {
        const lathe_shard *shard = shard_of_token(shards, begin + i);
        const int64_t from = begin + i - shard->first_token;
        const int64_t left = shard->n_tokens - from,
                      n = left < end - begin - i ? left : end - begin - i;
        if (n <= 0)
            return;
        for (int64_t k = 0; k < n && shard->mask; k++)
            if (!is_target(shard, from + k))
                targets[i + k] = -1;
        i += n;
    }
}

int64_t lathe_shards_first_target(const lathe_shards *shards, int64_t begin, int64_t end)
{
    while (begin < end) {
        const lathe_shard *shard = shard_of_token(shards, begin);
        const int64_t from = begin - shard->first_token;
        int64_t k = from;
        while (k < shard->n_tokens && k - from < end - begin && !is_target(shard, k))
            k++;
        if (k < shard->n_tokens && k - from < end - begin)
            return shard->first_token + k;
        if (k == from)
            break;
        begin = shard->first_token + k;
    }
    return end;
}

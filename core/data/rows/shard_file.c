/* Writes a shard's file, and checks it when it is opened. */
#include "data/rows/shard_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/map.h"
#include "base/output_file.h"
#include "data/records/row_kind.h"

static const char magic[8] = {'L', 'A', 'T', 'H', 'S', 'H', 'R', 'D'};

static lathe_status damaged(const char *path, const char *what)
{
    return lathe_error(LATHE_E_CORRUPT, "%s: %s; delete the file to have it made again", path,
                       what);
}

static uint64_t checksum(const lathe_shard_header *header)
{
    return lathe_hash64(header, (int64_t)offsetof(lathe_shard_header, checksum));
}

static int64_t padded(int64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

void lathe__unread_column_add(lathe_record_notes *to, const char *name,
                              const lathe_record_count *count)
{
    int32_t i = 0;
    while (i < LATHE_UNREAD_COLUMNS && to->unread[i].name[0] &&
           strcmp(to->unread[i].name, name) != 0)
        i++;
    if (i == LATHE_UNREAD_COLUMNS) {
        lathe__record_count_add(&to->unread_others, count);
        return;
    }
    (void)snprintf(to->unread[i].name, sizeof to->unread[i].name, "%s", name);
    lathe__record_count_add(&to->unread[i].count, count);
}

void lathe__record_counts_add(lathe_record_counts *to, const lathe_record_counts *from,
                              int64_t first_record)
{
    if (from->n_equal > 0 && to->n_equal == 0)
        to->first_equal = first_record + from->first_equal;
    to->n_equal += from->n_equal;
    to->n_known += from->n_known;
    to->n_chats += from->n_chats;
    if (to->left[LATHE_LEFT_UNKNOWN_ROLE].n == 0)
        memcpy(to->role, from->role, sizeof to->role);
    for (int32_t i = 0; i < LATHE_N_LEFT; i++)
        lathe__record_count_add(&to->left[i], &from->left[i]);
    for (int32_t i = 0; i < LATHE_N_UNWRITTEN; i++)
        lathe__record_count_add(&to->unwritten[i], &from->unwritten[i]);
}

void lathe__record_notes_add(lathe_record_notes *to, const lathe_record_notes *from)
{
    for (int32_t i = 0; i < LATHE_N_TOLD; i++)
        lathe__record_count_add(&to->told[i], &from->told[i]);
    for (int32_t i = 0; i < LATHE_UNREAD_COLUMNS && from->unread[i].name[0]; i++)
        lathe__unread_column_add(to, from->unread[i].name, &from->unread[i].count);
    lathe__record_count_add(&to->unread_others, &from->unread_others);
    for (int64_t i = 0; i < from->n_skipped && i < LATHE_READER_NAMES; i++)
        if (to->n_skipped + i < LATHE_READER_NAMES)
            to->skipped[to->n_skipped + i] = from->skipped[i];
    to->n_skipped += from->n_skipped;
    lathe_text_loss_add(&to->loss, &from->loss);
}

/* Number of words in the mask of the tokens. */
static int64_t mask_words(int32_t rows, int64_t n_tokens)
{
    return lathe_row_kind_get(rows)->is_masked ? (n_tokens + 63) / 64 : 0;
}

/* Number of records whose lines in the source files are stored. */
static int64_t n_lines(int32_t rows, int64_t n_segments)
{
    const lathe_row_kind *kind = lathe_row_kind_get(rows);
    return kind->has_lines ? n_segments / kind->n_segments : 0;
}

static int64_t n_records(const lathe_shard_header *h)
{
    return h->n_segments / lathe_row_kind_get(h->rows)->n_segments;
}

/* Number of words that store where each record's JSON ends. */
static int64_t end_words(const lathe_shard_header *h)
{
    return lathe_row_kind_get(h->rows)->has_records ? n_records(h) : 0;
}

/* 8-byte words of the notes. */
#define NOTE_WORDS ((int64_t)(sizeof(lathe_record_notes) / 8))
_Static_assert(sizeof(lathe_record_notes) % 8 == 0, "the notes end the file, in whole words");

/* 8-byte words after the ids: offsets, sizes, mask, lines, inputs, ends of records, records,
 * notes. */
static int64_t index_words(const lathe_shard_header *h)
{
    return 2 * h->n_segments + 1 + mask_words(h->rows, h->n_tokens) +
           n_lines(h->rows, h->n_segments) + h->n_inputs * n_records(h) + end_words(h) +
           padded(h->record_bytes) / 8 + NOTE_WORDS;
}

static lathe_status check_header(const char *path, const lathe_shard_header *h, int64_t file_bytes)
{
    if (h->checksum != checksum(h))
        return damaged(path, "the header's checksum is wrong");
    if (!lathe_rows_valid(h->rows) || h->header_bytes != sizeof *h ||
        (h->token_bytes != 2 && h->token_bytes != 4) || h->n_tokens < 0 || h->n_segments < 0 ||
        h->n_tokens > INT64_MAX / 16 || h->n_segments > INT64_MAX / 256 || h->vocab_size < 1 ||
        h->n_inputs < 0 || h->n_inputs > LATHE_MAX_STAGE_INPUTS || h->record_bytes < 0 ||
        h->record_bytes > INT64_MAX / 16 ||
        h->offsets_at != (int64_t)sizeof *h + padded(h->n_tokens * h->token_bytes) ||
        h->file_bytes != h->offsets_at + index_words(h) * 8 || h->text_bytes < 0)
        return damaged(path, "the header contradicts itself");
    if (h->file_bytes != file_bytes)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: %lld bytes, the header says %lld; delete the file to have it made "
                           "again",
                           path, (long long)file_bytes, (long long)h->file_bytes);
    return LATHE_OK;
}

void lathe__record_count_add(lathe_record_count *to, const lathe_record_count *from)
{
    if (to->n == 0)
        to->first = from->first;
    to->n += from->n;
}

int lathe__shard_is_name(const char *name)
{
    const size_t n = strlen(name);
    return strncmp(name, "shard-", 6) == 0 && n > 10 && strcmp(name + n - 4, ".bin") == 0;
}

lathe_status lathe__shard_peek(const char *path, lathe_shard_header *out, int *out_current)
{
    *out_current = 0;
    if (!lathe_path_exists(path))
        return LATHE_OK;
    int fd = -1;
    int64_t bytes = 0;
    LATHE_TRY(lathe_file_open(path, &fd, &bytes));
    const ssize_t n = pread(fd, out, sizeof *out, 0);
    (void)close(fd);
    if (n < (ssize_t)sizeof *out || memcmp(out->magic, magic, sizeof magic) != 0)
        return damaged(path, "no shard header");
    if (out->version != LATHE_SHARD_VERSION)
        return LATHE_OK;
    LATHE_TRY(check_header(path, out, bytes));
    *out_current = 1;
    return LATHE_OK;
}

static lathe_status check_index(const lathe_shard *shard)
{
    if (shard->offsets[0] != 0 || shard->offsets[shard->n_segments] != shard->n_tokens)
        return damaged(shard->path, "the index does not cover the tokens");
    for (int64_t i = 0; i < shard->n_segments; i++)
        if (shard->offsets[i + 1] < shard->offsets[i])
            return damaged(shard->path, "the offsets of its index do not ascend");
    int64_t text_bytes = 0;
    for (int64_t i = 0; i < shard->n_segments; i++) {
        if (shard->sizes[i] < 0 || shard->sizes[i] > shard->text_bytes - text_bytes)
            return damaged(shard->path, "the sizes of its texts contradict the header");
        text_bytes += shard->sizes[i];
    }
    if (text_bytes != shard->text_bytes)
        return damaged(shard->path, "the sizes of its texts contradict the header");
    return LATHE_OK;
}

/* Whether the records' ends ascend to the size that the header has. */
static lathe_status check_records(const lathe_shard *shard, const lathe_shard_header *h)
{
    int64_t at = 0;
    for (int64_t i = 0; i < end_words(h); i++) {
        if (shard->record_ends[i] < at || shard->record_ends[i] > h->record_bytes)
            return damaged(shard->path, "the index of its records does not ascend");
        at = shard->record_ends[i];
    }
    return at == h->record_bytes ? LATHE_OK
                                 : damaged(shard->path, "the index does not cover its records");
}

/* Finds the parts of the file after the index of segments: mask, lines, inputs, records. */
static void find_records(const lathe_shard_header *h, lathe_shard *out)
{
    const int64_t *at = out->sizes + h->n_segments;
    if (mask_words(h->rows, h->n_tokens) > 0)
        out->mask = (const uint64_t *)(const void *)at;
    at += mask_words(h->rows, h->n_tokens);
    if (lathe_row_kind_get(h->rows)->has_lines)
        out->lines = at;
    at += n_lines(h->rows, h->n_segments);
    out->n_inputs = (int32_t)h->n_inputs;
    if (h->n_inputs > 0)
        out->inputs = (const double *)(const void *)at;
    at += h->n_inputs * n_records(h);
    if (!lathe_row_kind_get(h->rows)->has_records)
        return;
    out->record_ends = at;
    out->records = (const char *)(at + end_words(h));
}

/* Copies the notes, which the end of the file has. */
static void read_notes(lathe_shard *shard)
{
    memcpy(&shard->notes, shard->map.data + shard->map.bytes - sizeof shard->notes,
           sizeof shard->notes);
    for (int32_t i = 0; i < LATHE_UNREAD_COLUMNS; i++)
        shard->notes.unread[i].name[sizeof shard->notes.unread[i].name - 1] = '\0';
}

static lathe_status check_payload(const lathe_shard *shard)
{
    const int64_t bytes = shard->map.bytes - (int64_t)sizeof(lathe_shard_header);
    lathe_sha256 *hash;
    char hex[65];
    LATHE_TRY(lathe_sha256_create(&hash));
    lathe_sha256_update(hash, shard->map.data + sizeof(lathe_shard_header), bytes);
    lathe_sha256_finish(hash, hex);
    return strcmp(hex, shard->payload) ? damaged(shard->path, "the SHA-256 of its content is wrong")
                                       : LATHE_OK;
}

lathe_status lathe__shard_open(const char *path, int32_t verify, lathe_shard *out)
{
    lathe_shard_header h;
    int current;
    memset(out, 0, sizeof *out);
    snprintf(out->path, sizeof out->path, "%s", path);
    LATHE_TRY(lathe__shard_peek(path, &h, &current));
    if (!current)
        return damaged(path, "it is missing or of another version");
    LATHE_TRY(lathe_map_open(path, &out->map));
    lathe_status status = LATHE_OK;
    if (out->map.bytes != h.file_bytes) {
        status = damaged(path, "its size changed while it was opened");
    } else {
        out->token_bytes = h.token_bytes;
        out->n_tokens = h.n_tokens;
        out->n_segments = h.n_segments;
        out->n_skipped = h.n_skipped;
        out->text_bytes = h.text_bytes;
        out->ids = out->map.data + sizeof h;
        out->offsets = (const int64_t *)(const void *)(out->map.data + h.offsets_at);
        out->sizes = out->offsets + h.n_segments + 1;
        find_records(&h, out);
        out->counts = h.counts;
        read_notes(out);
        out->counts.role[sizeof out->counts.role - 1] = '\0';
        memcpy(out->payload, h.payload, 64);
        status = check_index(out);
        if (status == LATHE_OK)
            status = check_records(out, &h);
    }
    if (status == LATHE_OK && verify)
        status = check_payload(out);
    if (status == LATHE_OK)
        lathe_map_scattered(&out->map); /* rows are read in a shuffled order */
    if (status != LATHE_OK)
        lathe__shard_close(out);
    return status;
}

void lathe__shard_close(lathe_shard *shard)
{
    if (shard->map.data)
        lathe_map_close(&shard->map);
    free(shard->memory);
    memset(shard, 0, sizeof *shard);
}

static lathe_status failed(const lathe_shard_writer *writer, const char *doing)
{
    return lathe_error(LATHE_E_IO, "%s: %s: %s", writer->temporary, doing, strerror(errno));
}

lathe_status lathe__shard_writer_init(lathe_shard_writer *writer, const char *path,
                                      const lathe_shard_header *header)
{
    memset(writer, 0, sizeof *writer);
    if (strlen(path) >= sizeof writer->path)
        return lathe_error(LATHE_E_ARG, "%s: the path is too long", path);
    snprintf(writer->path, sizeof writer->path, "%s", path);
    snprintf(writer->temporary, sizeof writer->temporary, "%s.tmp.%ld", path, (long)getpid());
    writer->header = *header;
    memcpy(writer->header.magic, magic, sizeof magic);
    writer->header.version = LATHE_SHARD_VERSION;
    writer->header.header_bytes = sizeof *header;
    writer->header.n_tokens = writer->header.n_segments = 0;
    writer->is_masked = lathe_row_kind_get(header->rows)->is_masked;
    LATHE_TRY(lathe_sha256_create(&writer->hash));
    writer->file = fopen(writer->temporary, "wbe");
    if (!writer->file)
        return failed(writer, "create");
    return fwrite(&writer->header, sizeof writer->header, 1, writer->file) == 1
               ? LATHE_OK
               : failed(writer, "write");
}

static lathe_status put_bytes(lathe_shard_writer *writer, const void *data, int64_t bytes)
{
    lathe_sha256_update(writer->hash, data, bytes);
    return bytes == 0 || fwrite(data, (size_t)bytes, 1, writer->file) == 1
               ? LATHE_OK
               : failed(writer, "write");
}

/* Makes room for one more segment in the index. */
static lathe_status reserve_segment(lathe_shard_writer *writer)
{
    if (writer->header.n_segments + 2 <= writer->capacity)
        return LATHE_OK;
    const int64_t capacity = writer->capacity * 2 + 1024;
    int64_t *offsets = realloc(writer->offsets, (size_t)capacity * sizeof *offsets);
    if (offsets)
        writer->offsets = offsets;
    int64_t *sizes = offsets ? realloc(writer->sizes, (size_t)capacity * sizeof *sizes) : NULL;
    if (sizes)
        writer->sizes = sizes;
    int64_t *lines = sizes ? realloc(writer->lines, (size_t)capacity * sizeof *lines) : NULL;
    if (!lines)
        return lathe_error(LATHE_E_NOMEM, "an index of %lld documents", (long long)capacity);
    offsets[0] = 0;
    writer->lines = lines;
    writer->capacity = capacity;
    return LATHE_OK;
}

static lathe_status put_ids(lathe_shard_writer *writer, const int32_t *ids, int64_t n)
{
    const int32_t token_bytes = writer->header.token_bytes;
    for (int64_t at = 0; at < n; at += LATHE_SHARD_CHUNK) {
        const int64_t k = n - at < LATHE_SHARD_CHUNK ? n - at : LATHE_SHARD_CHUNK;
        if (token_bytes == 2)
            for (int64_t i = 0; i < k; i++)
                writer->buffer.u16[i] = (uint16_t)ids[at + i];
        else
            memcpy(writer->buffer.i32, ids + at, (size_t)k * 4);
        LATHE_TRY(put_bytes(writer, &writer->buffer, k * token_bytes));
    }
    return LATHE_OK;
}

/* Marks the next n tokens as targets or not. */
static lathe_status put_mask(lathe_shard_writer *writer, int64_t n, int32_t are_targets)
{
    const int64_t begin = writer->header.n_tokens, words = (begin + n + 63) / 64;
    if (words > writer->mask_capacity) {
        const int64_t capacity = words * 2 + 1024;
        uint64_t *mask = realloc(writer->mask, (size_t)capacity * sizeof *mask);
        if (!mask)
            return lathe_error(LATHE_E_NOMEM, "a mask of %lld tokens", (long long)capacity * 64);
        memset(mask + writer->mask_capacity, 0,
               (size_t)(capacity - writer->mask_capacity) * sizeof *mask);
        writer->mask = mask;
        writer->mask_capacity = capacity;
    }
    for (int64_t i = begin; are_targets && i < begin + n; i++)
        writer->mask[i / 64] |= 1ULL << (i % 64);
    return LATHE_OK;
}

/* Keeps the inputs and the JSON of a record, which begins with this piece. */
static lathe_status put_record(lathe_shard_writer *writer, int64_t record,
                               const lathe_shard_piece *piece)
{
    const int64_t n = writer->header.n_inputs;
    if (record == writer->records_max) {
        const int64_t max = writer->records_max * 2 + 256;
        double *inputs = realloc(writer->inputs, (size_t)(max * (n + 1)) * sizeof *inputs);
        if (inputs)
            writer->inputs = inputs;
        int64_t *ends = inputs ? realloc(writer->record_ends, (size_t)max * sizeof *ends) : NULL;
        if (!ends)
            return lathe_error(LATHE_E_NOMEM, "an index of %lld records", (long long)max);
        writer->record_ends = ends;
        writer->records_max = max;
    }
    if (n > 0)
        memcpy(writer->inputs + record * n, piece->inputs, (size_t)n * sizeof *piece->inputs);
    if (piece->record)
        lathe_buffer_append(&writer->records, piece->record, piece->json_bytes);
    writer->record_ends[record] = writer->records.len;
    return writer->records.status;
}

lathe_status lathe__shard_writer_put(lathe_shard_writer *writer, const lathe_shard_piece *piece)
{
    lathe_shard_header *h = &writer->header;
    const int64_t n_segments = lathe_row_kind_get(h->rows)->n_segments;
    if (!writer->open) {
        LATHE_TRY(reserve_segment(writer));
        if (h->n_segments % n_segments == 0 && (h->n_inputs > 0 || piece->record))
            LATHE_TRY(put_record(writer, h->n_segments / n_segments, piece));
        writer->lines[h->n_segments] = piece->line;
        writer->sizes[h->n_segments++] = 0;
    }
    if (writer->is_masked)
        LATHE_TRY(put_mask(writer, piece->n, !piece->is_context));
    LATHE_TRY(put_ids(writer, piece->ids, piece->n));
    h->n_tokens += piece->n;
    h->text_bytes += piece->text_bytes;
    writer->sizes[h->n_segments - 1] += piece->text_bytes;
    writer->offsets[h->n_segments] = h->n_tokens;
    writer->open = piece->more;
    return LATHE_OK;
}

lathe_status lathe__shard_writer_finish(lathe_shard_writer *writer, const char *content)
{
    static const uint8_t zeros[8] = {0};
    static const int64_t nothing[1] = {0};
    lathe_shard_header *h = &writer->header;
    const int64_t bytes = h->n_tokens * h->token_bytes;
    LATHE_TRY(put_bytes(writer, zeros, padded(bytes) - bytes));
    LATHE_TRY(
        put_bytes(writer, writer->offsets ? writer->offsets : nothing, (h->n_segments + 1) * 8));
    LATHE_TRY(put_bytes(writer, writer->sizes, h->n_segments * 8));
    const int64_t words = mask_words(h->rows, h->n_tokens);
    LATHE_TRY(put_bytes(writer, writer->mask, words * 8));
    for (int64_t i = 0; i < n_lines(h->rows, h->n_segments); i++)
        LATHE_TRY(
            put_bytes(writer, &writer->lines[i * lathe_row_kind_get(h->rows)->n_segments], 8));
    h->record_bytes = writer->records.len;
    LATHE_TRY(put_bytes(writer, writer->inputs, h->n_inputs * n_records(h) * 8));
    LATHE_TRY(put_bytes(writer, writer->record_ends, end_words(h) * 8));
    LATHE_TRY(put_bytes(writer, writer->records.data, h->record_bytes));
    LATHE_TRY(put_bytes(writer, zeros, padded(h->record_bytes) - h->record_bytes));
    LATHE_TRY(put_bytes(writer, &writer->notes, (int64_t)sizeof writer->notes));
    h->offsets_at = (int64_t)sizeof *h + padded(bytes);
    h->file_bytes = h->offsets_at + index_words(h) * 8;
    char hex[65];
    lathe_sha256_finish(writer->hash, hex);
    writer->hash = NULL;
    memcpy(h->payload, hex, 64);
    memcpy(h->content, content, 64);
    h->checksum = checksum(h);
    return lathe_file_finish(&writer->file, h, sizeof *h, writer->temporary, writer->path);
}

void lathe__shard_writer_fini(lathe_shard_writer *writer)
{
    if (writer->file)
        fclose(writer->file);
    if (writer->temporary[0])
        unlink(writer->temporary);
    lathe_sha256_destroy(writer->hash);
    free(writer->offsets);
    free(writer->sizes);
    free(writer->mask);
    free(writer->lines);
    free(writer->inputs);
    free(writer->record_ends);
    lathe_buffer_fini(&writer->records);
    memset(writer, 0, sizeof *writer);
}

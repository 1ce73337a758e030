/* Writes a file of stored log-probabilities, and checks it when it is opened and read. */
#include "data/rows/logprob_file.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/output_file.h"
#include "lathe/dtype.h"

static const char magic[8] = {'L', 'A', 'T', 'H', 'L', 'O', 'G', 'P'};

#define LOWEST_F16 (-65504.0f)

static lathe_status damaged(const char *path, const char *what)
{
    return lathe_error(LATHE_E_CORRUPT, "%s: %s; delete the file and run lathe logprobs again",
                       path, what);
}

static uint64_t header_checksum(const lathe_logprob_header *header)
{
    return lathe_hash64(header, (int64_t)offsetof(lathe_logprob_header, checksum));
}

static int64_t padded(int64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static int64_t entry_bytes_of(const lathe_logprob_header *h)
{
    return (int64_t)h->top_k * (h->id_bytes + h->value_bytes) + (int64_t)sizeof(float);
}

/* Bytes of offsets and checksums. */
static int64_t index_bytes_of(const lathe_logprob_header *h)
{
    return (h->n_records + 1) * 8 + padded(h->n_records * 4);
}

static int64_t index_at(const lathe_logprob_header *h)
{
    return (int64_t)sizeof *h + padded(h->n_targets * entry_bytes_of(h));
}

/* ---- reading ---- */

static lathe_status check_header(const char *path, const lathe_map *map, lathe_logprob_header *h)
{
    if (map->bytes < (int64_t)sizeof *h)
        return damaged(path, "it ends within its header");
    memcpy(h, map->data, sizeof *h);
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return damaged(path, "it is no file of log-probabilities");
    if (h->version != LATHE_LOGPROB_VERSION)
        return lathe_error(
            LATHE_E_CORRUPT,
            "%s: version %u; this program reads version %d: make it again with lathe "
            "logprobs",
            path, h->version, LATHE_LOGPROB_VERSION);
    if (h->checksum != header_checksum(h))
        return damaged(path, "the header's checksum is wrong");
    if (h->header_bytes != sizeof *h || h->top_k < 1 || h->top_k > LATHE_LOGPROB_MOST_K ||
        h->top_k > h->vocab_size || h->vocab_size > INT32_MAX ||
        h->id_bytes != (h->vocab_size <= 65536 ? 2 : 4) ||
        (h->value_bytes != 2 && h->value_bytes != 4) || h->row_tokens < 1 ||
        !(h->temperature > 0.0) || h->first_record < 0 || h->n_records < 0 || h->n_targets < 0 ||
        h->n_records > (int64_t)1 << 40 || h->first_record > (int64_t)1 << 40 ||
        h->n_targets > ((int64_t)1 << 60) / entry_bytes_of(h) ||
        h->file_bytes != index_at(h) + index_bytes_of(h))
        return damaged(path, "the header contradicts itself");
    if (h->file_bytes != map->bytes)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: %lld bytes, the header says %lld; delete the file and run lathe "
                           "logprobs again",
                           path, (long long)map->bytes, (long long)h->file_bytes);
    return LATHE_OK;
}

static lathe_status check_index(const lathe_logprob_file *f)
{
    const lathe_logprob_header *h = &f->header;
    if (lathe_crc32c(f->offsets, index_bytes_of(h)) != h->index_crc)
        return damaged(f->path, "the checksum of its index is wrong");
    if (f->offsets[0] != 0 || f->offsets[h->n_records] != h->n_targets)
        return damaged(f->path, "the index does not cover its targets");
    /* Offsets of any 64 bits: their order first, since their difference may overflow. */
    for (int64_t i = 0; i < h->n_records; i++)
        if (f->offsets[i + 1] < f->offsets[i] || f->offsets[i] < 0 ||
            f->offsets[i + 1] - f->offsets[i] > h->row_tokens)
            return damaged(f->path, "the offsets of its index do not ascend");
    return LATHE_OK;
}

static const uint8_t *entries_of(const lathe_logprob_file *f, int64_t i)
{
    return f->entries + f->offsets[i] * f->entry_bytes;
}

/* Checks the entries of record i. */
static lathe_status check_record(const lathe_logprob_file *f, int64_t i)
{
    const int64_t bytes = lathe__logprob_targets(f, i) * f->entry_bytes;
    if (lathe_crc32c(entries_of(f, i), bytes) == f->checksums[i])
        return LATHE_OK;
    LATHE_TRY(lathe_map_check(&f->map)); /* the file became shorter */
    return lathe_error(LATHE_E_CORRUPT,
                       "%s: the checksum of record %lld is wrong; delete the file and run lathe "
                       "logprobs again",
                       f->path, (long long)(f->header.first_record + i));
}

static lathe_status open_mapped(lathe_logprob_file *out, int32_t verify)
{
    LATHE_TRY(check_header(out->path, &out->map, &out->header));
    out->entry_bytes = entry_bytes_of(&out->header);
    out->entries = out->map.data + sizeof out->header;
    const uint8_t *index = out->map.data + index_at(&out->header);
    out->offsets = (const int64_t *)(const void *)index;
    out->checksums = (const uint32_t *)(const void *)(index + (out->header.n_records + 1) * 8);
    LATHE_TRY(check_index(out));
    for (int64_t i = 0; verify && i < out->header.n_records; i++)
        LATHE_TRY(check_record(out, i));
    return LATHE_OK;
}

lathe_status lathe__logprob_open(const char *path, int32_t verify, lathe_logprob_file *out)
{
    memset(out, 0, sizeof *out);
    (void)snprintf(out->path, sizeof out->path, "%s", path);
    LATHE_TRY(lathe_map_open(path, &out->map));
    const lathe_status status = open_mapped(out, verify);
    if (status != LATHE_OK)
        lathe__logprob_close(out);
    else
        lathe_map_scattered(&out->map); /* records are read in a shuffled order */
    return status;
}

void lathe__logprob_close(lathe_logprob_file *file)
{
    if (file->map.data)
        lathe_map_close(&file->map);
    memset(file, 0, sizeof *file);
}

int64_t lathe__logprob_targets(const lathe_logprob_file *file, int64_t i)
{
    return file->offsets[i + 1] - file->offsets[i];
}

/* Decodes one entry. Returns 0 if an id is outside the vocabulary, or a number is no
 * log-probability. */
static int decode(const lathe_logprob_header *h, const uint8_t *from, int32_t *ids, float *values)
{
    const int32_t k = h->top_k;
    const uint8_t *numbers = from + (int64_t)k * h->id_bytes;
    int is_right = 1;
    for (int32_t j = 0; j < k; j++) {
        uint16_t u16 = 0;
        uint32_t u32 = 0;
        if (h->id_bytes == 2) {
            memcpy(&u16, from + 2 * j, sizeof u16);
            u32 = u16;
        } else {
            memcpy(&u32, from + 4 * j, sizeof u32);
        }
        is_right &= u32 < (uint64_t)h->vocab_size;
        ids[j] = (int32_t)u32;
        if (h->value_bytes == 2) {
            memcpy(&u16, numbers + 2 * j, sizeof u16);
            values[j] = lathe_f16_to_f32(u16);
        } else {
            memcpy(&values[j], numbers + 4 * j, sizeof values[j]);
        }
    }
    memcpy(&values[k], numbers + (int64_t)k * h->value_bytes, sizeof values[k]);
    for (int32_t j = 0; j <= k; j++)
        is_right &= isfinite(values[j]) && values[j] <= 0.0f;
    return is_right;
}

lathe_status lathe__logprob_read(const lathe_logprob_file *file, int64_t i, int64_t n, int32_t *ids,
                                 float *values)
{
    const lathe_logprob_header *h = &file->header;
    if (lathe__logprob_targets(file, i) < n)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: record %lld has %lld stored targets, and the row %lld of it; run "
                           "lathe logprobs again with this data.seq_len",
                           file->path, (long long)(h->first_record + i),
                           (long long)lathe__logprob_targets(file, i), (long long)n);
    LATHE_TRY(check_record(file, i));
    const uint8_t *from = entries_of(file, i);
    for (int64_t t = 0; t < n; t++)
        if (!decode(h, from + t * file->entry_bytes, ids + t * h->top_k,
                    values + t * (h->top_k + 1)))
            return lathe_error(LATHE_E_CORRUPT,
                               "%s: record %lld, target %lld: an id is outside the vocabulary of "
                               "%lld, or a number is no log-probability; delete the file and run "
                               "lathe logprobs again",
                               file->path, (long long)(h->first_record + i), (long long)t,
                               (long long)h->vocab_size);
    return LATHE_OK;
}

/* ---- writing ---- */

static lathe_status failed(const lathe_logprob_writer *writer, const char *doing)
{
    return lathe_error(LATHE_E_IO, "%s: %s: %s", writer->temporary, doing, strerror(errno));
}

static lathe_status put_bytes(lathe_logprob_writer *writer, const void *data, int64_t bytes)
{
    return bytes == 0 || fwrite(data, (size_t)bytes, 1, writer->file) == 1
               ? LATHE_OK
               : failed(writer, "write");
}

lathe_status lathe__logprob_writer_init(lathe_logprob_writer *writer, const char *path,
                                        const lathe_logprob_header *header)
{
    memset(writer, 0, sizeof *writer);
    if (strlen(path) >= sizeof writer->path)
        return lathe_error(LATHE_E_ARG, "%s: the path is too long", path);
    (void)snprintf(writer->path, sizeof writer->path, "%s", path);
    (void)snprintf(writer->temporary, sizeof writer->temporary, "%s.tmp.%ld", path, (long)getpid());
    writer->header = *header;
    memcpy(writer->header.magic, magic, sizeof magic);
    writer->header.version = LATHE_LOGPROB_VERSION;
    writer->header.header_bytes = sizeof *header;
    writer->header.id_bytes = header->vocab_size <= 65536 ? 2 : 4;
    writer->header.n_records = writer->header.n_targets = 0;
    writer->file = fopen(writer->temporary, "wbe");
    if (!writer->file)
        return failed(writer, "create");
    return put_bytes(writer, &writer->header, sizeof writer->header);
}

/* Makes room in the index for one more record, and for its entries. */
static lathe_status reserve(lathe_logprob_writer *writer, int64_t bytes)
{
    if (writer->header.n_records + 2 > writer->capacity) {
        const int64_t capacity = writer->capacity * 2 + 1024;
        int64_t *offsets = realloc(writer->offsets, (size_t)capacity * sizeof *offsets);
        if (offsets)
            writer->offsets = offsets;
        uint32_t *checksums =
            offsets ? realloc(writer->checksums, (size_t)capacity * sizeof *checksums) : NULL;
        if (!checksums)
            return lathe_error(LATHE_E_NOMEM, "an index of %lld records", (long long)capacity);
        offsets[0] = 0;
        writer->checksums = checksums;
        writer->capacity = capacity;
    }
    if (bytes > writer->entries_bytes) {
        uint8_t *entries = realloc(writer->entries, (size_t)bytes);
        if (!entries)
            return lathe_error(LATHE_E_NOMEM, "%lld bytes of log-probabilities", (long long)bytes);
        writer->entries = entries;
        writer->entries_bytes = bytes;
    }
    return LATHE_OK;
}

/* Encodes one entry. Returns 0 if a number is no log-probability. */
static int encode(const lathe_logprob_header *h, const int32_t *ids, const float *values,
                  uint8_t *to)
{
    const int32_t k = h->top_k;
    uint8_t *numbers = to + (int64_t)k * h->id_bytes;
    for (int32_t j = 0; j <= k; j++)
        if (!isfinite(values[j]) || values[j] > 0.0f)
            return 0;
    for (int32_t j = 0; j < k; j++) {
        const uint16_t u16 = (uint16_t)ids[j];
        const float high = values[j] > LOWEST_F16 ? values[j] : LOWEST_F16;
        const uint16_t half = lathe_f32_to_f16(high);
        if (h->id_bytes == 2)
            memcpy(to + 2 * j, &u16, sizeof u16);
        else
            memcpy(to + 4 * j, &ids[j], sizeof ids[j]);
        if (h->value_bytes == 2)
            memcpy(numbers + 2 * j, &half, sizeof half);
        else
            memcpy(numbers + 4 * j, &values[j], sizeof values[j]);
    }
    memcpy(numbers + (int64_t)k * h->value_bytes, &values[k], sizeof values[k]);
    return 1;
}

lathe_status lathe__logprob_writer_put(lathe_logprob_writer *writer, int64_t n, const int32_t *ids,
                                       const float *values)
{
    lathe_logprob_header *h = &writer->header;
    const int64_t each = entry_bytes_of(h);
    LATHE_TRY(reserve(writer, n * each));
    for (int64_t t = 0; t < n; t++)
        if (!encode(h, ids + t * h->top_k, values + t * (h->top_k + 1), writer->entries + t * each))
            return lathe_error(LATHE_E_NUMERIC,
                               "record %lld, target %lld: the teacher's log-probabilities are not "
                               "finite",
                               (long long)(h->first_record + h->n_records), (long long)t);
    writer->checksums[h->n_records] = lathe_crc32c(writer->entries, n * each);
    h->n_targets += n;
    writer->offsets[++h->n_records] = h->n_targets;
    return put_bytes(writer, writer->entries, n * each);
}

/* CRC-32C of the index, which is written. */
static lathe_status put_index(lathe_logprob_writer *writer)
{
    lathe_logprob_header *h = &writer->header;
    const int64_t bytes = index_bytes_of(h);
    uint8_t *index = calloc(1, (size_t)bytes);
    if (!index)
        return lathe_error(LATHE_E_NOMEM, "an index of %lld bytes", (long long)bytes);
    memcpy(index + 8, writer->offsets + (h->n_records > 0), (size_t)h->n_records * 8);
    memcpy(index + (h->n_records + 1) * 8, writer->checksums, (size_t)h->n_records * 4);
    h->index_crc = lathe_crc32c(index, bytes);
    const lathe_status status = put_bytes(writer, index, bytes);
    free(index);
    return status;
}

lathe_status lathe__logprob_writer_finish(lathe_logprob_writer *writer, uint64_t *out_checksum)
{
    static const uint8_t zeros[8] = {0};
    lathe_logprob_header *h = &writer->header;
    const int64_t bytes = h->n_targets * entry_bytes_of(h);
    LATHE_TRY(reserve(writer, 0)); /* a file of no records */
    LATHE_TRY(put_bytes(writer, zeros, padded(bytes) - bytes));
    LATHE_TRY(put_index(writer));
    h->file_bytes = index_at(h) + index_bytes_of(h);
    h->checksum = header_checksum(h);
    LATHE_TRY(lathe_file_finish(&writer->file, h, sizeof *h, writer->temporary, writer->path));
    *out_checksum = h->checksum;
    return lathe_file_sync_parent(writer->path);
}

void lathe__logprob_writer_fini(lathe_logprob_writer *writer)
{
    if (writer->file)
        (void)fclose(writer->file);
    if (writer->temporary[0])
        (void)unlink(writer->temporary);
    free(writer->offsets);
    free(writer->checksums);
    free(writer->entries);
    memset(writer, 0, sizeof *writer);
}

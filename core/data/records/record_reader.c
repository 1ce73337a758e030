/* The reader: reads files into a window and splits the window into records. */
#include "data/records/record_reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/utf8.h"
#include "data/records/row_kind.h"

enum { CHUNK = 1 << 20, LONG_TEXT = 8 << 20 };
enum { TEXT_WHOLE = 0, TEXT_PIECES = 2 }; /* states of a text file */

/* The records of a file that a plugin reads have at most LEAST_RECORDS bytes as JSON, and
 * RECORDS_PER_BYTE for each byte of the file. Columns of equal values cost a Parquet file next to
 * nothing, so that without a limit 800 bytes stand for 100 GB. */
#define LEAST_RECORDS (32LL << 20)
#define RECORDS_PER_BYTE 4096

static const char *path_of(const lathe_reader *r)
{
    return r->sources->list[r->at.file].path;
}

lathe_status lathe__reader_error(const lathe_reader *reader, lathe_status code, int64_t lines,
                                 const char *format, ...)
{
    char text[384];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lathe_error_in(code, path_of(reader), reader->at.line + lines, 0, "%s", text);
}

static lathe_status io_failed(const lathe_reader *r, const char *doing)
{
    return lathe_error(LATHE_E_IO, "%s: cannot %s: %s", path_of(r), doing, strerror(errno));
}

/* Checks that the open file is the one that was listed. */
static lathe_status check_same(const lathe_reader *r)
{
    const lathe_source *s = &r->sources->list[r->at.file];
    struct stat info;
    if (fstat(r->fd, &info) != 0)
        return io_failed(r, "look at it");
    if (info.st_size != s->bytes || info.st_mtim.tv_sec != s->seconds ||
        info.st_mtim.tv_nsec != s->nanoseconds)
        return lathe_error(LATHE_E_IO,
                           "%s: the file changed while it was read (%lld bytes, now %lld); start "
                           "again when it is complete",
                           s->path, (long long)s->bytes, (long long)info.st_size);
    return LATHE_OK;
}

static lathe_status reserve(lathe_reader *r, int64_t bytes)
{
    if (bytes <= r->capacity)
        return LATHE_OK;
    char *window = realloc(r->window, (size_t)bytes);
    if (window == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: no memory for a record of %lld bytes", path_of(r),
                           (long long)bytes);
    r->window = window;
    r->capacity = bytes;
    return LATHE_OK;
}

/* Reads up to `bytes` more of the file into the window. */
static lathe_status fill(lathe_reader *r, int64_t bytes)
{
    const int64_t left = r->sources->list[r->at.file].bytes - r->at.offset - (r->end - r->scan);
    if (bytes > left + 1) /* one byte more than listed, to detect a file that grew */
        bytes = left > 0 ? left + 1 : 1;
    LATHE_TRY(reserve(r, r->end + bytes));
    while (bytes > 0 && !r->eof) {
        const int64_t at = r->at.offset + (r->end - r->scan);
        const ssize_t got = pread(r->fd, r->window + r->end, (size_t)bytes, (off_t)at);
        if (got < 0 && errno != EINTR)
            return io_failed(r, "read it");
        r->eof = got == 0;
        r->end += got > 0 ? got : 0;
        bytes -= got > 0 ? got : 0;
    }
    return LATHE_OK;
}

/* Reads a long file to the end to check that it is text, before any of it is returned. */
static lathe_status check_long_text(lathe_reader *r, int *out_good)
{
    const int64_t begin = r->end;
    int64_t at = 0, n_left = 0; /* bytes of a character that a chunk boundary cuts */
    *out_good = 1;
    LATHE_TRY(reserve(r, begin + CHUNK + 8));
    for (;;) {
        const ssize_t got = pread(r->fd, r->window + begin + n_left, CHUNK, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return io_failed(r, "read it");
        if (got == 0)
            break;
        const uint8_t *p = (const uint8_t *)r->window + begin;
        const int64_t n = n_left + got, good = lathe_utf8_prefix(p, n);
        at += got;
        if (memchr(p, 0, (size_t)n) || n - good > 3) {
            *out_good = 0;
            return LATHE_OK;
        }
        n_left = n - good;
        memmove(r->window + begin, r->window + begin + good, (size_t)n_left);
    }
    *out_good = n_left == 0;
    return LATHE_OK;
}

/* Counts the skipped file; keeps the names of the first few. */
static void skip_file(lathe_reader *r)
{
    if (r->n_skipped < LATHE_READER_NAMES)
        r->skipped[r->n_skipped] = r->at.file;
    r->n_skipped++;
}

/* A long file that is not text is skipped without reading all of it. */
static lathe_status open_text(lathe_reader *r)
{
    const int64_t bytes = r->sources->list[r->at.file].bytes;
    int good = 1;
    r->state = TEXT_WHOLE;
    if (bytes <= LONG_TEXT)
        return LATHE_OK;
    LATHE_TRY(check_long_text(r, &good));
    r->state = good && r->cut_text ? TEXT_PIECES : TEXT_WHOLE;
    if (!good) {
        skip_file(r);
        r->n_bytes += bytes;
        r->at.offset = bytes;
        r->eof = 1;
    }
    return LATHE_OK;
}

/* Skips a byte order mark before the records. */
static lathe_status pass_mark(lathe_reader *r)
{
    if (r->at.offset > 0)
        return LATHE_OK;
    LATHE_TRY(fill(r, 3));
    if (r->end - r->scan == 3 && !memcmp(r->window + r->scan, "\xef\xbb\xbf", 3)) {
        r->scan += 3;
        r->at.offset += 3;
    }
    return LATHE_OK;
}

static lathe_status open_file(lathe_reader *r)
{
    int64_t bytes = 0, lines = 0;
    r->eof = r->settled = 0;
    r->state = r->at.offset > 0;
    int64_t size = 0;
    LATHE_TRY(lathe_file_open(path_of(r), &r->fd, &size));
    LATHE_TRY(check_same(r));
    if (r->sources->type == LATHE_DATASET_READER)
        return lathe__plugin_open(r);
    if (r->sources->type == LATHE_DATASET_TEXT)
        return open_text(r);
    const int at_start = r->at.offset == 0;
    if (at_start)
        LATHE_TRY(lathe__plugin_check_name(r));
    if (r->sources->type == LATHE_DATASET_JSON)
        LATHE_TRY(lathe__json_begin(r));
    LATHE_TRY(pass_mark(r));
    if (r->sources->type != LATHE_DATASET_CSV)
        return LATHE_OK;
    LATHE_TRY(lathe__csv_header(r, &bytes, &lines));
    if (!at_start)
        return LATHE_OK;
    r->end = r->scan; /* the bytes that pass_mark looked at */
    r->eof = 0;
    r->at.offset = bytes;
    r->at.line += lines;
    return LATHE_OK;
}

static void hash_window(lathe_reader *r)
{
    if (r->scan > r->hashed) /* an empty file has no window */
        lathe_sha256_update(r->hash, r->window + r->hashed, r->scan - r->hashed);
    r->hashed = r->scan;
}

static lathe_status close_file(lathe_reader *r)
{
    /* a file that is written again in other groups of rows has other offsets, and the same records
     */
    const int64_t mark[2] = {r->opened ? r->at.line : r->at.offset, -1};
    LATHE_TRY(check_same(r));
    lathe__plugin_close(r);
    hash_window(r);
    lathe_sha256_update(r->hash, mark, sizeof mark);
    (void)close(r->fd);
    r->fd = -1;
    r->at = (lathe_source_place){.file = r->at.file + 1, .line = 1, .total = r->at.total};
    r->file_bytes = 0;
    r->settled = 1;
    return LATHE_OK;
}

/* ---- plain text and lines ---- */

static lathe_status scan_text(lathe_reader *r, const char *p, int64_t n, lathe_scan *out)
{
    const int64_t bytes = r->sources->list[r->at.file].bytes;
    if (n == 0 && r->at.offset > 0) /* the end of the file */
        return LATHE_OK;
    if (r->state == TEXT_PIECES) {
        out->needs_more = n < CHUNK && !r->eof;
        out->used = out->length = n < CHUNK ? n : CHUNK;
        out->more = r->at.offset + out->used < bytes;
        return LATHE_OK;
    }
    out->needs_more = !r->eof;
    if (out->needs_more)
        return LATHE_OK;
    out->used = n;
    if (memchr(p, 0, (size_t)n) || lathe_utf8_prefix((const uint8_t *)p, n) < n)
        skip_file(r);
    else
        out->length = n;
    return LATHE_OK;
}

static int is_blank(const char *text, int64_t n)
{
    while (n > 0 && (*text == ' ' || *text == '\t' || *text == '\r')) {
        text++;
        n--;
    }
    return n == 0;
}

static lathe_status scan_lines(lathe_reader *r, const char *p, int64_t n, lathe_scan *out)
{
    const char *end = memchr(p, '\n', (size_t)n);
    if (end == NULL && !r->eof) {
        out->needs_more = 1;
        return LATHE_OK;
    }
    const int64_t length = end ? end - p : n;
    out->used = end ? length + 1 : n;
    out->lines = end != NULL;
    if (!is_blank(p, length))
        out->length = length;
    return LATHE_OK;
}

static lathe_status scan(lathe_reader *r, const char *p, int64_t n, lathe_scan *out)
{
    switch (r->sources->type) {
    case LATHE_DATASET_JSONL:
        return scan_lines(r, p, n, out);
    case LATHE_DATASET_JSON:
        return lathe__scan_json(r, p, n, out);
    case LATHE_DATASET_CSV:
        return lathe__scan_csv(r, p, n, out);
    default:
        return scan_text(r, p, n, out);
    }
}

/* ---- batches ---- */

static lathe_status add_record(lathe_reader *r, const lathe_scan *s)
{
    if (r->n == r->n_records_max) {
        const int64_t n = r->n_records_max * 2 + 256;
        lathe_record *records = realloc(r->records, (size_t)n * sizeof *records);
        if (records == NULL)
            return lathe_error(LATHE_E_NOMEM, "%s: %lld records", path_of(r), (long long)n);
        r->records = records;
        r->n_records_max = n;
    }
    lathe_record *record = &r->records[r->n++];
    *record = (lathe_record){.begin = r->scan + s->begin,
                             .n = s->length,
                             .file = r->at.file,
                             .line = r->at.line,
                             .number = r->at.record + 1,
                             .more = s->more,
                             .delimiter = r->delimiter};
    memcpy(record->csv, r->csv, sizeof r->csv);
    record->layout = r->layout;
    record->header = r->header;
    record->n_header = r->n_header;
    record->n_columns = r->n_columns;
    return LATHE_OK;
}

/* One step in the open file: returns a record, skips text without one, reads more, or ends the
 * file. */
static lathe_status step(lathe_reader *r)
{
    const int64_t n = r->end - r->scan;
    if (n == 0 && !r->eof)
        return fill(r, CHUNK);
    lathe_scan s = {.length = -1};
    LATHE_TRY(scan(r, r->window ? r->window + r->scan : "", n, &s));
    if (s.needs_more)
        return fill(r, n > CHUNK ? n : CHUNK);
    if (s.length >= 0)
        LATHE_TRY(add_record(r, &s));
    if (n == 0)
        return close_file(r);
    r->scan += s.used;
    r->at.offset += s.used;
    r->at.line += s.lines;
    r->n_bytes += s.used;
    r->at.record += s.length >= 0;
    r->at.total += s.length >= 0 && !s.more;
    r->settled = s.length >= 0;
    if (s.length < 0 && s.used == n && r->eof) { /* no record refers to this text: free its room */
        hash_window(r);
        r->scan = r->end = r->hashed = r->scan - n;
    }
    return LATHE_OK;
}

/* Counts the bytes of a record that a plugin read. */
static lathe_status count_bytes(lathe_reader *r, int64_t bytes)
{
    const int64_t all = r->sources->list[r->at.file].bytes;
    r->file_bytes += bytes;
    if ((r->file_bytes - LEAST_RECORDS) / RECORDS_PER_BYTE <= all)
        return LATHE_OK;
    return lathe_error(
        LATHE_E_UNSUPPORTED,
        "%s: row %lld: up to here the rows have %lld MiB as JSON; expected at most %lld MiB and %d "
        "bytes for each of the %lld bytes of the file, whose few values are repeated without end; "
        "if that is meant, write it as JSONL",
        path_of(r), (long long)r->at.line, (long long)(r->file_bytes >> 20), LEAST_RECORDS >> 20,
        RECORDS_PER_BYTE, (long long)all);
}

/* One step in an open file that a plugin reads: returns a record, or ends the file. */
static lathe_status step_plugin(lathe_reader *r)
{
    const char *text = NULL;
    int64_t bytes = 0, offset = 0;
    LATHE_TRY(lathe__plugin_next(r, &text, &bytes, &offset));
    if (text == NULL)
        return close_file(r);
    LATHE_TRY(count_bytes(r, bytes));
    if (r->end + bytes > r->capacity)
        LATHE_TRY(reserve(r, r->end + bytes > CHUNK ? 2 * (r->end + bytes) : CHUNK));
    memcpy(r->window + r->end, text, (size_t)bytes);
    LATHE_TRY(add_record(r, &(lathe_scan){.length = bytes}));
    r->end += bytes;
    r->scan = r->end;
    r->at.offset = offset;
    r->at.line++;
    r->at.record++;
    r->at.total++;
    r->n_bytes += bytes;
    r->settled = 1;
    return LATHE_OK;
}

lathe_status lathe_reader_batch(lathe_reader *r, int64_t bytes)
{
    const int64_t rest = r->end - r->scan, stop = r->n_bytes + bytes;
    hash_window(r);
    if (rest > 0)
        memmove(r->window, r->window + r->scan, (size_t)rest);
    r->scan = r->hashed = 0;
    r->end = rest;
    r->n = 0;
    lathe_status status = LATHE_OK;
    while (status == LATHE_OK && (r->n == 0 || r->n_bytes < stop || !r->settled)) {
        if (lathe_reader_ended(r))
            break;
        status = r->fd < 0 ? open_file(r) : r->opened ? step_plugin(r) : step(r);
    }
    r->data = r->window ? r->window : "";
    r->list = r->records;
    return status;
}

int lathe_reader_ended(const lathe_reader *reader)
{
    const int64_t max = reader->dataset->max_samples;
    return reader->at.file == reader->sources->n || (max > 0 && reader->at.total >= max);
}

lathe_status lathe_reader_content(lathe_reader *r, char out[65])
{
    if (r->fd >= 0)
        LATHE_TRY(check_same(r));
    hash_window(r);
    lathe_sha256_update(r->hash, &r->at.offset, sizeof r->at.offset);
    lathe_sha256_finish(r->hash, out);
    r->hash = NULL;
    return LATHE_OK;
}

lathe_status lathe_reader_init(lathe_reader *reader, const lathe_dataset *dataset,
                               const lathe_sources *sources, int32_t rows,
                               const lathe_source_place *begin)
{
    memset(reader, 0, sizeof *reader);
    reader->dataset = dataset;
    reader->sources = sources;
    reader->rows = rows;
    reader->at = *begin;
    reader->fd = -1;
    if (rows != LATHE_ROWS_PACKED && sources->type == LATHE_DATASET_TEXT)
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: %s come from a dataset of type jsonl, json, csv or reader, not text",
            dataset->path, lathe_row_kind_get(rows)->records);
    LATHE_TRY(lathe_layouts_init(&reader->layouts, dataset, rows));
    return lathe_sha256_create(&reader->hash);
}

void lathe_reader_fini(lathe_reader *reader)
{
    lathe__plugin_close(reader);
    lathe_instance_fini(&reader->plugin);
    if (reader->fd >= 0)
        (void)close(reader->fd);
    lathe_sha256_destroy(reader->hash);
    free(reader->window);
    free(reader->records);
    lathe_layouts_fini(&reader->layouts);
    memset(reader, 0, sizeof *reader);
    reader->fd = -1;
}

/* Scans CSV datasets (RFC 4180): quoted fields may contain line ends; a header row names the
 * columns. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "data/records/record_reader.h"
#include "data/records/row_kind.h"

enum { MAX_HEADER = 1 << 20, MAX_NAME = 64 };

/* Scans one row of p[0, n). ended: the file ends with p. */
typedef struct row {
    int64_t used;   /* length with the line end; 0: the row does not end in p */
    int64_t length; /* length without the line end */
    int64_t lines;
    int32_t n_fields;
} row;

static int is_end(const char *p, int64_t i, int64_t n)
{
    return p[i] == '\n' || (p[i] == '\r' && (i + 1 == n || p[i + 1] == '\n'));
}

/* Skips the quoted field at p[*at]; *at becomes the position after the closing quote, or n. Returns
 * 0 if the quote is not closed. */
static int pass_quoted(const char *p, int64_t n, int64_t *at, int64_t *lines)
{
    for (int64_t i = *at + 1; i < n; i++) {
        *lines += p[i] == '\n';
        if (p[i] != '"')
            continue;
        if (i + 1 < n && p[i + 1] == '"') {
            i++;
            continue;
        }
        *at = i + 1;
        return 1;
    }
    *at = n;
    return 0;
}

static lathe_status scan_row(const lathe_reader *r, char delimiter, const char *p, int64_t n,
                             int ended, row *out)
{
    int64_t i = 0;
    memset(out, 0, sizeof *out);
    for (;;) {
        const int quoted = i < n && p[i] == '"';
        if (quoted && !pass_quoted(p, n, &i, &out->lines) && ended)
            return lathe__reader_error(r, LATHE_E_PARSE, 0,
                                       "a quoted field of the row that begins here has no end");
        if (!quoted)
            while (i < n && p[i] != delimiter && !is_end(p, i, n) && p[i] != '"')
                i++;
        /* At the end of the text, a quote or carriage return can only be judged with the next
         * byte. */
        if (!ended && (i >= n || (p[i] == '\r' && i + 1 == n)))
            return LATHE_OK;
        out->n_fields++;
        if (i >= n || is_end(p, i, n))
            break;
        if (p[i] != delimiter)
            return lathe__reader_error(r, LATHE_E_PARSE, out->lines,
                                       quoted ? "text after a field's closing quote"
                                              : "a quote inside a field that does not begin with "
                                                "one");
        i++;
    }
    out->length = i;
    out->lines += i < n;
    out->used = i + (i < n) + (i + 1 < n && p[i] == '\r');
    return LATHE_OK;
}

/* ---- the header ---- */

/* Writes the field that begins at text[*at], without quotes; *at becomes the begin of the next one,
 * above n after the last. Returns its length. */
static int64_t take_field(const char *text, int64_t n, char delimiter, int64_t *at, char *out)
{
    int64_t i = *at, length = 0;
    if (i < n && text[i] == '"') {
        for (i++; i < n; i++) {
            if (text[i] == '"' && (++i >= n || text[i] != '"'))
                break;
            out[length++] = text[i];
        }
    } else if (i < n) {
        const char *end = memchr(text + i, delimiter, (size_t)(n - i));
        length = end ? end - text - i : n - i;
        memcpy(out, text + i, (size_t)length);
        i += length;
    }
    while (i < n && text[i] != delimiter)
        i++;
    *at = i + 1;
    return length;
}

int64_t lathe__csv_field(const char *text, int64_t n, char delimiter, int32_t index, char *out)
{
    int64_t i = 0, lines = 0;
    for (; index > 0; index--) {
        if (i < n && text[i] == '"')
            (void)pass_quoted(text, n, &i, &lines);
        while (i < n && text[i] != delimiter)
            i++;
        i++;
    }
    return take_field(text, n, delimiter, &i, out);
}

/* Writes the columns of the header into out: "a, b, c", with "..." if they do not fit. */
static void list_columns(const lathe_reader *r, const char *header, const row *h, char *out,
                         size_t room)
{
    char *field = malloc((size_t)h->length + 1);
    int64_t at = 0;
    size_t used = 0;
    out[0] = '\0';
    for (int32_t k = 0; field && k < h->n_fields && used + 8 < room; k++) {
        const int64_t n = take_field(header, h->length, r->delimiter, &at, field);
        const int more = used + (size_t)n + 8 >= room;
        const int put = snprintf(out + used, room - used, "%s%.*s", k ? ", " : "",
                                 more ? 3 : (int)n, more ? "..." : field);
        used += put > 0 ? (size_t)put : 0;
        if (more)
            break;
    }
    free(field);
}

/* Checks that the header has the fields of every column that is required. */
static lathe_status check_columns(const lathe_reader *r, const char *header, const row *h)
{
    const lathe_layout *layout = &r->layouts.list[r->layout];
    char list[256];
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        const lathe_format *format = &layout->columns[c];
        for (int32_t i = 0; i < format->n; i++) {
            const lathe_format_part *part = &format->parts[i];
            if (part->name == NULL || part->may_be_out || r->csv[part->field] >= 0 ||
                r->layouts.need[c] != LATHE_COLUMN_REQUIRED)
                continue;
            list_columns(r, header, h, list, sizeof list);
            return lathe_source_error(lathe_layouts_missing(&r->layouts, c, part, list),
                                      &r->sources->list[r->at.file], 1);
        }
    }
    return LATHE_OK;
}

/* Finds the fields of the layouts in the header row. */
static lathe_status find_columns(lathe_reader *r, const char *header, const row *h)
{
    char *name = malloc((size_t)h->length + 1);
    const char *twice = NULL;
    uint32_t found = 0;
    int64_t at = 0;
    if (name == NULL)
        return lathe_error(LATHE_E_NOMEM, "a header of %lld bytes", (long long)h->length);
    for (int32_t f = 0; f < LATHE_MAX_FIELDS; f++)
        r->csv[f] = -1;
    for (int32_t k = 0; k < h->n_fields; k++) {
        const int64_t n = take_field(header, h->length, r->delimiter, &at, name);
        name[n] = 0;
        for (int32_t f = 0; f < r->layouts.n_fields; f++)
            if (!strcmp(name, r->layouts.fields[f])) {
                twice = r->csv[f] >= 0 ? r->layouts.fields[f] : twice;
                r->csv[f] = k;
                found |= 1u << f;
            }
    }
    free(name);
    if (twice)
        return lathe_error(LATHE_E_PARSE, "%s:1: two columns are named \"%s\"",
                           r->sources->list[r->at.file].path, twice);
    r->n_columns = h->n_fields;
    char *copy = lathe_arena_alloc(&r->layouts.arena, h->length + 1);
    if (copy == NULL)
        return LATHE_E_NOMEM;
    memcpy(copy, header, (size_t)h->length);
    r->header = copy;
    r->n_header = h->length;
    r->layout = lathe_layouts_choose(&r->layouts, found, found);
    return check_columns(r, header, h);
}

/* Parses the row that names the columns; skips blank lines before it. */
static lathe_status parse_header(lathe_reader *r, const char *p, int64_t n, int ended,
                                 int64_t *out_bytes, int64_t *out_lines)
{
    row h;
    const int64_t mark = n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
    *out_bytes = 0;
    LATHE_TRY(scan_row(r, r->delimiter, p + mark, n - mark, ended, &h));
    if (h.used == 0 && !ended)
        return LATHE_OK;
    if (h.length == 0)
        return lathe_error(LATHE_E_PARSE, "%s:1: no header row that names the columns",
                           r->sources->list[r->at.file].path);
    LATHE_TRY(find_columns(r, p + mark, &h));
    lathe_sha256_update(r->hash, p, mark + h.used);
    *out_bytes = mark + h.used;
    *out_lines = h.lines;
    return LATHE_OK;
}

lathe_status lathe__csv_header(lathe_reader *r, int64_t *out_bytes, int64_t *out_lines)
{
    const char *path = r->sources->list[r->at.file].path;
    const size_t length = strlen(path);
    const lathe_source_place at = r->at;
    lathe_status status = LATHE_OK;
    char *text = malloc(MAX_HEADER);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "a header row");
    r->delimiter = length > 4 && !strcmp(path + length - 4, ".tsv") ? '\t' : ',';
    r->at.line = 1; /* errors in the header name line 1, also if reading starts further on */
    *out_bytes = 0;
    for (int64_t n = 4096; status == LATHE_OK && *out_bytes == 0 && n <= MAX_HEADER; n *= 16) {
        int64_t got = 0;
        ssize_t k;
        while (got < n && (k = pread(r->fd, text + got, (size_t)(n - got), (off_t)got)) != 0) {
            if (k < 0 && errno != EINTR)
                break;
            got += k > 0 ? k : 0;
        }
        if (got < n && got != r->sources->list[r->at.file].bytes)
            status = lathe_error(LATHE_E_IO, "%s: cannot read it: %s", path, strerror(errno));
        else
            status = parse_header(r, text, got, got < n, out_bytes, out_lines);
    }
    if (status == LATHE_OK && *out_bytes == 0)
        status =
            lathe_error(LATHE_E_PARSE, "%s:1: no header row within %d bytes", path, MAX_HEADER);
    r->at = at;
    free(text);
    return status;
}

lathe_status lathe__scan_csv(lathe_reader *r, const char *p, int64_t n, lathe_scan *out)
{
    row found;
    if (n == 0)
        return LATHE_OK;
    LATHE_TRY(scan_row(r, r->delimiter, p, n, r->eof, &found));
    out->needs_more = found.used == 0 && !r->eof;
    if (out->needs_more)
        return LATHE_OK;
    out->used = found.used;
    out->lines = found.lines;
    if (found.length == 0) /* a blank line */
        return LATHE_OK;
    if (found.n_fields != r->n_columns)
        return lathe__reader_error(r, LATHE_E_PARSE, 0, "%d fields, the header names %d",
                                   found.n_fields, r->n_columns);
    out->length = found.length;
    return LATHE_OK;
}

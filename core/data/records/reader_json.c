/* Scans JSON datasets: finds the records of one array, or objects one after another, by their
 * braces; the caller parses each record. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "data/records/record_reader.h"

/* Position of the scanner: before the array, after a record, after "[", after the array, after a
 * comma. OBJECTS: between the objects of a file that is no array, such as the one object of a
 * conversation, or JSON lines. */
enum { BEFORE = 0, AFTER_RECORD = 1, FIRST = 2, AFTER = 3, COMMA = 4, OBJECTS = 5 };

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

lathe_status lathe__json_begin(lathe_reader *r)
{
    char text[256];
    int64_t at = 0;
    ssize_t n = 0, i = 0;
    r->state = r->at.offset > 0 ? AFTER_RECORD : BEFORE;
    while (r->state == AFTER_RECORD && i == n && (n = pread(r->fd, text, sizeof text, at)) > 0) {
        i = at == 0 && n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
        while (i < n && is_space(text[i]))
            i++;
        at += n;
    }
    if (i < n && text[i] == '{')
        r->state = OBJECTS;
    return n >= 0 ? LATHE_OK
                  : lathe_error(LATHE_E_IO, "%s: cannot read: %s",
                                r->sources->list[r->at.file].path, strerror(errno));
}

/* Length of the object at p[0], -1 if it does not end within n bytes; counts its line ends. */
static int64_t object_length(const char *p, int64_t n, int64_t *out_lines)
{
    int64_t depth = 0;
    int in_string = 0;
    *out_lines = 0;
    for (int64_t i = 0; i < n; i++) {
        const char c = p[i];
        *out_lines += c == '\n';
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            return i + 1;
        }
    }
    return -1;
}

static lathe_status scan_object(lathe_reader *r, const char *p, int64_t n, lathe_scan *out)
{
    int64_t lines;
    if (p[0] != '{' && r->state == OBJECTS)
        return lathe__reader_error(r, LATHE_E_PARSE, 0,
                                   "'%c' where the next object or the end of the file is expected",
                                   p[0] >= ' ' && p[0] <= '~' ? p[0] : '?');
    if (p[0] != '{')
        return lathe__reader_error(r, LATHE_E_PARSE, 0,
                                   "'%c' where an object is expected: the array of a JSON dataset "
                                   "holds one object per record",
                                   p[0] >= ' ' && p[0] <= '~' ? p[0] : '?');
    const int64_t length = object_length(p, n, &lines);
    if (length < 0 && r->eof)
        return lathe__reader_error(r, LATHE_E_PARSE, 0, "the record that begins here has no end");
    out->needs_more = length < 0;
    if (out->needs_more)
        return LATHE_OK;
    out->used = out->length = length;
    out->lines = lines;
    r->state = r->state == OBJECTS ? OBJECTS : AFTER_RECORD;
    return LATHE_OK;
}

static lathe_status unexpected(const lathe_reader *r, char c, const char *expected)
{
    if (c >= ' ' && c <= '~')
        return lathe__reader_error(r, LATHE_E_PARSE, 0, "'%c' where %s is expected", c, expected);
    return lathe__reader_error(r, LATHE_E_PARSE, 0, "byte 0x%02x where %s is expected",
                               (unsigned char)c, expected);
}

lathe_status lathe__scan_json(lathe_reader *r, const char *p, int64_t n, lathe_scan *out)
{
    if (n == 0)
        return r->state == AFTER || r->state == OBJECTS
                   ? LATHE_OK
                   : lathe__reader_error(
                         r, LATHE_E_PARSE, 0,
                         r->state == BEFORE ? "the file is empty; expected an array of records, or "
                                              "objects"
                                            : "the file ends inside its array; expected ']'");
    const char c = p[0];
    out->used = 1;
    out->lines = c == '\n';
    if (is_space(c))
        return LATHE_OK;
    if (r->state == BEFORE && c == '{')
        r->state = OBJECTS;
    switch (r->state) {
    case BEFORE:
        r->state = FIRST;
        return c == '[' ? LATHE_OK
                        : unexpected(r, c, "'[' or '{', an array of records or objects,");
    case AFTER_RECORD:
        r->state = c == ',' ? COMMA : AFTER;
        return c == ',' || c == ']' ? LATHE_OK : unexpected(r, c, "',' or ']'");
    case AFTER:
        return unexpected(r, c, "the end of the file");
    default:
        if (c == ']' && r->state == FIRST) {
            r->state = AFTER;
            return LATHE_OK;
        }
        out->used = 0;
        return scan_object(r, p, n, out);
    }
}

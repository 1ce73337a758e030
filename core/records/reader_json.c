/* Scans JSON datasets: finds the records of one array by their braces; the caller parses each
 * record. */
#include "base/error.h"
#include "records/reader.h"

/* Position of the scanner: before the array, after a record, after "[", after the array, after a
 * comma. When a file is opened at a place after a record, open_file sets the state to 1. */
enum { BEFORE = 0, AFTER_RECORD = 1, FIRST = 2, AFTER = 3, COMMA = 4 };

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
    r->state = AFTER_RECORD;
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
        return r->state == AFTER
                   ? LATHE_OK
                   : lathe__reader_error(r, LATHE_E_PARSE, 0,
                                         r->state == BEFORE
                                             ? "the file is empty; expected an array of records"
                                             : "the file ends inside its array; expected ']'");
    const char c = p[0];
    out->used = 1;
    out->lines = c == '\n';
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
        return LATHE_OK;
    switch (r->state) {
    case BEFORE:
        r->state = FIRST;
        return c == '[' ? LATHE_OK : unexpected(r, c, "'[', an array of records,");
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

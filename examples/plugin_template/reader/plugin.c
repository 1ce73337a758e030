/* @NAME@: files of lines "KEY: VALUE". An empty line ends a record. Every value is a string.
 *
 * The whole file is kept in memory here. A reader of large files keeps a part of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lathe/plugin.h>
#include <lathe/reader.h>

typedef struct opened {
    char *text; /* [bytes], and a NUL */
    int64_t bytes, at, line;
    char *record; /* at most six bytes of JSON for a byte of text */
    char names[256]; /* of the columns: of the first record's keys, each with a NUL */
} opened;

static const lathe_host *host;

static lathe_status create(const lathe_host *given, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values, (void)n_values;
    host = given;
    *out_self = NULL;
    return LATHE_OK;
}

static int64_t put_string(char *out, const char *text, int64_t n)
{
    int64_t at = 0;
    out[at++] = '"';
    for (int64_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == '"' || c == '\\')
            at += snprintf(out + at, 7, "\\u%04x", c);
        else
            out[at++] = (char)c;
    }
    out[at++] = '"';
    return at;
}

static void close_file(void *self)
{
    opened *const o = self;
    if (o == NULL)
        return;
    free(o->text);
    free(o->record);
    free(o);
}

static void find_names(opened *o)
{
    size_t used = 0;
    for (const char *at = o->text; *at != '\0' && *at != '\n'; at += strcspn(at, "\n") + 1) {
        const size_t n = strcspn(at, ":\n");
        if (used + n + 2 < sizeof o->names) {
            memcpy(o->names + used, at, n);
            used += n + 1;
        }
        if (at[strcspn(at, "\n")] == '\0')
            break;
    }
}

static lathe_status open_file(void *self, const lathe_reader_file *file, void **out)
{
    (void)self;
    opened *const o = calloc(1, sizeof *o);
    if (o != NULL) {
        o->text = calloc(1, (size_t)file->bytes + 1);
        o->record = malloc((size_t)file->bytes * 6 + 64);
    }
    if (o == NULL || o->text == NULL || o->record == NULL) {
        close_file(o);
        return lathe_fail(host, LATHE_E_NOMEM, "a file of %lld bytes", (long long)file->bytes);
    }
    o->bytes = pread(file->fd, o->text, (size_t)file->bytes, 0);
    if (o->bytes != file->bytes) {
        close_file(o);
        return lathe_fail(host, LATHE_E_IO, "cannot read it");
    }
    find_names(o);
    o->at = file->offset;
    *out = o;
    return LATHE_OK;
}

static const char *column(const void *self, int32_t i)
{
    const opened *const o = self;
    const char *at = o->names;
    for (; i > 0 && *at != '\0'; i--)
        at += strlen(at) + 1;
    return *at != '\0' ? at : NULL;
}

/* Columns that the core does not use cost nothing here, so all are given. */
static lathe_status next(void *self, lathe_reader_row *out)
{
    opened *const o = self;
    int64_t n = 0;
    *out = (lathe_reader_row){0};
    if (o->at >= o->bytes)
        return LATHE_OK;
    o->record[n++] = '{';
    while (o->at < o->bytes && o->text[o->at] != '\n') {
        const char *const line = o->text + o->at;
        const int64_t length = (int64_t)strcspn(line, "\n"), key = (int64_t)strcspn(line, ":\n");
        if (key + 1 >= length || line[key + 1] != ' ')
            return lathe_fail(host, LATHE_E_PARSE, "expected a line \"KEY: VALUE\", found \"%.*s\"",
                              (int)(length < 60 ? length : 60), line);
        n += n > 1 ? (memcpy(o->record + n, ", ", 2), 2) : 0;
        n += put_string(o->record + n, line, key);
        o->record[n++] = ':';
        n += put_string(o->record + n, line + key + 2, length - key - 2);
        o->at += length + 1;
    }
    o->record[n++] = '}';
    o->at++; /* the empty line */
    *out = (lathe_reader_row){o->record, n, o->at};
    return LATHE_OK;
}

static const lathe_reader_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_READER_REVISION,
    .suffixes = ".@NAME@",
    .open = open_file,
    .column = column,
    .next = next,
    .close = close_file,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_READER,
    .revision = LATHE_READER_REVISION,
    .name = "@NAME@",
    .version = "0.1.0",
    .summary = "records of lines KEY: VALUE",
    .source = "ours",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
};

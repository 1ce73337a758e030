/* Prints errors as JSON, from diagnostics or from the text of an error. */
#include "cli/errors_json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/print.h"
#include "base/utf8.h"

/* A JSON string of n bytes; bytes that are not UTF-8 become U+FFFD, as in a path of a file. */
static json_t *text_json(const char *text, size_t n)
{
    json_t *string = json_stringn(text, n);
    if (string != NULL)
        return string;
    lathe_buffer b = LATHE_BUFFER_INIT;
    for (int64_t i = 0; i < (int64_t)n;) {
        int32_t len = 0;
        if (lathe_utf8_at((const uint8_t *)text + i, (int64_t)n - i, &len) < 0) {
            len = lathe_utf8_bad((const uint8_t *)text + i, (int64_t)n - i);
            lathe_buffer_puts(&b, "\xef\xbf\xbd");
        } else {
            lathe_buffer_append(&b, text + i, len);
        }
        i += len;
    }
    string = json_stringn(b.data ? b.data : "", (size_t)b.len);
    lathe_buffer_fini(&b);
    return string;
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? text_json(text, strlen(text)) : json_null();
}

json_t *lathe_cli_diags_json(const lathe_diags *diags, int32_t severity)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < diags->n; i++) {
        const lathe_diag *d = &diags->items[i];
        if (d->severity != severity)
            continue;
        json_t *one = json_object();
        (void)json_object_set_new(one, "file", text_or_null(d->place.file));
        (void)json_object_set_new(one, "message", text_or_null(d->message));
        (void)json_object_set_new(one, "suggestion", text_or_null(d->suggestion));
        const int placed = d->place.line > 0;
        (void)json_object_set_new(one, "line", placed ? json_integer(d->place.line) : json_null());
        (void)json_object_set_new(one, "column",
                                  placed ? json_integer(d->place.column) : json_null());
        (void)json_array_append_new(list, one);
    }
    return list;
}

/* Removes a number such as ":12" from the end of text[0, *n) and returns it; 0: there is none. */
static long take_number(const char *text, size_t *n)
{
    size_t at = *n;
    while (at > 0 && isdigit((unsigned char)text[at - 1]))
        at--;
    if (at == *n || at < 2 || text[at - 1] != ':')
        return 0;
    *n = at - 1;
    return strtol(text + at, NULL, 10);
}

/* Reads "FILE:LINE:COLUMN: " or "FILE: error: " at the beginning of a line of n bytes into `one`,
 * and returns its length in bytes; 0 for neither. */
static size_t read_place(const char *line, size_t n, json_t *one)
{
    static const char mark[] = "error: ";
    const char *colon = memmem(line, n, ": ", 2);
    if (colon == NULL)
        return 0;
    size_t file = (size_t)(colon - line), used = file + 2;
    const int is_error = n - used >= sizeof mark - 1 && !memcmp(line + used, mark, sizeof mark - 1);
    long column = take_number(line, &file), row = column > 0 ? take_number(line, &file) : 0;
    if (row == 0 && column > 0) { /* FILE:LINE */
        row = column;
        column = 0;
    }
    if (row == 0 && !is_error)
        return 0;
    (void)json_object_set_new(one, "file", text_json(line, file));
    (void)json_object_set_new(one, "line", row > 0 ? json_integer(row) : json_null());
    (void)json_object_set_new(one, "column", column > 0 ? json_integer(column) : json_null());
    return is_error ? used + sizeof mark - 1 : used;
}

/* Removes " (did you mean 'WORD'?)" from the end of a message. */
static size_t read_suggestion(const char *text, size_t n, json_t *one)
{
    static const char begin[] = " (did you mean '", end[] = "'?)";
    const size_t n_begin = sizeof begin - 1, n_end = sizeof end - 1;
    const char *at = memmem(text, n, begin, n_begin);
    if (at == NULL || n < n_end || memcmp(text + n - n_end, end, n_end) != 0)
        return n;
    const size_t from = (size_t)(at - text) + n_begin;
    if (from > n - n_end)
        return n;
    (void)json_object_set_new(one, "suggestion", text_json(text + from, n - n_end - from));
    return from - n_begin;
}

static json_t *make(const char *text, size_t n, size_t *out_used)
{
    json_t *one = json_pack("{s:n, s:n, s:n, s:n}", "file", "line", "column", "suggestion");
    *out_used = read_place(text, n, one);
    const size_t bytes = read_suggestion(text + *out_used, n - *out_used, one);
    (void)json_object_set_new(one, "message", text_json(text + *out_used, bytes));
    return one;
}

json_t *lathe_cli_errors_json(const char *text)
{
    json_t *list = json_array();
    for (const char *line = text; *line != '\0';) {
        const size_t n = strcspn(line, "\n");
        size_t used = 0;
        json_t *one = make(line, n, &used);
        if (used == 0 &&
            json_array_size(list) == 0) { /* not a list of errors: one text with its line breaks */
            json_decref(one);
            one = make(line, strlen(line), &used);
            (void)json_array_append_new(list, one);
            break;
        }
        if (n > 0)
            (void)json_array_append_new(list, json_incref(one));
        json_decref(one);
        line += line[n] == '\n' ? n + 1 : n;
    }
    return list;
}

void lathe_cli_print_errors(const char *text)
{
    json_t *root = json_pack("{s:o}", "errors", lathe_cli_errors_json(text));
    lathe_print_json(stdout, root, JSON_INDENT(2));
    (void)fflush(stdout);
    json_decref(root);
}
